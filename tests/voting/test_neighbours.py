"""The nearest by a slow twin, and how far one record moves what its client answers, by search."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from sfumato import Records
from sfumato.account.event import Unit
from sfumato.errors import BadValue, DataError
from sfumato.voting import nearest as kernel
from sfumato.voting import neighbours
from sfumato.voting.nearest import nearest
from sfumato.voting.neighbours import Neighbours
from sfumato.voting.queries import Queries
from sfumato.voting.votes import Votes
from tests.voting.test_votes import voting


def twin(questions: Tensor, points: Tensor, k: int) -> Tensor:
    """Every pair's distance by itself, then a stable sort."""
    row, number = torch.cartesian_prod(torch.arange(len(questions)), torch.arange(len(points))).T
    pairs = [kernel.pair_distances(questions[i][None].double(), points[j][None].double(), *torch.zeros(2, 1).long())
             for i, j in zip(row, number, strict=True)]  # fmt: skip
    return torch.cat(pairs).view(len(questions), -1).sort(dim=1, stable=True).indices[:, :k]


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


CASES: dict[str, tuple[Tensor, Tensor]] = {
    "random": (normal(1, 9, 7), normal(2, 150, 7)),
    "tied": ((normal(1, 9, 5) > 0).float(), (normal(2, 150, 5) > 0).float()),
    "many tied": ((normal(1, 9, 40) > 0).float(), (normal(2, 150, 40) > 0).float()),
    "duplicated": (normal(1, 9, 7), normal(2, 30, 7).repeat(5, 1)),
    "all the same": (normal(1, 9, 7), normal(2, 1, 7).repeat(150, 1)),
    "questions among the points": (normal(2, 150, 7)[:9], normal(2, 150, 7)),
    "far away": (normal(1, 9, 7) + 1e6, normal(2, 150, 7) + 1e6),
    "far apart": (normal(1, 9, 7), normal(2, 150, 7) + 1e6),
    "nearly tied": (1e-3 * normal(1, 9, 3), torch.nn.functional.normalize(normal(2, 150, 3), dim=1)),
    "one far outlier": (normal(1, 9, 7), torch.cat([normal(2, 149, 7), torch.full((1, 7), 3e38)])),
    "huge": (1e38 * normal(1, 9, 7).clamp(-3, 3), 1e38 * normal(2, 150, 7).clamp(-3, 3)),
    "tiny": (1e-44 * normal(1, 9, 7), 1e-44 * normal(2, 150, 7)),
    "one number": (normal(1, 9, 1), normal(2, 150, 1)),
    "few points": (normal(1, 9, 7), normal(2, 3, 7)),
}


