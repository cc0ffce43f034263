"""Rows on a grid, exact sums and exact noise: what they state holds to the last bit, and every way around it is refused."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest
import torch

import sfumato
from sfumato import (
    AdaptiveClip,
    AddNoise,
    Clip,
    ClipPerLayer,
    DiscreteGaussian,
    Divide,
    Everyone,
    FixedSize,
    Gaussian,
    Grid,
    LaplacianSmoothing,
    Mean,
    NoiseShare,
    Poisson,
    Relation,
    Round,
    RoundedGaussian,
    SecureSum,
    SharedMask,
    Sum,
    TopK,
    Unit,
    UnsoundRound,
    WeightByExamples,
    secure,
)  # fmt: skip
from sfumato.claim import Claim, text
from sfumato.derive import pieces
from sfumato.engine.slots import Slots
from sfumato.errors import BadValue
from sfumato.key import Key
from sfumato.pieces.context import Context
from sfumato.pieces.law import Laplace
from sfumato.pieces.protocol import ClientPiece
from sfumato.recipes import build
from sfumato.testing import check_noise, check_piece
from sfumato.testing.piece import claim_for, context_for, layout_for, nasty_rows
from tests.attacks.semantics import Chosen
from tests.helpers import dp_round

ARITHMETIC = "exact real-number arithmetic (floating point is not covered)"
SHARES = secure(build("dp-fedavg-shares", 100, {}))


def steps(values: torch.Tensor, step: float) -> list[int]:
    """The values as whole numbers, in Python's own."""
    found = [value / step for value in values.double().tolist()]
    assert all(value == int(value) for value in found)
    return [int(value) for value in found]


@pytest.mark.parametrize("l2", [0.3, 0.5, 1.0, 7e5])
@pytest.mark.parametrize("bits", [1, 12, 20, 21])
def test_the_grid_holds_the_laws(l2: float, bits: int) -> None:
    check_piece(Grid(bits), l2=l2)


@pytest.mark.parametrize("piece", [TopK(0.5), SharedMask(0.5), Grid(12)], ids=text)
def test_pieces_that_say_so_keep_to_a_grid(piece: Any) -> None:
    assert piece.keeps_grid
    check_piece(piece, l2=0.5, grid=2.0**-13, dimensions=(7, 1000))


@pytest.mark.parametrize("dimension", [1, 3, 1000])
def test_the_norm_of_a_row_holds_in_whole_numbers(dimension: int) -> None:
    """No float is asked: the sum of the squares, as Python's whole numbers, is at most that of the norm in steps."""
    claim = Clip(0.7).carry(claim_for(dimension))
    rows = torch.cat([nasty_rows(dimension), 30 * Key.from_seed(1).normal(200, dimension).float()])
    clipped = Clip(0.7)(rows, context_for(rows, claim_for(dimension)))
    cut = Grid()(clipped, context_for(clipped, claim))
    step = Grid().carry(claim).grid
    assert step is not None
    assert step == 2.0**-21 and math.log2(step) == int(math.log2(step))
    most = (0.7 / step) ** 2
    for row in cut:
        assert sum(number * number for number in steps(row, step)) <= most


class Nearest(Grid):
    """Rounds to the nearest step."""

    def __call__(self, rows: torch.Tensor, context: Context) -> torch.Tensor:
        step = self.carry(context.claim).grid
        return torch.round(rows / step) * step


class Halves(ClientPiece):
    """Says that it keeps to the grid, and does not."""

    keeps_grid: ClassVar[bool] = True

    def __call__(self, rows: torch.Tensor, context: Context) -> torch.Tensor:
        return rows * 0.5

    def carry(self, claim: Claim) -> Claim:
        return claim.scaled(0.5)


def test_a_grid_that_rounds_to_the_nearest_is_caught() -> None:
    with pytest.raises(AssertionError, match="states L2 norm"):
        check_piece(Nearest(12), l2=0.5)


def test_a_piece_that_leaves_the_grid_and_does_not_say_so_is_caught() -> None:
    with pytest.raises(AssertionError, match="leaves the grid"):
        check_piece(Halves(), l2=0.5, grid=2.0**-13)


def test_a_long_row_loses_less_than_a_thousandth() -> None:
    """At 1.69 million coordinates 2^-20 of the norm is .0007 of a row: a third of a step squared on each coordinate."""
    row = Key.from_seed(0).normal(1, 1_690_046).float()
    clipped = Clip(1.0)(row, context_for(row, claim_for(row.shape[1])))
    cut = Grid()(clipped, context_for(clipped, Clip(1.0).carry(claim_for(row.shape[1]))))
    lost = float((clipped - cut).norm() / clipped.norm())
    assert 0.00065 < lost < 0.00075
    assert float(cut.norm()) < float(clipped.norm())


