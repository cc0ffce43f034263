"""Where clients' numbers decide something, whoever is missing moves all others, which no noise hides: guarantees say so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch import nn

from sfumato import (
    AddNoise,
    DpSgd,
    Everyone,
    Gaussian,
    HelperBlend,
    Mean,
    Median,
    PerClient,
    Poisson,
    Population,
    PublicData,
    Queries,
    Records,
    Ridge,
    Round,
    Sgd,
    Student,
    Sum,
    Teacher,
    Unit,
    Votes,
    classification,
    simulate,
)  # fmt: skip
from sfumato.pieces.connectivity import MeanThenPublic, ModeConnectivity
from sfumato.pieces.of_messages import GeometricMedian, TowardWeakest, TrimmedMean
from tests.helpers import dp_round

CLIENTS, SAID = 6, "settings go by their numbers"
PUBLIC = PublicData("asked", Records(torch.rand(20, 1), torch.zeros(20, dtype=torch.int64)))
X, Y = torch.rand(3, 1), torch.tensor([0, 1, 1])
OWN = PerClient(Sgd(lr=0.1, epochs=1), {1: Sgd(lr=0.2, epochs=1)})


def frame() -> Population:
    rows = [(f"client {number}", float(x), int(y)) for number in range(CLIENTS) for x, y in zip(X, Y, strict=True)]
    table = pd.DataFrame(rows, columns=["who", "a", "y"])
    return Population.from_dataframe(table, client="who", target="y", classes=2, clients=CLIENTS)


def folder() -> Population:
    Path("people").mkdir()
    for number in range(CLIENTS):
        torch.save({"x": X, "y": Y}, f"people/{number}.pt")
    return Population.from_folder("people")


def listed() -> Population:
    return Population.from_list([(X, Y)] * CLIENTS, ids=range(CLIENTS))


def numbered() -> Population:
    """A number means the same person whoever else is there."""
    return Population.from_function(lambda _: (X, Y), CLIENTS)


def votes(module: Any) -> Round:
    asked = Votes(Teacher(Sgd(lr=0.1, epochs=1), module=module), Queries(PUBLIC, 5), classes=2)
    return Round(Everyone(), asked, Sum(), server=(AddNoise(Gaussian(5.0)),), optimizer=Student(asked.queries, Ridge()))


def of_messages(aggregate: Any) -> Round:
    local = DpSgd(steps=1, batch=Poisson(0.5), records=3, law=Gaussian(2.0))
    return Round(Everyone(), local, aggregate, unit=Unit.RECORD)


CLIENT_LEVEL: dict[str, tuple[Round, bool]] = {
    "all alike": (dp_round(sample=Everyone()), False),
    "training of their own": (dp_round(sample=Everyone(), local=OWN), True),
    "helpers": (dp_round(sample=Everyone(), personal=HelperBlend(0.1, own=((0, 0.5),))), True),
    "helpers alike": (dp_round(sample=Everyone(), personal=HelperBlend(0.1)), False),
    "teachers": (votes(["logistic", "mlp"]), True),
    "teachers alike": (votes("logistic"), False),
    "teachers by name": (votes({0: "mlp", None: "logistic"}), True),
}
RECORD_LEVEL: dict[str, tuple[Round, bool]] = {
    "mean": (of_messages(Mean(over=CLIENTS)), False),
    "pairs": (of_messages(ModeConnectivity(PUBLIC, steps=1)), True),
    "budgets": (of_messages(TowardWeakest(Median(), {0: 1.0}, default=2.0)), True),
    "median": (of_messages(Median()), False),
    "trimmed": (of_messages(TrimmedMean()), False),
    "geometric": (of_messages(GeometricMedian()), False),
    "control": (of_messages(MeanThenPublic(PUBLIC, steps=1)), False),
}


def said(round: Round, population: Population, server: bool = False) -> bool:
    *_, last = simulate(round, population, nn.Linear(1, 2), classification(2), rounds=1, seed=0)
    return SAID in str(last.guarantee(1e-3, server=server))


@pytest.mark.parametrize("source", [frame, folder, listed])
@pytest.mark.parametrize(("round", "matters"), CLIENT_LEVEL.values(), ids=CLIENT_LEVEL)
def test_whoever_is_missing_is_told_where_numbers_matter(
    round: Round, matters: bool, source: Callable[[], Population], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert said(round, source()) == matters
    assert not said(round, numbered())


@pytest.mark.parametrize(("round", "matters"), RECORD_LEVEL.values(), ids=RECORD_LEVEL)
def test_a_clients_only_record_is_told_where_rows_number_the_clients(round: Round, matters: bool) -> None:
    """In a list a client stays where it is when it loses a record; in a table it is gone with its last one."""
    assert said(round, frame()) == matters
    assert not said(round, listed())


def test_an_aggregate_of_ones_own_may_go_by_number() -> None:
    class Last(Median):
        by_number = True

    assert said(of_messages(Last()), frame())


def test_budgets_of_a_folder_make_its_files_public(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert any(SAID in one for one in folder().with_public_ids().caution("client"))
    assert numbered().with_public_ids().caution("client") == ()
