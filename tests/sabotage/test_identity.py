"""Who the clients are, and which run this is: each mistake here once let two releases be counted, or noised, as one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from sfumato import (
    AddNoise,
    Everyone,
    Gaussian,
    Mean,
    Plan,
    Population,
    PostProcess,
    PublicData,
    Records,
    classification,
)
from sfumato.cli import run as command
from sfumato.data import build_population, load
from sfumato.engine.simulate import simulate
from sfumato.engine.simulation import Simulation
from sfumato.errors import BadValue, LedgerError, UnsoundRound
from sfumato.key import Key
from sfumato.ledger.ledger import Ledger
from sfumato.objective import Objective
from sfumato.report.ledgers import guarantees
from tests.helpers import dp_round, linear

CLIENTS = [(torch.full((4, 6), float(number)), torch.arange(4) % 3) for number in range(12)]
PEOPLE = Population.from_list(CLIENTS, name="people", ids=range(12))
LOUD = dp_round(sample=Everyone(), aggregate=Mean(over=12), server=(AddNoise(Gaussian(50.0)),))


def train(
    people: Population = PEOPLE, round: Any = LOUD, module: nn.Module | None = None, **options: Any
) -> Simulation:
    settings = {"rounds": 2, "plan": Plan(), "objective": classification(3), **options}
    simulation = simulate(round, people, module or linear(), **settings)
    for _ in simulation:
        pass
    return simulation


def released(people: Population = PEOPLE, round: Any = LOUD, module: nn.Module | None = None, **options: Any) -> Any:
    """The parameters after the last round."""
    settings = {"rounds": 1, "plan": Plan(), "objective": classification(3), **options}
    return [progress.params for progress in simulate(round, people, module or linear(), **settings)][-1]


def same_noise(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two releases of LOUD differ by what clients say, at most 2/12 together, and not by noise of 50/12 each."""
    return float((one - other).norm()) < 1.0


# Who a ledger's clients are


def test_two_splits_of_one_data_set_are_two_populations(tmp_path: Path) -> None:
    """5.56 was printed where 71.6 is attained: a client's 7 records lie with 7 clients of the other split."""
    digits, book = load("digits"), tmp_path / "shared.sqlite"

    def split(seed: int, records: int = 7) -> Population:
        return build_population(digits, 40, "iid", Key.from_seed(seed).child("split"), records)

    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    options: dict[str, Any] = {"objective": classification(10), "shared_ledger": book, "round": dp_round()}
    train(split(0), module=model, **options)
    for other in (split(1), split(0, records=6)):
        with pytest.raises(LedgerError, match="belongs to the"):
            train(other, module=model, **options)
    train(split(0), module=model, **options)
    assert Ledger(book, None).count == 4


def test_the_commands_second_split_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    monkeypatch.chdir(tmp_path)
    words = [
        "train",
        "--clients",
        "40",
        "--rounds",
        "1",
        "--noise-multiplier",
        "1",
        "--ledger",
        "book.sqlite",
        "--quiet",
    ]
    assert command([*words, "--out", "one"]) == 0
    assert command([*words, "--out", "two", "--split-seed", "1"]) == 2
    said = capfd.readouterr().err
    assert "digits/iid/40x7" in said and "--split-seed" in said
    assert command([*words, "--out", "three"]) == 0


def test_other_ids_are_other_clients_and_other_data_are_not(tmp_path: Path) -> None:
    book = tmp_path / "shared.sqlite"
    train(shared_ledger=book)
    newer = [(x + 1, y) for x, y in CLIENTS]
    train(Population.from_list(newer, name="people", ids=range(12)), shared_ledger=book)
    assert Ledger(book, None).count == 4
    for others in (range(1, 13), map(str, range(12)), reversed(range(12)), None):
        with pytest.raises(LedgerError, match="belongs to the"):
            train(Population.from_list(CLIENTS, name="people", ids=others), shared_ledger=book)


def test_clients_without_ids_are_an_assumption_of_every_guarantee(tmp_path: Path) -> None:
    unnamed = Population.from_list(CLIENTS, name="people")
    known, unknown = tmp_path / "known.sqlite", tmp_path / "unknown.sqlite"
    train(shared_ledger=known)
    train(unnamed, shared_ledger=unknown)
    assert "same clients" not in str(guarantees(Ledger(known, None), 1e-3)["client"]["world"])
    assert "same clients" in str(guarantees(Ledger(unknown, None), 1e-3)["client"]["world"])