@pytest.mark.parametrize("law", [RoundedGaussian(1.0), RoundedGaussian(0.3), DiscreteGaussian(20.0)], ids=text)
def test_exact_noise_holds_the_laws(law: Any) -> None:
    if isinstance(law, DiscreteGaussian):
        drawn = law.sample((20_000,), 3.0, Key.from_seed(0))
        assert abs(float(drawn.var()) / 9.0 - 1.0) < 0.06
    else:
        check_noise(AddNoise(law), grid=2.0**-22)


@dataclass(frozen=True)
class TwoThirds(RoundedGaussian):
    """Draws less than it states."""

    def sample(self, shape: tuple[int, ...], stddev: float, key: Key) -> torch.Tensor:
        return RoundedGaussian(1.0).sample(shape, stddev * 2 / 3, key)


@dataclass(frozen=True)
class Unrounded(RoundedGaussian):
    """The Gaussian itself, which is no whole number."""

    def sample(self, shape: tuple[int, ...], stddev: float, key: Key) -> torch.Tensor:
        return key.normal(*shape, stddev=stddev)


@pytest.mark.parametrize(("law", "why"), [(TwoThirds(1.0), "is stated"), (Unrounded(1.0), "leaves the grid")])
def test_noise_that_is_not_what_it_states_is_caught(law: Any, why: str) -> None:
    with pytest.raises(AssertionError, match=why):
        check_noise(AddNoise(law), grid=2.0**-22)


def exact_round(**changed: Any) -> Round:
    slots: dict[str, Any] = {
        "client": (Clip(1.0), Grid()),
        "aggregate": Sum(),
        "server": (AddNoise(RoundedGaussian(1.0)), Divide(5.0)),
    }
    return dp_round(**{**slots, **changed})


@pytest.mark.parametrize(
    "changed",
    [
        {"client": (Clip(1.0),)},
        {"client": (Clip(1.0), Grid(), Clip(0.5))},
        {"client": (Clip(1.0), Grid(), ClipPerLayer((0.5,)))},
        {"client": (Clip(1.0), Grid(), AdaptiveClip())},
        {"client": (Clip(1.0), Grid(), WeightByExamples(cap=3))},
        {"client": (Clip(1.0), Grid(), Halves())},
        {"aggregate": Mean(over=5)},
        {"aggregate": Mean(over=1)},
        {"server": (Divide(5.0), AddNoise(RoundedGaussian(1.0)))},
        {"server": (LaplacianSmoothing(1.0), AddNoise(RoundedGaussian(1.0)))},
    ],
)
def test_exact_noise_is_refused_on_what_does_not_lie_on_a_grid(changed: dict[str, Any]) -> None:
    if isinstance(changed.get("client", (None,))[-1], Halves):
        Halves.keeps_grid = False  # as a piece that says nothing of a grid has it
    try:
        with pytest.raises(UnsoundRound, match="lies on none"):
            exact_round(**changed)
    finally:
        Halves.keeps_grid = True


def test_a_grid_needs_a_bound_and_room_for_the_sum() -> None:
    with pytest.raises(UnsoundRound, match="before anything bounds a row"):
        exact_round(client=(Grid(), Clip(1.0)))
    with pytest.raises(UnsoundRound, match="2\\^52 steps"):
        exact_round(client=(Clip(1.99), Grid(21))).derive(population=2**31, dimension=5)
    for bits in (0, 22):
        with pytest.raises(BadValue, match="from 1 to 21"):
            Grid(bits)


def test_rounded_noise_is_not_shared_out() -> None:
    shares = NoiseShare(RoundedGaussian(1.0), 2)
    with pytest.raises(UnsoundRound, match="no rounded Gaussian"):
        exact_round(sample=FixedSize(3), client=(Clip(1.0), Grid(), shares), channel=SecureSum(), server=(Divide(5.0),))


