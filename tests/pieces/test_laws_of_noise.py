"""Laws of noise beside the Gaussian: what they draw is what they state, and what they state is not too little."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
import torch
from scipy import stats

from sfumato import (
    AddNoise,
    Clip,
    DpSgd,
    Everyone,
    FixedSize,
    Gaussian,
    Key,
    Laplace,
    Mean,
    Poisson,
    RealisedMean,
    Relation,
    Round,
    SharedMask,
    Staircase,
    Unit,
    UnsoundRound,
    classification,
    simulate,
)
from sfumato.account.event import Event, LaplaceBallEvent, LaplaceEvent, PureEvent, StaircaseBallEvent, StaircaseEvent
from sfumato.account.rdp import rdp_of
from sfumato.claim import Claim, Reach
from sfumato.errors import BadValue
from sfumato.pieces.as_published import PerCoordinateStaircase
from sfumato.pieces.law import Law
from sfumato.pieces.law_names import LAWS, law_named, name_of
from sfumato.pieces.mask import PreviousTopK
from sfumato.pieces.staircase import best_share, levels, moments
from sfumato.testing import check_noise, check_piece, check_records
from tests.helpers import dp_round, linear, made_up_population, staircase_below

ORDERS = np.unique(np.concatenate([np.linspace(1.1, 4.0, 14), np.geomspace(4.5, 200.0, 16)]))
LAWS_HERE = (Laplace(1.0), Laplace(0.5, order=2), Staircase(1.0), Staircase(3.0, nu=0.3))


@pytest.mark.parametrize("law", LAWS_HERE, ids=repr)
def test_what_is_drawn_is_what_is_stated(law: Law) -> None:
    check_noise(AddNoise(law))


@pytest.mark.parametrize(("law", "batch"), [(Laplace(1.0), Poisson(0.3)), (Staircase(1.0), FixedSize(3))], ids=repr)
def test_private_steps_hold_the_laws_with_any_law(law: Laplace | Staircase, batch: Poisson | FixedSize) -> None:
    check_records(DpSgd(steps=2, batch=batch, records=9, law=law, order=law.order), draws=150)


def test_a_clip_of_order_1_holds_the_laws() -> None:
    check_piece(Clip(0.7, order=1))
    rows = torch.randn(5, 3000, generator=Key.from_seed(1).generator()) * 10
    clipped = Clip(0.7, order=1)(rows, _context())
    assert (clipped.double().abs().sum(1) <= 0.7).all() and (clipped.double().abs().sum(1) > 0.69).all()
    claim = Clip(0.7, order=1).carry(Claim(Unit.CLIENT, Relation.ADD_REMOVE, 9, 3000))
    assert (claim.l1, claim.l2) == (0.7, 0.7)
    with pytest.raises(BadValue, match="order=3"):
        Clip(1.0, order=3)


def _context() -> object:
    from sfumato.pieces.context import Context
    from sfumato.update import Layout

    claim = Claim(Unit.CLIENT, Relation.ADD_REMOVE, 9, 3000)
    return Context(0, Layout(("weight",), (torch.Size([3000]),)), claim, Key.from_seed(0))


def draws(law: Staircase, dimension: int, count: int) -> np.ndarray:
    """Noise whose step is 1."""
    stddev = math.sqrt(moments(dimension, law.loss, law.share(dimension))[1] / dimension)
    key = Key.from_seed(dimension)
    return np.stack([law.sample((dimension,), stddev, key.child("n", n=n)).numpy() for n in range(count)])


@pytest.mark.parametrize(("dimension", "multiplier"), [(1, 1.0), (2, 1.4), (3, 0.2), (40, 1.0)])
def test_the_joint_staircase_is_drawn_exactly(dimension: int, multiplier: float) -> None:
    """Its L1 norm against a sum of balls, written from the density; its direction against the simplex; wrong scales fail."""
    law = Staircase(multiplier)
    share, loss = law.share(dimension), law.loss
    drawn = draws(law, dimension, 1500)
    norms = np.abs(drawn).sum(1)
    level = np.arange(int(4 * dimension / loss + 60 / loss) + 5)
    with np.errstate(divide="ignore"):
        logs = dimension * np.log(level + share) - level * loss
    weights = np.exp(logs - logs.max()) / np.exp(logs - logs.max()).sum()

    def below(norm: np.ndarray) -> np.ndarray:
        return (weights * np.minimum(1.0, np.asarray(norm)[:, None] / (level + share)) ** dimension).sum(1)

    assert stats.kstest(norms, below).pvalue > 1e-6
    for wrong in (2 / 3, 3 / 2):
        assert stats.kstest(norms * wrong, below).pvalue < 1e-6
    if dimension > 1:
        part = np.abs(drawn[:, 0]) / norms
        assert stats.kstest(part, stats.beta(1, dimension - 1).cdf).pvalue > 1e-6
        assert abs(np.corrcoef(part, norms)[0, 1]) < 0.15
    assert abs((drawn > 0).mean() - 0.5) < 3.0 / math.sqrt(drawn.size)
    norm, square = moments(dimension, loss, share)
    assert norms.mean() == pytest.approx(norm, rel=0.12)
    assert (drawn**2).sum(1).mean() == pytest.approx(square, rel=0.3)


def test_the_scalar_staircase_is_its_density() -> None:
    """Steps of 1 that fall at nu of each, integrated; and the per-coordinate one is drawn by another formula of the same law."""
    law, other = Staircase(0.7, nu=0.3), PerCoordinateStaircase(0.7)
    key = Key.from_seed(3)
    single = other.sample((4000,), math.sqrt(moments(1, other.loss, other.share)[1]), key).numpy()
    for drawn, loss, nu in ((draws(law, 1, 1500)[:, 0], law.loss, 0.3), (single, other.loss, other.share)):
        below = staircase_below(loss, nu)
        assert stats.kstest(drawn, below).pvalue > 1e-6
        for wrong in (2 / 3, 3 / 2):
            assert stats.kstest(drawn * wrong, below).pvalue < 1e-6


@pytest.mark.parametrize("dimension", [2, 5, 30, 1000])
@pytest.mark.parametrize("loss", [0.05, 1.0, 8.0])
def test_moments_are_sums_over_the_levels_however_they_are_computed(dimension: int, loss: float) -> None:
    share = 0.37
    first, below = levels(dimension, loss, share)
    chances, radius = np.diff(below, prepend=0.0) / below[-1], first + np.arange(len(below)) + share
    norm, square = moments(dimension, loss, share)
    assert norm == pytest.approx(float((chances * radius).sum()) * dimension / (dimension + 1), rel=1e-9)
    exact = float((chances * radius**2).sum()) * 2 * dimension / (dimension + 1) / (dimension + 2)
    assert square == pytest.approx(exact, rel=1e-9)
    best = moments(dimension, loss, best_share(dimension, loss))[1]
    assert best <= min(moments(dimension, loss, float(nu))[1] for nu in np.linspace(0.05, 0.95, 10)) * (1 + 1e-9)


def test_from_a_thousand_coordinates_on_the_staircase_is_laplace() -> None:
    for loss in (0.1, 1.0, 8.0):
        for dimension in (1000, 100_000):
            assert moments(dimension, loss, 0.5)[1] / dimension == pytest.approx(2 / loss**2, rel=1e-8)
    assert 0.0 < best_share(1, 3000.0) < 1e-6 and best_share(1, 1e-9) == pytest.approx(0.5)
    scalar = math.sqrt(moments(1, 8.0, best_share(1, 8.0))[1])
    assert round(scalar, 3) == 0.058 and round(math.sqrt(2) / 8, 3) == 0.177


def numeric(log_density: Callable[[np.ndarray], np.ndarray], points: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """The Renyi divergence of a density on equal cells from the same one moved, at all orders, by adding up the cells."""
    p, q = log_density(points), log_density(points - shift)
    p, q = (part - np.log(np.exp(part - part.max()).sum()) - part.max() for part in (p, q))
    exponent = ORDERS[:, None] * p + (1 - ORDERS[:, None]) * q
    top = exponent.max(1, keepdims=True)
    return (np.log(np.exp(exponent - top).sum(1)) + top[:, 0]) / (ORDERS - 1)


def staircase_density(loss: float, nu: float) -> Callable[[np.ndarray], np.ndarray]:
    def log_density(points: np.ndarray) -> np.ndarray:
        norm = np.abs(points).sum(-1)
        step = np.floor(norm + 1e-9)
        return -loss * np.where(norm - step < nu - 1e-9, step, step + 1)

    return log_density


def test_numeric_divergences_stay_under_the_stated_curves() -> None:
    """On one coordinate and on two, at thirty orders: the staircase against its event, and Laplace in the ball."""
    assert len(ORDERS) == 30
    line = np.arange(-60, 60, 1 / 64)[:, None] + 1 / 128
    for loss, nu in ((1.0, 0.375), (0.5, 0.75)):
        density = staircase_density(loss, nu)
        stated = rdp_of(StaircaseEvent(loss, nu), ORDERS)
        for part in (0.25, 0.5, 1.0):
            assert (numeric(density, line, np.array([part])) <= stated * (1 + 1e-6)).all()
        assert numeric(density, line, np.array([1.0])) == pytest.approx(stated, rel=1e-3)
    side = np.arange(-18, 18, 1 / 16) + 1 / 32
    plane = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    density, stated = staircase_density(1.0, 0.5), rdp_of(PureEvent(1.0), ORDERS)
    for shift in ((1.0, 0.0), (0.5, 0.5), (0.25, -0.75)):
        found = numeric(density, plane, np.array(shift))
        assert (found <= stated).all() and (found > 0.5 * stated).all()

    def laplace(points: np.ndarray) -> np.ndarray:
        return -np.abs(points).sum(-1)

    ball = rdp_of(LaplaceBallEvent(1.0, 2), ORDERS)
    for angle in (0.0, 0.4, math.pi / 4):
        found = numeric(laplace, plane, np.array([math.cos(angle), math.sin(angle)]))
        assert (found <= ball * (1 + 1e-2)).all()
    assert found == pytest.approx(ball, rel=1e-2)


def test_laplace_in_the_ball_is_worst_where_the_distance_is_shared_out_equally() -> None:
    for dimension, ratio in ((2, 0.3), (7, 1.0), (50, 4.0)):
        stated = rdp_of(LaplaceBallEvent(ratio, dimension), ORDERS)
        for n in range(20):
            way = np.abs(Key.from_seed(n).normal(dimension).numpy()) ** 1.5
            way = way / np.linalg.norm(way) / ratio
            assert (sum(rdp_of(LaplaceEvent(1 / size), ORDERS) for size in way) <= stated * (1 + 1e-9)).all()
        assert (stated <= ORDERS / (2 * ratio**2) * (1 + 1e-12)).all()


def test_a_staircase_on_each_coordinate_would_break_what_the_joint_one_states() -> None:
    """The laws see it: two coordinates by themselves cost more than one pure epsilon, and more with every further one."""
    side = np.arange(-18, 18, 1 / 16) + 1 / 32
    plane = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    one = staircase_density(1.0, 0.5)

    def apart(points: np.ndarray) -> np.ndarray:
        return one(points[:, :1]) + one(points[:, 1:])

    found = numeric(apart, plane, np.array([0.5, 0.5]))
    assert (found > rdp_of(PureEvent(1.0), ORDERS)).any()
    root = numeric(apart, plane, np.array([math.sqrt(0.5), math.sqrt(0.5)]))
    assert root == pytest.approx(rdp_of(StaircaseBallEvent(1.0, 1.0, 0.5, 2), ORDERS), rel=0.08)
    many = rdp_of(StaircaseBallEvent(1.0, 1.0, 0.3775, 10_000), np.array([8.0]))
    assert many[0] == pytest.approx(3.3e3, rel=0.02)


def test_where_a_coordinate_can_move_by_more_than_a_step_the_equal_split_need_not_be_the_worst() -> None:
    """Every split of the move over few coordinates, by exact integration over the steps, also beyond one."""

    def apart(loss: float, nu: float, shift: float, orders: np.ndarray) -> np.ndarray:
        falls = np.arange(math.ceil(30 / loss)) + nu
        cuts = np.unique(np.concatenate([side + away for side in (-falls, falls) for away in (0.0, shift)]))
        middle, width = (cuts[1:] + cuts[:-1]) / 2, np.diff(cuts)
        here, there = (-loss * np.searchsorted(falls, np.abs(place), "right") for place in (middle, middle - shift))
        log_p, log_q = (level - np.log((np.exp(level) * width).sum()) for level in (here, there))
        weight = np.log(width) + log_q + np.multiply.outer(orders, log_p - log_q)
        return np.asarray(np.log(np.exp(weight - weight.max(1)[:, None]).sum(1)) + weight.max(1)) / (orders - 1)

    orders, equal_is_worst = np.array([1.1, 2.0, 8.0, 64.0]), 0
    for loss, nu, ratio, dimension in product((0.2, 2.0), (0.3, 0.475), (1.0, 0.5, 0.3), (16, 100)):
        most = 1 / ratio
        stated = rdp_of(StaircaseBallEvent(ratio, loss, nu, dimension), orders)
        for far, many in product(np.linspace(0.9, most, 6), (1, 2, 3)):
            rest = most**2 - many * far**2
            if rest >= 0:
                others = apart(loss, nu, math.sqrt(rest / (dimension - many)), orders) if rest > 1e-9 else 0.0
                found = many * apart(loss, nu, float(far), orders) + (dimension - many) * others
                assert (found <= stated * (1 + 1e-6)).all(), (loss, nu, ratio, dimension, far, many)
        equal = dimension * apart(loss, nu, most / math.sqrt(dimension), orders)
        equal_is_worst += int(np.isclose(equal, stated, rtol=1e-5).sum())
    assert equal_is_worst >= 32  # of 96, a third of them within one step: the bound is not loose where it need not be


def train(round: Round) -> None:
    people = made_up_population([5, 3, 4])
    list(simulate(round, people, linear(), classification(3), rounds=1, seed=0))


def event_of(round: Round, dimension: int, population: int = 100) -> Event:
    return round.derive(population=population, dimension=dimension).primary.world


def test_a_reach_of_so_many_steps_costs_so_many_losses() -> None:
    law, claim = Staircase(2.0), Claim(Unit.CLIENT, Relation.ADD_REMOVE, 9, 50).clipped(0.3, 1)
    stddev = law.stddev(claim)
    for factor, falls in ((1.0, 1), (2.0, 2), (1.5, 2), (2.5, 3), (0.1, 1)):
        reach = Reach(0.3 * factor, 0.3 * factor, 50)
        assert law.event(stddev, reach) == PureEvent(falls * 0.5)
    assert Staircase(2.0).event(law.stddev(claim), claim.row) == PureEvent(0.5)
    one = Claim(Unit.CLIENT, Relation.ADD_REMOVE, 9, 1).clipped(0.3, 1)
    assert law.event(law.stddev(one), one.row) == StaircaseEvent(0.5, best_share(1, 0.5))
    assert law.event(law.stddev(one), one.rows_apart) == PureEvent(1.0)
    for unknown in (law, Laplace(1.0, order=2)):
        with pytest.raises(UnsoundRound, match="number of coordinates"):
            unknown.event(1.0, Reach(0.3, 0.3))
    scaled = one.scaled(1 / 7.0)
    assert law.event(law.stddev(scaled), scaled.row) == StaircaseEvent(0.5, best_share(1, 0.5))


def test_a_round_states_the_dimension_that_its_noise_is_drawn_in() -> None:
    ball, stair = (
        dp_round(client=(Clip(1.0),), server=(AddNoise(law),)) for law in (Laplace(2.0, order=2), Staircase(2.0))
    )
    in_ball, in_line = event_of(ball, 77), event_of(ball, 1)
    assert in_ball.to_json()["event"] == {"type": "LaplaceBallEvent", "ratio": pytest.approx(2.0), "dimension": 77}
    assert in_line.to_json()["event"] == {"type": "LaplaceEvent", "ratio": pytest.approx(2.0)}
    assert event_of(stair, 77).parts() == (PureEvent(0.5),), "an L2 clip bounds the L1 norm by sqrt(d) times it"
    masked = dp_round(client=(SharedMask(0.5), Clip(1.0)), server=(AddNoise(Laplace(2.0, order=2)),))
    assert event_of(masked, 40).to_json()["event"]["dimension"] == 20
    train(dp_round(client=(SharedMask(0.5), Clip(1.0, order=1)), server=(AddNoise(Staircase(1.0)),)))
    previous = dp_round(client=(SharedMask(0.5, PreviousTopK()), Clip(1.0)), server=(AddNoise(Laplace(1.0, order=2)),))
    with pytest.raises(UnsoundRound, match="coordinates"):
        train(previous)


@pytest.mark.parametrize("name", [name for name in LAWS if name != "gaussian"])
def test_what_has_no_proof_is_refused_when_the_round_is_built(name: str) -> None:
    law, order = law_named(name, 2.0)
    for sampler in (Poisson(0.2, Relation.REPLACE), FixedSize(20, Relation.ADD_REMOVE)):
        with pytest.raises(UnsoundRound, match="no proof"):
            Round(
                sample=sampler,
                local=dp_round().local,
                client=(Clip(1.0, order),),
                aggregate=Mean(2.0),
                server=(AddNoise(law),),
            )
        local = DpSgd(2, sampler, 50, law=law, order=order)
        with pytest.raises(UnsoundRound, match="no proof"):
            Round(sample=Everyone(), local=local, aggregate=RealisedMean(), unit=Unit.RECORD)
    for sampler in (Poisson(0.2), FixedSize(20), Poisson(1.0, Relation.REPLACE), Everyone(Relation.REPLACE)):
        Round(
            sample=sampler,
            local=dp_round().local,
            client=(Clip(1.0, order),),
            aggregate=Mean(2.0),
            server=(AddNoise(law),),
        )


def test_laws_by_name() -> None:
    for name in LAWS:
        law, order = law_named(name, 1.5)
        assert (law.noise_multiplier, law.order) == (1.5, order) and name_of(law) == name
        assert law.with_noise(3.0) == law_named(name, 3.0)[0]
    with pytest.raises(BadValue, match="laplace"):
        law_named("laplce", 1.0)
    wrong: list[Callable[[], Law]] = [
        lambda: Laplace(1.0, order=3),
        lambda: Staircase(1.0, nu=0.0),
        lambda: Staircase(0.0),
    ]
    for make in (*wrong, lambda: Gaussian(math.nan)):
        with pytest.raises(BadValue):
            make()