def test_a_resumed_run_without_ids_says_so_too(tmp_path: Path) -> None:
    unnamed = Population.from_list(CLIENTS, name="people")
    assert "same clients" not in str(train(unnamed, folder=tmp_path / "a").guarantee(1e-3))
    assert "same clients" in str(train(unnamed, folder=tmp_path / "a", resume=True, rounds=3).guarantee(1e-3))
    train(folder=tmp_path / "b")
    newer = Population.from_list([(x + 1, y) for x, y in CLIENTS], name="people", ids=range(12))
    assert "same clients" not in str(train(newer, folder=tmp_path / "b", resume=True, rounds=3).guarantee(1e-3))
    with pytest.raises(BadValue):
        train(replace(PEOPLE, identity="others"), folder=tmp_path / "b", resume=True, rounds=4)


# Which run this is


def model(activation: nn.Module) -> nn.Module:
    built = nn.Sequential(nn.Linear(6, 5), activation, nn.Linear(5, 3))
    with torch.no_grad():
        for number, parameter in enumerate(built.parameters()):
            parameter.copy_(Key.from_seed(number).normal(*parameter.shape) * 0.1)
    return built


class Scaled(nn.Module):
    """A layer with a public number that no parameter and no `extra_repr` shows."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor


def public(value: float) -> PublicData:
    """Records of which a `repr` leaves out the middle."""
    x = torch.zeros(2000, 6)
    x[1000] = value
    return PublicData("public", Records(x, torch.zeros(2000)))


def pulled(row: torch.Tensor, data: PublicData) -> torch.Tensor:
    return row + data.records.x.mean()


LOSSES = [
    Objective(lambda outputs, y: nn.functional.cross_entropy(outputs, y, reduction="none"), name="mine"),
    Objective(lambda outputs, y: nn.functional.cross_entropy(2 * outputs, y, reduction="none"), name="mine"),
]
UNSEEN = {
    "activation": ({"module": model(nn.ReLU())}, {"module": model(nn.Tanh())}),
    "factor": ({"module": model(Scaled(1.0))}, {"module": model(Scaled(1.5))}),
    "public data": tuple(
        {"round": replace(LOUD, server=(*LOUD.server, PostProcess(pulled, public(n))))} for n in (1.0, 2.0)
    ),
    "lambda": tuple(
        {"round": replace(LOUD, server=(*LOUD.server, PostProcess(function)))}
        for function in (lambda row: row * 1.0, lambda row: row * 1.001)
    ),
    "loss": ({"objective": LOSSES[0]}, {"objective": LOSSES[1]}),
    "data": ({}, {"people": Population.from_list([(x - 9, y) for x, y in CLIENTS], name="people", ids=range(12))}),
}


@pytest.mark.parametrize("what", UNSEEN)
def test_no_two_runs_share_noise_whatever_differs(what: str, tmp_path: Path) -> None:
    """What differs is seen nowhere in what is written of a run, and need not be: noise is drawn anew."""
    one, other = UNSEEN[what]
    book = tmp_path / "shared.sqlite"
    assert not same_noise(released(**one, shared_ledger=book), released(**other, shared_ledger=book))
    assert Ledger(book, None).count == 2


@pytest.mark.parametrize("what", UNSEEN)
def test_a_seed_is_counted_for_one_run_whatever_differs(what: str, tmp_path: Path) -> None:
    """Two simulations with one seed: the second was once taken for the first, with its noise, and cost nothing."""
    one, other = UNSEEN[what]
    options: dict[str, Any] = {"seed": 7, "shared_ledger": tmp_path / "shared.sqlite", "force_ledger": True}
    released(**one, **options)
    with pytest.raises(LedgerError):
        released(**other, **options)
    assert Ledger(tmp_path / "shared.sqlite", None).count == 1


def test_settings_that_are_written_decide_what_a_seed_draws() -> None:
    first = released(seed=7)
    assert torch.equal(first, released(seed=7))
    others: list[dict[str, Any]] = [
        {"description": "other data"},
        {"round": replace(LOUD, client=(*LOUD.client, *LOUD.client))},
        {"module": model(nn.ReLU())},
        {"people": replace(PEOPLE, identity="others")},
        {"seed": 8},
    ]
    assert not any(same_noise(first, released(**{"seed": 7, **other})) for other in others[:2])
    drawn = [released(**{"seed": 7, **other})[:21] for other in others]
    assert len({tuple(one.tolist()) for one in (first, *drawn)}) == 1 + len(others)


BEGINNING = """
import sys
from dataclasses import replace
from tests.sabotage.test_identity import *
"""
RUN = """
processed = replace(LOUD, server=(*LOUD.server, PostProcess(lambda row: row * {factor})))
train(round=processed, folder=sys.argv[1], rounds={rounds}, resume={resume})
"""


def test_a_lambda_resumes_in_the_next_process_and_an_edited_one_is_not_noticed(tmp_path: Path) -> None:
    def child(*runs: dict[str, Any]) -> subprocess.CompletedProcess[str]:
        script = BEGINNING + "".join(RUN.format(**words) for words in runs)
        command = [sys.executable, "-c", script, str(tmp_path / "run")]
        return subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])

    assert child({"factor": 1.0, "rounds": 1, "resume": False}).returncode == 0
    resumed = child({"factor": 1.0, "rounds": 2, "resume": True}, {"factor": 1.5, "rounds": 3, "resume": True})
    assert resumed.returncode == 0, resumed.stderr
    assert Ledger(tmp_path / "run" / "ledger.sqlite", None).count == 3


def test_another_written_round_is_refused(tmp_path: Path) -> None:
    train(folder=tmp_path)
    for other in ({"round": replace(LOUD, server=(AddNoise(Gaussian(49.0)),))}, {"module": model(nn.ReLU())}):
        with pytest.raises(BadValue):
            train(folder=tmp_path, resume=True, rounds=3, **other)
    assert Ledger(tmp_path / "ledger.sqlite", None).count == 2


# The shared ledger of a run


def test_a_run_that_goes_on_tells_its_shared_ledger(tmp_path: Path) -> None:
    book, folder = tmp_path / "shared.sqlite", tmp_path / "run"
    train(folder=folder, shared_ledger=book)
    train(folder=folder, resume=True, rounds=5)
    assert Ledger(book, None).count == Ledger(folder / "ledger.sqlite", None).count == 5


def test_a_shared_ledger_that_is_gone_or_another_is_refused(tmp_path: Path) -> None:
    book, folder = tmp_path / "shared.sqlite", tmp_path / "run"
    train(folder=folder, shared_ledger=book)
    moved = book.rename(tmp_path / "moved.sqlite")
    with pytest.raises(LedgerError, match="is not there. Put it back"):
        train(folder=folder, resume=True, rounds=3)
    assert not book.exists()
    train(shared_ledger=book)
    with pytest.raises(LedgerError, match="another ledger"):
        train(folder=folder, resume=True, rounds=3)
    with pytest.raises(LedgerError, match="another ledger"):
        train(folder=folder, resume=True, rounds=3, shared_ledger=book)
    train(folder=folder, resume=True, rounds=3, shared_ledger=moved)
    train(folder=folder, resume=True, rounds=4)
    assert Ledger(moved, None).count == 4, "the run knows where its ledger is now"


# Copies, forks, and data that change: none of them shares noise


def test_copies_of_a_run_do_not_share_noise(tmp_path: Path) -> None:
    train(folder=tmp_path / "a", rounds=1)
    for name in ("b", "c"):
        shutil.copytree(tmp_path / "a", tmp_path / name)
    options: dict[str, Any] = {"resume": True, "rounds": 2}
    newer = Population.from_list([(x + 1, y) for x, y in CLIENTS], name="people", ids=range(12))
    one, other = released(folder=tmp_path / "a", **options), released(folder=tmp_path / "b", **options)
    third = released(newer, folder=tmp_path / "c", **options)
    assert not (same_noise(one, other) or same_noise(one, third) or same_noise(other, third))


def test_a_list_that_is_changed_in_place_does_not_meet_the_same_noise(tmp_path: Path) -> None:
    clients = [(x.clone(), y) for x, y in CLIENTS]
    people = Population.from_list(clients, name="people", ids=range(12))
    simulation = simulate(LOUD, people, linear(), classification(3), rounds=3, plan=Plan(), folder=tmp_path)
    steps = iter(simulation)
    first = next(steps).params - simulation.start.params
    shutil.copytree(tmp_path, tmp_path / "before")
    second = next(steps).params - first - simulation.start.params
    for x, _ in clients:
        x.mul_(-1.0)
    again = simulate(
        LOUD, people, linear(), classification(3), rounds=3, plan=Plan(), folder=tmp_path / "before", resume=True
    )
    other = next(iter(again)).params - again.start.params
    assert not same_noise(second, other)


def test_a_forked_run_releases_nothing_more(tmp_path: Path) -> None:
    simulation = simulate(LOUD, PEOPLE, linear(), classification(3), rounds=3, plan=Plan(), folder=tmp_path)
    steps = iter(simulation)
    next(steps)
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        try:
            next(steps)
            os.write(writing, b"released")
        except UnsoundRound:
            os.write(writing, b"refused")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 100) == b"refused"
    assert len(list(steps)) == 2 and simulation.ledger.count == 3
