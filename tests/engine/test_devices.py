"""Whole runs on a device that is none: every piece in some round, whose parameters are those of the CPU to the bit."""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import sfumato
from sfumato import (
    AdaptiveClip,
    Fit,
    Majority,
    Neighbours,
    OneHolder,
    Plan,
    Population,
    Round,
    classification,
    multi_label,
    recipes,
)
from sfumato.engine import simulate as engine
from sfumato.engine.checkpoint import Checkpoint
from sfumato.engine.simulate import simulate
from sfumato.errors import BadValue
from sfumato.key import Key
from sfumato.pieces.law import Multiple
from sfumato.pieces.protocol import Piece
from sfumato.voting.adaptation import Adaptation
from sfumato.voting.labels import Labels
from sfumato.voting.learners import Learner
from sfumato.voting.votes import Voter
from tests.engine.rounds import HOLDER, PEOPLE, PUBLIC, ROUNDS, of_votes, parts
from tests.helpers import dp_round, linear
from tests.pretend_device import accepting as accepting
from tests.pretend_device import pretend_device, values

CENTRAL = [("poisson:0.3", "sgd"), ("fixed:3", "momentum"), ("everyone", "adam")]


def run_of(round: Round, device: str, **changed: Any) -> Any:
    people, module, objective = PEOPLE, linear(), classification(3)
    given: dict[str, Any] = {"population": people, "module": module, "objective": objective, "rounds": 3, "seed": 1}
    return simulate(round, device=device, **{**given, "plan": Plan(), **changed})


def trained(round: Round, device: str, **changed: Any) -> list[Any]:
    """The parameters after each round."""
    return [progress.params for progress in run_of(round, device, **changed)]


def compared(round: Round, **changed: Any) -> None:
    expected = trained(round, "cpu", **changed)
    with pretend_device() as device:
        found = trained(round, device, **changed)
    assert all(torch.equal(values(one), other) for one, other in zip(found, expected, strict=True))


@pytest.mark.usefixtures("accepting")
@pytest.mark.parametrize("round", ROUNDS.values(), ids=ROUNDS)
def test_a_round_elsewhere_gives_what_the_cpu_gives(round: Callable[[], Round]) -> None:
    compared(round())


def kinds(base: type) -> Iterator[type]:
    for kind in base.__subclasses__():
        yield kind
        yield from kinds(kind)


def test_every_piece_is_in_some_round() -> None:
    for found in pkgutil.walk_packages(sfumato.__path__, "sfumato."):
        if found.name.split(".")[1] in ("account", "local", "pieces", "tuning", "voting"):
            importlib.import_module(found.name)
    known = {
        kind
        for base in (Piece, Multiple, Voter, Learner, Labels, Adaptation)
        for kind in kinds(base)
        if not getattr(kind, "_is_protocol", False)
        and kind.__name__[0] != "_"
        and kind.__module__.startswith("sfumato.")
    }
    known = {kind for kind in known if kind.__module__.split(".")[1] not in ("audit", "testing")}
    tried = {type(part) for make in ROUNDS.values() for part in parts(make())} | {OneHolder, Majority}  # below
    assert known - tried == set()


@pytest.mark.usefixtures("accepting")
@pytest.mark.parametrize(("batch", "optimizer"), CENTRAL, ids=[batch for batch, _ in CENTRAL])
def test_the_recipe_for_one_holder(batch: str, optimizer: str) -> None:
    options = {"batch": batch, "records": 20, "noise_multiplier": 1.0, "optimizer": optimizer}
    compared(recipes.build("dp-sgd", 1, options), population=HOLDER)


@pytest.mark.usefixtures("accepting")
def test_votes_on_attributes() -> None:
    people = Population.from_list(
        [(client.train.x, (client.train.x[:, :3] > 0).float()) for client in map(PEOPLE.client, range(4))],
        name="many labels",
    )
    round = of_votes(Neighbours(3, attributes=2), Fit(steps=4), "uncertain", Majority(4))
    compared(round, population=people, objective=multi_label(3))


def with_dropout() -> nn.Module:
    with Key.from_seed(2).seeding_torch():
        return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3))


@pytest.mark.usefixtures("accepting")
@pytest.mark.parametrize("name", ["dp-fedavg", "sharpness", "adaptive sharpness", "control variates", "records"])
def test_every_plan_and_a_deeper_model(name: str) -> None:
    compared(ROUNDS[name](), module=with_dropout())
    if name != "records":
        compared(ROUNDS[name](), module=with_dropout(), plan=Plan("stacked", 3))
        compared(ROUNDS[name](), plan=Plan("vmapped", 3))


