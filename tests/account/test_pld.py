"""The fast accountant against slow twins: dp-accounting on a fine grid, and exact sums and integrals."""

from __future__ import annotations

import math
from itertools import pairwise, product

import numpy as np
import pytest
from dp_accounting import NeighboringRelation
from dp_accounting.pld import privacy_loss_distribution as oracle
from scipy.integrate import quad
from scipy.special import ndtr

from sfumato.account import accountant
from sfumato.account.dominating import pair_of
from sfumato.account.event import (
    Composed,
    Event,
    FixedSizeSampled,
    GaussianEvent,
    LaplaceEvent,
    Mixture,
    PoissonSampled,
    Relation,
    Repeated,
)
from sfumato.account.gdp import gdp_delta, gdp_tradeoff
from sfumato.account.loss_grid import grid
from sfumato.account.pairs import Reversed
from sfumato.account.pld import Pld
from sfumato.errors import CannotAccount

from .twins import sampled_tradeoff

PLD = accountant("pld")


@pytest.mark.parametrize(
    ("rate", "ratio", "times", "delta"),
    [(0.05, 1.0, 200, 1e-5), (0.5, 2.0, 30, 1e-6), (0.01, 0.6, 500, 1e-4), (0.2, 5.0, 1000, 1e-8), (0.9, 1.5, 3, 1e-5)],
)
@pytest.mark.parametrize("law", ["gaussian", "gaussian replace", "laplace"])
def test_poisson_agrees_with_dp_accounting(law: str, rate: float, ratio: float, times: int, delta: float) -> None:
    options = {"sampling_prob": rate, "value_discretization_interval": 2e-4}
    if law == "gaussian":
        event, slow = PoissonSampled(rate, GaussianEvent(ratio)), oracle.from_gaussian_mechanism(ratio, **options)
    elif law == "laplace":
        event, slow = PoissonSampled(rate, LaplaceEvent(ratio)), oracle.from_laplace_mechanism(ratio, **options)
    else:
        swap = NeighboringRelation.REPLACE_ONE
        event = PoissonSampled(rate, GaussianEvent(ratio / 2), Relation.REPLACE)
        slow = oracle.from_gaussian_mechanism(ratio, neighboring_relation=swap, **options)
    expected = slow.self_compose(times).get_epsilon_for_delta(delta)
    assert PLD.epsilon(Repeated(event, times), delta) == pytest.approx(expected, rel=5e-4)


def test_a_mixture_and_a_composition_agree_with_dp_accounting() -> None:
    options = {"value_discretization_interval": 1e-4}
    sampled = oracle.from_gaussian_mechanism(1.0, sampling_prob=0.1, **options)
    part = sampled.self_compose(5).compute_mixture(oracle.identity(**options), 0.3).self_compose(20)
    other = oracle.from_laplace_mechanism(10.0, **options).self_compose(10)
    expected = part.compose(other).get_epsilon_for_delta(1e-5)
    steps = Repeated(PoissonSampled(0.1, GaussianEvent(1.0)), 5)
    event = Composed((Repeated(Mixture(0.3, steps), 20), Repeated(LaplaceEvent(10.0), 10)))
    assert PLD.epsilon(event, 1e-5) == pytest.approx(expected, rel=5e-4)


def sampled_gaussian_delta(rate: float, ratio: float, epsilon: float) -> float:
    """max over both directions of the integral of (p - e^epsilon q)+."""

    def density(x: float, centre: float) -> float:
        return math.exp(-(((x - centre) / ratio) ** 2) / 2) / (ratio * math.sqrt(2 * math.pi))

    def gap(x: float, forward: bool) -> float:
        p, q = (1 - rate) * density(x, 0) + rate * density(x, 1), density(x, 0)
        return max(0.0, p - math.exp(epsilon) * q if forward else q - math.exp(epsilon) * p)

    edges = np.linspace(-10 * ratio, 1 + 10 * ratio, 200)
    return max(
        sum(quad(gap, a, b, args=(forward,), epsabs=1e-14)[0] for a, b in pairwise(edges)) for forward in (True, False)
    )


@pytest.mark.parametrize(("rate", "ratio", "epsilon"), [(0.1, 1.0, 0.2), (0.5, 2.0, 0.1), (0.02, 0.7, 0.5)])
def test_one_step_is_the_integral(rate: float, ratio: float, epsilon: float) -> None:
    event = PoissonSampled(rate, GaussianEvent(ratio))
    exact = sampled_gaussian_delta(rate, ratio, epsilon)
    assert exact * (1 - 1e-7) <= PLD.delta(event, epsilon) <= exact * (1 + 1e-3)


@pytest.mark.parametrize(("ratio", "times", "delta"), list(product([1.0, 4.0], [1, 7, 300], [1e-2, 1e-6, 1e-30])))
def test_gaussians_reach_the_closed_form_from_above(ratio: float, times: int, delta: float) -> None:
    event = Repeated(GaussianEvent(ratio), times)
    exact = accountant("gdp").epsilon(event, delta)
    one_by_one = Composed((Repeated(GaussianEvent(ratio), times), Mixture(1.0, GaussianEvent(1e6))))
    assert exact * (1 - 1e-9) <= PLD.epsilon(event, delta) <= exact * (1 + 2e-4)
    assert exact * (1 - 1e-9) <= PLD.epsilon(one_by_one, delta) <= exact * (1 + 2e-3) + 1e-4


