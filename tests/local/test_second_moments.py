"""Moments that a basis is learnt from: what is stated of a row holds for every client's records, also for the worst."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from sfumato import AddNoise, Everyone, Gaussian, OneHolder, Relation, Round, Sum, Unit
from sfumato.account.event import GaussianEvent
from sfumato.data.population import Records
from sfumato.errors import BadValue
from sfumato.key import Key
from sfumato.local.second_moments import SecondMoments, packed, unpacked
from sfumato.pieces.keep_release import KeepRelease
from tests.helpers import linear

NUMBERS = 5
HUGE = torch.finfo(torch.float32).max


def clients(numbers: int) -> list[Tensor]:
    """Records of single directions, of opposite ones, of all scales, broken ones, random ones, many, and none."""
    eye = torch.eye(numbers)
    broken = torch.full((3, numbers), float("nan"))
    broken[1], broken[2, 0] = float("inf"), -float("inf")
    normal = Key.from_seed(1).normal(40, numbers).float()
    scales = torch.logspace(-44, 38, 40)[:, None]
    found = [eye[:1], -eye[:1], eye[-1:], eye, eye[:1].repeat(9, 1), HUGE * torch.ones(2, numbers), 1e-45 * eye[:1]]
    found += [eye[:1] + 1e-3 * eye[-1:], broken, torch.zeros(2, numbers), normal, normal * scales, normal[:0]]
    return [*found, *(one[None] for one in normal[:6]), torch.cat([eye[:1] * HUGE, broken, normal])]


def rows(piece: SecondMoments, every: list[Tensor]) -> Tensor:
    task: Any = Tasks(torch.zeros(1), [Records(x, torch.zeros(len(x))) for x in every])
    return piece.train(task).double()


@dataclass(frozen=True)
class Tasks:
    """As much of a task as moments need."""

    params: Tensor
    clients: list[Records]


def law(piece: SecondMoments) -> None:
    """No row is longer, no two are further apart, and no record moves one further than is stated."""
    proof = claims(piece)
    every = clients(piece.numbers)
    found = rows(piece, every)
    assert (found.norm(dim=1) <= proof.l2).all(), "a row is too long"
    assert (torch.cdist(found, found) <= proof.apart.l2 * (1 + 1e-7)).all(), "two rows are too far apart"
    for x in every:
        changed = [torch.cat([x, one]) for one in every if len(one) == 1]
        if piece.relation is not Relation.ADD_REMOVE:
            changed = [torch.cat([x[:-1], one]) for one in every if len(one) == 1 and len(x)]
        if changed:
            moved = (rows(piece, changed) - rows(piece, [x])).norm(dim=1)
            assert (moved <= proof.record.l2 * (1 + 1e-4)).all(), "a record moves its row too far"


def claims(piece: SecondMoments) -> Any:
    """The claim before the noise, for records."""
    server = (AddNoise(Gaussian(1.0)),)
    round = Round(Everyone(), piece, Sum(), server=server, optimizer=KeepRelease(), unit=Unit.RECORD)
    return round.derive(population=1, dimension=1).primary.before[-2]


@pytest.mark.parametrize(
    ("records", "relation"), [(0, "replace"), (7, "replace"), (7, "add_remove"), (1, "add_remove")]
)
@pytest.mark.parametrize("numbers", [1, NUMBERS, 40])
def test_what_is_stated_holds(numbers: int, records: int, relation: str) -> None:
    law(SecondMoments(numbers, records, Relation(relation)))


def test_the_bounds_are_reached() -> None:
    eye = torch.eye(2)
    one, two = rows(SecondMoments(2), [eye[:1], eye[1:]])
    assert float(one.norm()) > 1 - 1e-5 and float((one - two).norm()) > math.sqrt(2.0) - 1e-5
    few, more, other = rows(SecondMoments(2, 4, Relation.ADD_REMOVE), [eye[:1], eye[[0, 0]], eye])
    assert float((more - few).norm()) == pytest.approx(1 / 4) and float((more - other).norm()) == pytest.approx(
        math.sqrt(2) / 4
    )


class Unnormalised(SecondMoments):
    """Trusts that records come with norm 1."""

    def _row(self, x: Tensor) -> Tensor:
        return packed(x.T @ x / (self.records or max(len(x), 1)))


class OverTheirNumber(SecondMoments):
    """Divides by how many records there are, where their declared number was meant."""

    def _row(self, x: Tensor) -> Tensor:
        return SecondMoments(self.numbers)._row(x)


class OneTriangle(SecondMoments):
    """Weighs numbers off the diagonal twice, where the norm counts them with a root of 2."""

    def _row(self, x: Tensor) -> Tensor:
        return packed(unpacked(super()._row(x), self.numbers) * (2**0.5 - (2**0.5 - 1) * torch.eye(self.numbers)))


@pytest.mark.parametrize(
    "broken",
    [
        Unnormalised(NUMBERS),
        Unnormalised(NUMBERS, 7),
        OverTheirNumber(NUMBERS, 7, Relation.ADD_REMOVE),
        OneTriangle(NUMBERS),
    ],
    ids=lambda piece: type(piece).__name__,
)
def test_a_piece_that_states_too_little_is_caught(broken: SecondMoments) -> None:
    with pytest.raises(AssertionError):
        law(broken)


def test_the_slow_twin() -> None:
    """A loop over records and coordinates."""
    x = Key.from_seed(4).normal(30, NUMBERS).float() * 17.0
    matrix = torch.zeros(NUMBERS, NUMBERS, dtype=torch.float64)
    for record in x.double():
        unit = record / record.norm()
        for i in range(NUMBERS):
            for j in range(NUMBERS):
                matrix[i, j] += unit[i] * unit[j] / 30
    (row,) = rows(SecondMoments(NUMBERS), [x])
    assert torch.allclose(unpacked(row, NUMBERS), matrix, atol=1e-6) and float(matrix.trace()) == pytest.approx(1.0)
    assert float(packed(matrix).norm()) == pytest.approx(float(matrix.norm()))
    assert torch.allclose(unpacked(packed(matrix), NUMBERS), matrix)


def test_many_records_are_added_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    x = Key.from_seed(4).normal(30, NUMBERS).float()
    whole = rows(SecondMoments(NUMBERS), [x])
    monkeypatch.setattr("sfumato.local.second_moments._AT_ONCE", 7)
    assert torch.allclose(rows(SecondMoments(NUMBERS), [x]), whole, atol=1e-7)


@pytest.mark.parametrize(
    ("unit", "relation", "records", "sensitivity"),
    [
        ("client", "add_remove", 0, 1.0),
        ("client", "zero_out", 0, 1.0),
        ("client", "replace", 0, math.sqrt(2)),
        ("record", "replace", 40, math.sqrt(2) / 40),
        ("record", "add_remove", 40, 1 / 40),
    ],
)
def test_what_a_release_costs(unit: str, relation: str, records: int, sensitivity: float) -> None:
    hides = Unit(unit)
    central = hides is Unit.RECORD
    local = SecondMoments(NUMBERS, records, Relation(relation)) if central else SecondMoments(NUMBERS)
    everyone = Everyone() if central else Everyone(Relation(relation))
    server = (AddNoise(Gaussian(3.0)),)
    more = {"channel": OneHolder()} if central else {}
    round = Round(everyone, local, Sum(), server=server, optimizer=KeepRelease(), unit=hides, **more)
    proof = round.derive(population=1 if central else 50, dimension=1).primary
    assert proof.stddev == 3.0 and proof.sensitivity == pytest.approx(sensitivity)
    assert isinstance(proof.world, GaussianEvent) and proof.world.ratio == pytest.approx(3.0 / sensitivity)
    assert proof.relation is Relation(relation) and proof.server is None
    swapped = proof if proof.swapped is None else proof.swapped
    ratio = 3.0 / math.sqrt(2) * (records or 1)
    assert isinstance(swapped.world, GaussianEvent) and swapped.world.ratio == pytest.approx(ratio)


def test_refusals() -> None:
    for bad in ({"numbers": 0}, {"numbers": 3, "records": -1}, {"numbers": 3, "relation": Relation.ADD_REMOVE}):
        with pytest.raises(BadValue):
            SecondMoments(**bad)  # type: ignore[arg-type]
    for x in (torch.zeros(2, 4), torch.zeros(2, 3, dtype=torch.int64)):
        with pytest.raises(BadValue, match="Declare their own number"):
            SecondMoments(3).check(linear(), lambda outputs, y: y, Records(x, torch.zeros(2)))