@pytest.mark.usefixtures("accepting")
def test_a_plan_is_measured_there() -> None:
    expected = trained(ROUNDS["dp-fedavg"](), "cpu", plan=Plan())
    with pretend_device() as device:
        found = trained(ROUNDS["dp-fedavg"](), device, plan=None)
    torch.testing.assert_close(values(found[-1]), expected[-1])


RESUMED = ["adam", "adaptive", "previous mask", "helper models", "control variates", "teachers", "second moments"]


@pytest.mark.usefixtures("accepting")
@pytest.mark.parametrize("name", RESUMED)
def test_a_run_goes_on_there(name: str, tmp_path: Path) -> None:
    """A checkpoint is on the CPU. Its next rounds are those of a run that was not interrupted, as the seed is the same."""

    whole, torn = {"folder": tmp_path / "here"}, {"folder": tmp_path / "there"}
    expected = trained(ROUNDS[name](), "cpu", **whole)
    with pretend_device() as device:
        trained(ROUNDS[name](), device, rounds=2, **torn)
        (found,) = trained(ROUNDS[name](), device, resume=True, **torn)
    assert torch.equal(values(found), expected[-1])
    here, there = (Checkpoint.read(tmp_path / place) for place in ("here", "there"))
    assert here is not None and there is not None and there.state.keys() == here.state.keys()
    assert all(torch.equal(there.state[word], value) for word, value in here.state.items())


@pytest.mark.usefixtures("accepting")
def test_what_python_leaves_in_a_folder(tmp_path: Path) -> None:
    """With a module that lies there already, as a user's own does, and records on both sides."""

    def left(device: str, folder: Path) -> tuple[Any, dict[str, torch.Tensor]]:
        people = Population.from_list(
            [tuple(part.to(device) for part in PEOPLE.client(nth).train) for nth in range(4)], name="far"
        )
        run = sfumato.simulate(
            dp_round(client=(AdaptiveClip(0.3),)), people, linear().to(device), nn.CrossEntropyLoss(), rounds=2, seed=1,
            folder=folder, test=PUBLIC, plan=Plan(), device=device, diagnostics=True, budget=(1e6, 1e-5),
        )  # fmt: skip
        for progress in run:
            assert next(progress.module.parameters()).device == torch.device("cpu")
        return json.loads((folder / "run.json").read_text())["metrics"], load_file(folder / "params.safetensors")

    metrics, params = left("cpu", tmp_path / "here")
    with pretend_device() as device:
        there, found = left(device, tmp_path / "there")
    assert there == metrics and all(torch.equal(found[name], value) for name, value in params.items())


@pytest.mark.usefixtures("accepting")
def test_votes_are_told(tmp_path: Path) -> None:
    with pretend_device() as device:
        given: dict[str, Any] = {"rounds": 2, "seed": 1, "folder": tmp_path / "run", "plan": Plan(), "device": device}
        run = sfumato.simulate(ROUNDS["teachers"](), PEOPLE, linear(), classification(3), **given)
        assert len(list(run)) == 2
    assert json.loads((tmp_path / "run" / "run.json").read_text())["votes"]["asked"] == 8


# Devices that are not there


@pytest.mark.parametrize(
    ("device", "said"),
    [
        ("gpu", "no such device"),
        ("cuda:x", "no such device"),
        ("meta", "no such device"),
        ("mps", "float64"),
        ("mps:0", "float64"),
        ("xpu", "finds no XPU"),
        ("cuda:99", "CUDA devices"),
    ],
)
def test_other_devices_are_refused_in_words(device: str, said: str) -> None:
    with pytest.raises(BadValue, match=said) as refused:
        trained(dp_round(), device)
    assert device in str(refused.value) and "Use cpu" in str(refused.value)


def test_a_device_without_float64_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def zeros(*_: Any, dtype: torch.dtype, device: str) -> torch.Tensor:
        assert (dtype, device) == (torch.float64, "xpu:1")
        raise RuntimeError("Required aspect fp64 is not supported on the device")

    monkeypatch.setattr(torch.xpu, "device_count", lambda: 2)
    monkeypatch.setattr(torch, "zeros", zeros)
    with pytest.raises(BadValue, match="xpu:1.*float64.*aspect fp64"):
        engine._check_device("xpu:1")