@pytest.mark.parametrize("times", [1, 2, 3])
def test_laplace_is_exact_for_few_rounds(times: int) -> None:
    """One Laplace: delta = 1 - e^((epsilon - 1/ratio)/2). More: the largest loss is times/ratio, an atom."""
    ratio, delta = 2.0, 1e-3
    found = PLD.epsilon(Repeated(LaplaceEvent(ratio), times), delta)
    assert found <= times / ratio * (1 + 1e-4)
    if times == 1:
        assert found == pytest.approx(1 / ratio + 2 * math.log1p(-delta), rel=1e-4)
    # an atom at the top: P(all losses largest) = 2^-times, so delta = 2^-times (1 - e^(epsilon - largest)) is attained
    attained = times / ratio + math.log1p(-delta * 2**times)
    assert found >= attained


def test_a_tiny_delta_next_to_a_large_atom_stays_above_it() -> None:
    """The answer lies between grid points; it once fell below the lower one."""
    rate, ratio = 0.7245900379833825, 0.31259432251887537
    largest = math.log(1 - rate + rate * math.exp(1 / ratio))
    for precision in (5e-5, 1e-5, 1e-6):
        found = Pld(precision=precision).epsilon(PoissonSampled(rate, LaplaceEvent(ratio)), 1.357e-12)
        assert found == pytest.approx(largest, rel=1e-5)


def test_the_fixed_size_profile_is_the_larger_of_both_directions() -> None:
    rate, ratio = 0.1, 0.8
    forward = pair_of(FixedSizeSampled(rate, GaussianEvent(ratio), Relation.ADD_REMOVE))
    either = pair_of(FixedSizeSampled(rate, GaussianEvent(ratio)))
    for epsilon in (-2.0, -0.5, -0.05, 0.0, 0.05, 0.5, 2.0):
        deltas = []
        for pair in (forward, Reversed(forward), either):
            law = grid(pair, 2**-10, 0.01)
            mass, losses = np.exp(law.log_mass), law.losses
            deltas.append(float((mass * np.maximum(1 - np.exp(epsilon - losses), 0)).sum()))
        assert deltas[2] == pytest.approx(max(deltas[:2]), rel=1e-4)


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.37, 0.6, 0.99])
def test_trade_off_of_one_step(rate: float) -> None:
    for mu, at in product((0.5, 1.0, 3.0), (0.001, 0.02, 0.3, 0.5, 0.8)):
        event = FixedSizeSampled(rate, GaussianEvent(1 / mu))
        exact = sampled_tradeoff(rate, mu, at)
        assert exact - 2e-4 <= PLD.tradeoff(event, at) <= exact + 1e-12
        gaussian = PLD.tradeoff(GaussianEvent(1 / mu), at)
        assert gdp_tradeoff(mu, at) - 2e-4 <= gaussian <= gdp_tradeoff(mu, at) + 1e-12


def test_tilting_keeps_relative_precision_at_tiny_deltas() -> None:
    event = Repeated(GaussianEvent(3.0), 20)
    for epsilon in (5.0, 20.0, 40.0):
        exact = gdp_delta(math.sqrt(20) / 3, epsilon)
        assert exact <= PLD.delta(event, epsilon) <= exact * (1 + 3e-2)


@pytest.mark.parametrize(
    "event", [PoissonSampled(0.02, GaussianEvent(0.8)), FixedSizeSampled(0.001, GaussianEvent(1.0))]
)
def test_a_finer_precision_only_lowers_the_bound_a_little(event: Event) -> None:
    for times, delta in ((1, 1e-4), (50, 1e-6), (5000, 1e-5)):
        coarse, fine = (Pld(precision=p).epsilon(Repeated(event, times), delta) for p in (5e-5, 2e-6))
        assert fine * (1 - 1e-6) <= coarse <= fine * (1 + 5e-4)


def test_different_neighbours_are_not_summed() -> None:
    with pytest.raises(CannotAccount, match="add_remove and replace"):
        PLD.epsilon(
            Composed((PoissonSampled(0.1, GaussianEvent(1.0)), FixedSizeSampled(0.1, GaussianEvent(1.0)))), 1e-5
        )


def test_ndtr_is_the_reference_of_the_noise() -> None:
    """The masses between cuts add up to one around each centre, in both tails."""
    from sfumato.account.noises import GaussianNoise, LaplaceNoise

    cuts = np.concatenate([[-np.inf], np.linspace(-30, 30, 500), [np.inf]])
    for noise in (GaussianNoise(2.0), LaplaceNoise(2.0)):
        for centre in (0.0, 2.0):
            logs, _ = noise.log_masses(cuts, centre)
            assert np.exp(logs).sum() == pytest.approx(1.0, abs=1e-13)
    middle, _ = GaussianNoise(2.0).log_masses(np.array([1.0, 1.5]), 0.0)
    assert math.exp(middle[0]) == pytest.approx(ndtr(1.5) - ndtr(1.0), rel=1e-13)