def test_only_exact_noise_drops_the_assumption() -> None:
    def assumed(round: Round) -> tuple[str, ...]:
        return round.derive(population=100, dimension=10).primary.assumptions

    assert ARITHMETIC not in assumed(exact_round())
    assert ARITHMETIC not in assumed(SHARES)
    assert ARITHMETIC in assumed(exact_round(server=(AddNoise(Gaussian(1.0)), Divide(5.0))))


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"sample": Poisson(0.3, Relation.REPLACE)},
        {"sample": FixedSize(3)},
        {"sample": FixedSize(3, Relation.ADD_REMOVE)},
        {"sample": Everyone()},
        {"sample": Poisson(0.5, Relation.REPLACE), "client": (Clip(1.0), AddNoise(Gaussian(2.0))), "server": ()},
        {"client": (SharedMask(0.5), Clip(1.0))},
        {"client": (AdaptiveClip(0.3),)},
        {"client": (Clip(1.0), WeightByExamples(cap=4)), "server": (AddNoise(Gaussian(1.0)), LaplacianSmoothing(1.0))},
    ],
    ids=str,
)
def test_the_secure_round_costs_what_the_round_costs(changed: dict[str, Any]) -> None:
    """Every unit and view: the rounded Gaussian is post-processing, so nothing is added and nothing is saved."""
    round = dp_round(**changed)
    before, after = (one.derive(population=100, dimension=10) for one in (round, secure(round)))
    for unit in Unit:
        one, other = before.units[unit], after.units[unit]
        assert (one.world, one.server, one.chooser, one.relation) == (
            other.world,
            other.server,
            other.chooser,
            other.relation,
        )
        assert set(one.assumptions) - set(other.assumptions) == {ARITHMETIC}


def test_the_secure_round_reads_back_from_its_text() -> None:
    names = {name: getattr(sfumato, name) for name in sfumato.__all__}
    for round in (secure(dp_round()), SHARES):
        assert eval(text(round), names) == round


@pytest.mark.parametrize(
    ("round", "why"),
    [
        (dp_round(nonprivate=True), "proves nothing"),
        (secure(dp_round()), "exact already"),
        (dp_round(server=(AddNoise(Laplace(1.0)),)), "other noise"),
        (dp_round(server=(LaplacianSmoothing(1.0), AddNoise(Gaussian(1.0)))), "lies on none"),
    ],
)
def test_what_cannot_be_secure_is_refused_with_the_reason(round: Round, why: str) -> None:
    with pytest.raises((UnsoundRound, BadValue), match=why):
        secure(round)


def slots_of(round: Round, population: int, dimension: int) -> Slots:
    proof = round.derive(population=population, dimension=dimension).primary
    return Slots(round, proof, layout_for(dimension))


def grid_of(round: Round, slots: Slots) -> float:
    found = [
        claim.grid for (slot, _), claim in zip(pieces(round), slots.proof.before, strict=True) if slot == "channel"
    ]
    assert found[0] is not None
    return found[0]


@pytest.mark.parametrize(
    "round", [secure(dp_round(local=Chosen())), replace(SHARES, local=Chosen())], ids=["server", "shares"]
)
def test_sums_of_messages_are_exact_in_any_order(round: Round) -> None:
    """Against whole numbers of Python; a sum in float32 is not, so the test can fail."""
    dimension, clients = 5, 60
    slots = slots_of(round, 100, dimension)
    opening, step = slots.open(0, Key.from_seed(0)), grid_of(round, slots)
    rows = Key.from_seed(1).normal(clients, dimension).float().abs()
    sizes = torch.ones(clients, dtype=torch.int64)
    messages = slots.messages(
        rows, sizes, [Key.from_seed(2).child("client", id=one) for one in range(clients)], opening, range(clients)
    )
    total, _ = slots.weighted_sum(messages, sizes)
    whole = [sum(column) for column in zip(*(steps(message, step) for message in messages), strict=True)]
    assert steps(total, step) == whole
    shuffled = torch.from_numpy(Key.from_seed(3).permutations(1, clients)[0])
    assert torch.equal(slots.weighted_sum(messages[shuffled], sizes)[0], total)
    halves = [slots.weighted_sum(some, sizes[: len(some)])[0].double() for some in messages.split(7)]
    assert torch.equal(torch.stack(halves[::-1]).sum(0), total)
    narrow = torch.zeros(dimension)
    for message in messages:
        narrow += message.float()
    assert not torch.equal(narrow.double(), total)


def test_what_is_released_is_the_sum_and_the_noise_divided_once() -> None:
    round = secure(dp_round(local=Chosen()))
    slots = slots_of(round, 100, 6)
    total = 2.0**-20 * torch.arange(6.0, dtype=torch.float64)
    claim = replace(claim_for(6), aggregated=True, grid=2.0**-20).bounded(l2=1.0)
    noisy = AddNoise(RoundedGaussian(1.0))(total, Context(0, slots.layout, claim, Key.from_seed(4)))
    noise = RoundedGaussian(1.0).sample((6,), 2.0**20, Key.from_seed(4))
    assert steps(noisy, 2.0**-20) == [int(one) + place for place, one in enumerate(noise.tolist())]
    assert isinstance(round.server[1], Divide) and round.server[1].over == 5
