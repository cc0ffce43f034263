"""Users bring their own clients and models: as a list, a function, a folder or an import path."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import sfumato as library
from sfumato.run.prepare import prepare
from sfumato.run.request import Request
from sfumato.run.run import Run
from tests.cli.conftest import Command

MODULE = """
import torch
from torch import nn
from sfumato import Population, PublicData, Records

CALLS = []

def _one(number):
    generator = torch.Generator().manual_seed(number)
    x = torch.randn(4, 3, generator=generator)
    return x, (x.sum(1) > 0).long()

def client(number):
    return _one(number)

def clients():
    CALLS.append(1)
    return [_one(number) for number in range(30)]

population = Population.from_list([_one(number) for number in range(30)], name="hers")

def with_public():
    x, y = _one(99)
    return clients(), PublicData("public", Records(x, y))

class Tied(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.first, self.second = nn.Linear(inputs, inputs), nn.Linear(inputs, inputs)
        self.second.weight = self.first.weight
        self.head = nn.Linear(inputs, outputs)
        self.register_buffer("shift", torch.full((inputs,), 0.5))

    def forward(self, x):
        return self.head(torch.relu(self.second(torch.relu(self.first(x + self.shift)))))

def tied(input_shape, outputs):
    return Tied(input_shape[0], outputs)

def frozen(input_shape, outputs):
    body = nn.Linear(input_shape[0], 8)
    body.requires_grad_(False)
    return nn.Sequential(body, nn.ReLU(), nn.Linear(8, outputs))
"""
WORDS = ["--outputs", "2", "--clients", "30", "--rounds", "2", "--noise-multiplier", "1", "--lr", "0.1"]


def summary(folder: str) -> dict[str, Any]:
    return json.loads((Path(folder) / "run.json").read_text())  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", ["client", "clients", "population"])
def test_an_import_path_trains(name: str, hers: Command) -> None:
    status, out, err = hers("train", "--data", f"hers:{name}", *WORDS, "--out", "run")
    assert status == 0, err
    assert "accuracy" not in out + err, "there are no public test data"
    found = summary("run")
    assert found["accuracy"] is None and found["metrics"] == {} and found["epsilon"] > 0 and found["population"] == 30
    refused = hers("evaluate", "run")
    assert refused.status == 2 and "no public test data" in refused.err


def test_the_defaults_in_a_config_are_not_taken_for_wishes(hers: Command) -> None:
    assert hers("train", "--data", "hers:clients", *WORDS, "--quiet", "--out", "run").status == 0
    assert hers("train", "--config", "run/run.toml", "--quiet", "--out", "again") == (0, "", "")
    Path("wish.toml").write_text(Path("run/run.toml").read_text().replace('"iid"', '"shards:2"'))
    refused = hers("train", "--config", "wish.toml")
    assert refused.status == 2 and "--split shards:2" in refused.err and "data.split" in refused.err


def test_public_test_data_beside_a_list_are_evaluated(hers: Command) -> None:
    assert hers("train", "--data", "hers:with_public", *WORDS, "--quiet", "--out", "run").status == 0
    assert summary("run")["accuracy"] is not None
    assert sys.modules["hers"].CALLS == [1], "a loader is called once"
    assert hers("evaluate", "run").status == 0


def test_a_folder_of_one_file_per_client(hers: Command) -> None:
    people = Path("people")
    people.mkdir()
    for number in range(30):
        x, y = torch.randn(3, 2, 2), torch.tensor([0, 1, 2])
        if number % 3 == 0:
            np.savez(people / f"{number:02}.npz", x=x.numpy(), y=y.numpy())
        elif number % 3 == 1:
            torch.save({"x": x, "y": y}, people / f"{number:02}.pt")
        else:
            save_file({"x": x, "y": y}, people / f"{number:02}.safetensors")
    words = ["--data", "people", "--outputs", "3", "--clients", "30", "--rounds", "2", "--noise-multiplier", "1"]
    status, _, err = hers("train", *words, "--out", "run")
    assert status == 0, err
    assert summary("run")["data"] == "people" and summary("run")["outputs"] == 3
    undeclared = hers("train", "--data", "people", "--outputs", "3")
    assert undeclared.status == 2 and "--clients" in undeclared.err


@pytest.mark.parametrize("model", ["tied", "frozen"])
def test_an_own_model_comes_back(model: str, hers: Command) -> None:
    words = ["--data", "hers:clients", "--model", f"hers:{model}", *WORDS, "--quiet", "--out", "run"]
    assert hers("train", *words).status == 0
    loaded = library.load("run")
    assert isinstance(loaded, nn.Module) and not loaded.training
    stored = load_file("run/params.safetensors")
    assert set(stored) == set(loaded.state_dict())
    assert all(torch.equal(stored[name], value) for name, value in loaded.state_dict().items())
    assert str(loaded.guarantee) == summary("run")["guarantee"]
    assert loaded(torch.ones(5, 3)).shape == (5, 2)
    untrained = prepare(Request.from_toml(Path("run/run.toml"))).module.state_dict()
    moved = {name for name in stored if not torch.equal(stored[name], untrained[name])}
    fixed = {"tied": {"shift"}, "frozen": {"0.weight", "0.bias"}}[model]
    assert moved == set(stored) - fixed


def test_a_list_and_a_function_in_python(tmp_path: Path) -> None:
    def one(number: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.full((3, 4), float(number)), torch.tensor([0, 1, 1])

    settings: dict[str, Any] = {"sample": library.Everyone(), "client": (library.Clip(1.0),)}
    round = library.Round(
        local=library.Sgd(lr=0.1, epochs=1),
        aggregate=library.Mean(over=6),
        server=(library.AddNoise(library.Gaussian(1.0)),),
        **settings,
    )
    results = []
    for population in (
        library.Population.from_list([one(number) for number in range(6)], name="six"),
        library.Population.from_function(one, size=6, name="six"),
    ):
        steps = library.simulate(
            round, population, nn.Linear(4, 2).requires_grad_(True), library.classification(2), rounds=2, seed=0
        )
        last = list(steps)[-1]
        assert last.epsilon(1e-3) > 0 and "in memory" in str(last.guarantee(1e-3))
        results.append(last)
    assert [step.round for step in results] == [2, 2]


def test_a_run_in_python_is_the_run_of_the_command_line(hers: Command) -> None:
    request = Request(rounds=2, seed=5).with_value("data.clients", 40).with_value("options.noise_multiplier", 2.0)
    lines = list(Run(prepare(request), Path("python")))
    assert [line.round for line in lines] == [1, 2]
    words = ["--rounds", "2", "--seed", "5", "--clients", "40", "--noise-multiplier", "2", "--quiet", "--out", "shell"]
    assert hers("train", *words).status == 0
    ours, theirs = load_file("python/params.safetensors"), load_file("shell/params.safetensors")
    assert all(torch.allclose(ours[name], theirs[name], atol=1e-5) for name in ours)
    with pytest.raises(library.SfumatoError, match="never overwritten"):
        Run(prepare(request), Path("python"))
