"""A run from Python is a run: the command line reports it, evaluates it and goes on with it, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from sfumato import (
    AddNoise,
    Clip,
    Gaussian,
    Mean,
    Poisson,
    Population,
    PublicData,
    Records,
    Round,
    Sgd,
    classification,
    evaluate,
    load,
    simulate,
)
from sfumato.errors import BadValue, BudgetExceeded, DataError
from tests.cli.conftest import Command
from tests.helpers import dp_round, linear, made_up_population

MODULE = """
import torch
from sfumato import PublicData, Records

def one(number):
    x = torch.randn(6, 4, generator=torch.Generator().manual_seed(number))
    return x, (x[:, 0] > x[:, 1]).long()

def clients():
    return [one(number) for number in range(30)]

def public():
    return PublicData("hers:public", Records(*one(99)))
"""
ROUND = Round(
    sample=Poisson(rate=0.5),
    local=Sgd(lr=0.5, epochs=1),
    client=(Clip(norm=1.0),),
    aggregate=Mean(over=15),
    server=(AddNoise(Gaussian(noise_multiplier=2.0)),),
)
FILES = {"run.toml", "run.json", "metrics.jsonl", "params.safetensors", "report.html", "ledger.sqlite"}
PEOPLE = made_up_population([4] * 12)
TEST = PublicData("made-up/test", Records(torch.randn(20, 6), torch.arange(20) % 3))


def train(folder: str | Path, **changed: Any) -> Any:
    options: dict[str, Any] = {"rounds": 3, "folder": folder, "test": TEST, **changed}
    return simulate(dp_round(), PEOPLE, options.pop("module", linear()), classification(3), **options)


def summary(folder: Path | str) -> dict[str, Any]:
    return json.loads((Path(folder) / "run.json").read_text())  # type: ignore[no-any-return]


def rounds(folder: Path | str) -> list[int]:
    return [json.loads(line)["round"] for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()]


def test_it_leaves_the_folder_that_the_command_line_leaves(finished: Path, sfumato: Command) -> None:
    run = train("run")
    for progress in run:
        assert rounds("run")[-1] == progress.round, "on disk before it is shown"
    assert {path.name for path in Path("run").iterdir()} >= FILES
    found, theirs = summary("run"), summary(finished)
    assert set(found) == set(theirs)
    assert found["epsilon"] == progress.epsilon(found["delta"]) > 0 and found["population"] == 12
    assert found["metrics"] == evaluate(progress.module, TEST.records, classification(3))
    assert found["guarantee"] == str(run.guarantee()) == str(progress.guarantee(found["delta"]))
    assert found["guarantees"]["client"]["world"]["text"] == found["guarantee"]
    assert found["assumptions"] == [
        "exact real-number arithmetic (floating point is not covered)",
        "the server is trusted",
        "who takes part in a round stays secret from the observer",
    ]
    assert "differential privacy" in (Path("run") / "report.html").read_text()
    assert sfumato("report", "run") == (0, "run/report.html\n", "")
    assert sfumato("report", "run", str(finished)).status == 0
    assert "add/remove" in sfumato("ledger", "run").out


def test_a_module_of_ones_own_comes_back_with_one_like_it(sfumato: Command) -> None:
    module = linear()
    before = module.weight.detach().clone()
    *_, last = train("run", module=module)
    assert torch.equal(module.weight, before), "the user's module is left alone"
    with pytest.raises(BadValue, match=r"its Linear was made in Python.*load\('run', module\)"):
        load("run")
    found = load("run", linear(seed=7))
    assert torch.equal(found.weight, last.module.weight) and found.guarantee == summary("run")["guarantee"]  # type: ignore[arg-type]
    with pytest.raises(DataError, match="does not fit"):
        load("run", nn.Linear(2, 2))


def test_what_cannot_be_named_is_gone_on_with_in_python(sfumato: Command) -> None:
    list(train("run"))
    assert "population, module and test data" in tomllib.loads(Path("run/run.toml").read_text())["unnamed"]
    status, _, err = sfumato("train", "--resume", "run", "--rounds", "5")
    line = "simulate(round, population, module, objective, rounds=5, folder='run', resume=True)"
    assert status == 2 and line in err
    assert "evaluate(load('run', module), test.records, objective)" in sfumato("evaluate", "run").err
    assert "cannot be named" in sfumato("train", "--config", "run/run.toml").err
    assert [progress.round for progress in train("run", rounds=5, resume=True)] == [4, 5]
    assert rounds("run") == [1, 2, 3, 4, 5] and summary("run")["rounds"] == 5


def test_what_can_be_named_is_gone_on_with_from_a_shell(hers: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path.cwd()))
    import hers as module  # type: ignore[import-not-found]

    def ready(folder: str, **changed: Any) -> Any:
        options = {"rounds": 4, "seed": 3, "test": module.public(), "folder": folder, **changed}
        return simulate(ROUND, Population.from_import("hers:clients"), "mlp", classification(2), **options)

    list(ready("whole"))
    for progress in ready("parts"):
        if progress.round == 2:
            break
    assert "unfinished run" in hers("report", "parts").err
    shell = [sys.executable, "-m", "sfumato"]
    settings = {"env": {**os.environ, "OMP_NUM_THREADS": "1"}, "capture_output": True, "text": True, "timeout": 120}
    done = subprocess.run([*shell, "train", "--resume", "parts", "--quiet"], **settings)  # type: ignore[call-overload]
    assert (done.returncode, done.stderr) == (0, "")
    assert rounds("parts") == [1, 2, 3, 4]
    whole, parts = load_file("whole/params.safetensors"), load_file("parts/params.safetensors")
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    assert torch.equal(next(load("parts").parameters()), next(load("whole").parameters()))
    done = subprocess.run([*shell, "evaluate", "parts", "--json"], **settings)  # type: ignore[call-overload]
    assert json.loads(done.stdout)["accuracy"] == summary("parts")["accuracy"] is not None
    assert hers("train", "--config", "whole/run.toml", "--out", "again", "--quiet") == (0, "", "")
    again = load_file("again/params.safetensors")
    assert all(torch.allclose(whole[name], again[name], atol=1e-5) for name in whole)
    refused = hers("train", "--config", "whole/run.toml", "--lr", "0.1")
    assert refused.status == 2 and "takes no option of a recipe" in refused.err


def test_a_loop_that_breaks_off_is_ended_or_gone_on_with(tmp_path: Path) -> None:
    run = train(tmp_path / "run", rounds=9)
    for progress in run:
        if progress.round == 2:
            break
    assert not (tmp_path / "run" / "run.json").exists()
    run.finish("good enough")
    assert summary(tmp_path / "run")["rounds"] == 2 and summary(tmp_path / "run")["stopped"] == "good enough"
    assert "good enough" in (tmp_path / "run" / "report.html").read_text()
    assert [progress.round for progress in train(tmp_path / "run", rounds=3, resume=True)] == [3]


def test_a_budget_ends_it_with_its_files(tmp_path: Path) -> None:
    with pytest.raises(BudgetExceeded):
        list(train(tmp_path / "run", rounds=500, budget=(3.0, 1e-2)))
    found = summary(tmp_path / "run")
    assert 0 < found["rounds"] < 500 and found["epsilon"] <= 3.0 and found["delta"] == 1e-2 and found["stopped"]
    with pytest.raises(BadValue, match="the budget is at delta"):
        train(tmp_path / "other", budget=(3.0, 1e-2), delta=1e-3)


def test_without_a_folder_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = train(None)
    assert [progress.round for progress in run] == [1, 2, 3] and not list(tmp_path.iterdir())
    assert run.ledger.count == 3 and run.guarantee(1e-3).epsilon > 0
    with pytest.raises(BadValue, match="no folder"):
        run.finish()