@pytest.mark.parametrize("case", CASES)
def test_the_nearest_are_those_of_the_slow_twin(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    questions, points = CASES[case]
    wanted = twin(questions, points, 40)
    monkeypatch.setattr(kernel, "PARTS", 64)
    for k, scores in ((1, 2**24), (6, 300), (40, 2**24)):
        monkeypatch.setattr(kernel, "SCORES", scores)
        assert torch.equal(nearest(questions, points, k), wanted[:, :k])


def test_without_the_margin_for_roundings_the_twin_finds_it_out(monkeypatch: pytest.MonkeyPatch) -> None:
    questions, points = CASES["many tied"]
    monkeypatch.setattr(kernel, "UNIT", 0.0)
    assert not torch.equal(nearest(questions, points, 6), twin(questions, points, 6))


def test_pair_distances_are_those_of_exact_arithmetic() -> None:
    questions, points = normal(1, 3, 11), normal(2, 3, 11)
    found = kernel.pair_distances(questions.double(), points.double(), torch.arange(3), torch.arange(3))
    for one, question, point in zip(found.tolist(), questions.tolist(), points.tolist(), strict=True):
        exact = sum((Fraction(a) - Fraction(b)) ** 2 for a, b in zip(question, point, strict=True))
        assert abs(Fraction(one) / exact - 1) <= 14 * Fraction(kernel.UNIT)


def test_two_points_stand_alike_whoever_else_is_there() -> None:
    """Points that a product cannot tell apart: taking any others away keeps the order of the rest."""
    questions, points = normal(1, 40, 33), 1e3 + 1e-4 * normal(2, 300, 33)
    order = nearest(questions, points, 300)
    for seed in range(5):
        kept = (normal(seed, 300) > 0.3).nonzero()[:, 0]
        own = kept[nearest(questions[seed:], points[kept], len(kept))]
        for row, all_of_them in zip(own, order[seed:], strict=True):
            assert torch.equal(row, all_of_them[torch.isin(all_of_them, kept)])


def test_matrices_only() -> None:
    with pytest.raises(BadValue, match="finite"):
        nearest(torch.tensor([[math.nan]]), torch.zeros(3, 1), 1)
    with pytest.raises(BadValue, match="questions have 2 numbers and points 1"):
        nearest(torch.zeros(1, 2), torch.zeros(3, 1), 1)


def task(*clients: Records) -> Any:
    return SimpleNamespace(clients=clients, ids=range(7, 7 + len(clients)), faults=None)


def worlds(attributes: int, classes: int) -> Iterator[tuple[Records, Records, Records]]:
    """Client data as they are, with one record replaced, and without it: few places, so that ties abound."""
    generator = torch.Generator().manual_seed(5)

    def records(count: int, places: int) -> Records:
        x = torch.randint(0, places, (count, 1), generator=generator).float()
        x[torch.rand(count, generator=generator) < 0.03] = math.inf
        shape = (count, classes) if attributes else (count,)
        return Records(x, torch.randint(0, 2 if attributes else classes, shape, generator=generator))

    number = torch.arange(classes)
    ends = [(number < attributes).long(), (number >= attributes).long()] if attributes else [number[0], number[-1]]
    for turn, count in itertools.product(range(12), (1, 3, 9, 64)):
        own, other = records(count, 1_000_000 if turn == 0 else 3), records(1, 3)
        if turn % 3 == 0:  # all others agree, and the record does not: the worst case
            same, apart = ends if turn % 2 else ends[::-1]
            own, other = (Records(x, y.expand(len(x), *y.shape)) for x, y in ((own.x, same), (other.x, apart)))
        place = int(torch.randint(0, count, (), generator=generator))
        head, tail = ([part[:place] for part in own], [part[place + 1 :] for part in own])
        replaced = Records(*(torch.cat(parts) for parts in zip(head, other, tail, strict=True)))
        yield own, replaced, Records(*(torch.cat(parts) for parts in zip(head, tail, strict=True)))


def largest(voter: Neighbours, classes: int) -> dict[str, float]:
    """The largest norm, distance of two answers and move by a record that were found, as parts of what is stated."""
    bounds, questions = voter.bounds(classes), torch.tensor([[0.0], [1.0], [2.0]])
    found = torch.stack(
        [voter.ballots(task(*three), questions, classes) for three in worlds(voter.attributes, classes)]
    )
    found, every = found.double(), found.double().flatten(0, 2)
    moved = found - found.roll(1, dims=1)
    return {
        f"{name} L{order}": float(value.norm(order, dim=-1).max()) / stated
        for name, reach, value in (
            ("norm", bounds.norm, every),
            ("apart", bounds.apart, every[:, None] - every[None]),
            ("record", bounds.record, moved),
        )
        for order, stated in ((2, reach.l2), (1, reach.l1))
    }


VOTERS = [(Neighbours(5), 3), (Neighbours(7), 1), (Neighbours(5, attributes=2), 5), (Neighbours(3, attributes=3), 4)]


@pytest.mark.parametrize(("voter", "classes"), VOTERS, ids=str)
def test_no_record_moves_an_answer_farther_than_stated_and_some_move_it_so_far(voter: Neighbours, classes: int) -> None:
    for name, part in largest(voter, classes).items():
        assert 0.99 <= part <= 1 + 1e-12, name


def any_of_those_that_tie(questions: Tensor, points: Tensor, k: int) -> Tensor:
    return torch.cdist(questions, points).topk(min(k, len(points)), 1, largest=False).indices


def ties_by_the_product(questions: Tensor, points: Tensor, k: int) -> Tensor:
    """Ties by how many points there are: no two worlds need agree."""
    order = torch.arange(len(points)).roll(len(points) % 7)
    return order[torch.cdist(questions, points[order]).sort(dim=1, stable=True).indices[:, :k]]


@pytest.mark.parametrize("careless", [any_of_those_that_tie, ties_by_the_product])
def test_the_search_finds_ties_that_depend_on_others(
    careless: Callable[..., Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(neighbours, "nearest", careless)
    assert largest(Neighbours(5), 3)["record L2"] > 1.4


class ByThoseThereAre(Neighbours):
    def answers(self, records: Records, asked: Tensor, classes: int, who: str, faults: Any = None) -> Tensor:
        there = int(records.x.isfinite().all(1).sum())
        return super().answers(records, asked, classes, who, faults) * (self.k / max(1, min(self.k, there)))


class Uncut(Neighbours):
    def _labels(self, y: Tensor, classes: int, who: str) -> Tensor:
        return y.float()


@pytest.mark.parametrize(
    ("careless", "part"),
    [(ByThoseThereAre(5), "record L2"), (Uncut(5, attributes=2), "norm L2")],
    ids=lambda one: type(one).__name__,
)
def test_the_search_finds_careless_voters(careless: Neighbours, part: str) -> None:
    assert largest(careless, 5 if careless.attributes else 3)[part] > 1.2


def test_clients_without_records_vote_nothing() -> None:
    none = Records(torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64))
    broken = Records(torch.tensor([[math.nan, 0.0]]), torch.tensor([1]))
    assert not Neighbours(3).ballots(task(none, broken), torch.zeros(4, 2), 3).any()


def test_what_a_round_of_neighbours_costs() -> None:
    """PRIVACY R10: sqrt(2) / 10 for a record."""
    round = voting(k=10)
    ours = replace(round, local=Votes(Neighbours(10), Queries(None, 500), 10))
    proofs = [one.derive(population=100, dimension=7).units[Unit.RECORD].world for one in (round, ours)]
    assert proofs[0] == proofs[1]


def test_features_see_each_record_alone() -> None:
    """A batch norm would make a record's vector depend on the others'."""
    seen: list[int] = []

    def features(x: Tensor) -> Tensor:
        seen.append(len(x))
        if len(x) > 1:
            raise ValueError("made-up records are tried in a batch too")
        return x - x.mean(0)

    records = Records(normal(1, 6, 2), torch.arange(6))
    found = Neighbours(2, features).ballots(task(records), normal(2, 3, 2), 6)
    assert seen.count(1) >= 9 and torch.equal(found[0].sum(0), torch.tensor([1.5, 1.5, 0, 0, 0, 0]))
    with pytest.raises(BadValue, match="in a batch"):
        Neighbours(2, lambda x: x - x.mean(0)).ballots(task(records), normal(2, 3, 2), 6)


def test_a_module_for_features_is_a_frozen_copy() -> None:
    """In training mode its running mean would carry one client's records to the next."""
    module = torch.nn.Sequential(torch.nn.BatchNorm1d(2), torch.nn.Dropout())
    first = Neighbours(2, module)
    before, x = module[0].running_mean.clone(), normal(1, 6, 2)
    votes = [first.answers(Records(x, torch.arange(6)), x, 6, "client 0") for _ in range(2)]
    assert torch.equal(*votes) and torch.equal(module[0].running_mean, before) and module.training


def test_refusals() -> None:
    for wrong in ({"k": 0}, {"k": True}, {"k": 5, "attributes": -1}):
        with pytest.raises(BadValue):
            Neighbours(**wrong)
    x = torch.zeros(2, 1)
    for voter, y in (
        (Neighbours(5), torch.zeros(2)),
        (Neighbours(5), torch.zeros(2, 3).long()),
        (Neighbours(5, attributes=2), torch.zeros(2).long()),
        (Neighbours(5, attributes=4), torch.zeros(2, 3)),
    ):
        with pytest.raises(BadValue):
            voter.check(3, Records(x, y))
    good = Records(x, torch.zeros(2, dtype=torch.int64))
    with pytest.raises(DataError, match="client 8, record 1: its target does not fit: votes are on 3 classes, 0 to 2"):
        Neighbours(5).ballots(task(good, Records(x, torch.tensor([0, 3]))), x, 3)
    with pytest.raises(
        DataError, match="client 7, record 1: its target does not fit: votes are on 2 attributes, each 0 or 1"
    ):
        Neighbours(5, attributes=1).ballots(task(Records(x, torch.tensor([[0, 1], [0, math.nan]]))), x, 2)
