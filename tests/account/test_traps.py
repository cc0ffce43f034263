"""The traps of dp-accounting 0.6: each is shown to be there, and our value beside it."""

from __future__ import annotations

import math

import dp_accounting as dp
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant, privacy_loss_distribution
from dp_accounting.pld import accountant as pld_helpers
from dp_accounting.rdp import RdpAccountant
from scipy.integrate import quad

from sfumato.account import accountant, calibrate_noise
from sfumato.account.divergences import rdp_poisson_gaussian
from sfumato.account.event import FixedSizeSampled, GaussianEvent, PoissonSampled, Relation, Repeated
from sfumato.account.gdp import gdp_epsilon

SWAP = dp.NeighboringRelation.REPLACE_ONE


def test_replace_one_means_two_different_sensitivities_there() -> None:
    gaussian = dp.GaussianDpEvent(1.0)
    by_pld = PLDAccountant(SWAP).compose(gaussian).get_epsilon(1e-5)
    by_rdp = RdpAccountant(neighboring_relation=SWAP).compose(gaussian).get_epsilon(1e-5)
    assert by_pld == pytest.approx(gdp_epsilon(2.0, 1e-5), rel=1e-3)
    assert by_rdp == pytest.approx(4.7285, abs=1e-3)  # sensitivity 1
    ours = [accountant(name).epsilon(GaussianEvent(0.5), 1e-5) for name in ("pld", "rdp", "gdp")]
    assert ours == pytest.approx([by_pld] * 3, rel=0.1)  # the ratio says it: noise 1, sensitivity 2


def test_poisson_replace_is_not_fixed_size_replace() -> None:
    noise, rate, times, delta = 0.2333 / 0.3, 0.05, 30, 1000**-1.1
    poisson = accountant().epsilon(
        Repeated(PoissonSampled(rate, GaussianEvent(noise / 2), Relation.REPLACE), times), delta
    )
    fixed = accountant().epsilon(Repeated(FixedSizeSampled(rate, GaussianEvent(noise / 2)), times), delta)
    assert poisson < 5 < 14.78 < fixed


def test_fractional_orders_are_overestimated_there_and_not_here() -> None:
    rate, ratio, order = 0.2, 1.2, 2.5

    def integrand(x: float) -> float:
        grown = 1 - rate + rate * math.exp((x - 0.5) / ratio**2)
        return math.exp(-((x / ratio) ** 2) / 2) / (ratio * math.sqrt(2 * math.pi)) * grown**order

    exact = math.log(quad(integrand, -20, 30, epsabs=0, epsrel=1e-12)[0]) / (order - 1)
    ours = float(rdp_poisson_gaussian(rate, ratio, np.array([order]))[0])
    theirs = RdpAccountant([order]).compose(dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(ratio)))._rdp[0]
    assert ours == pytest.approx(exact, rel=1e-9)
    assert theirs > exact * 1.01


def test_the_third_argument_of_their_calibration_is_the_sensitivity() -> None:
    parameters = pld_helpers.common.DifferentialPrivacyParameters(2.0, 1e-5)
    wrong = pld_helpers.get_smallest_subsampled_gaussian_noise(parameters, 50, 0.1)
    right = pld_helpers.get_smallest_subsampled_gaussian_noise(parameters, 50, 1.0, 0.1)
    ours = calibrate_noise(lambda z: Repeated(PoissonSampled(0.1, GaussianEvent(z)), 50), 2.0, 1e-5)
    assert ours == pytest.approx(right, rel=2e-3)
    assert not math.isclose(wrong, right, rel_tol=0.05)


def test_a_count_is_dropped_there_and_lives_in_one_place_here() -> None:
    event = dp.RandomizedResponseDpEvent(0.5, 2)
    once, ten = (PLDAccountant(SWAP).compose(event, count).get_epsilon(1e-9) for count in (1, 10))
    assert ten == pytest.approx(once)
    for name in ("pld", "rdp", "gdp", "auto"):
        price = accountant(name)
        assert price.epsilon(Repeated(GaussianEvent(5.0), 10), 1e-5) > 2 * price.epsilon(GaussianEvent(5.0), 1e-5)


def test_rounding_losses_up_costs_a_step_per_round_there_and_connecting_dots_does_not_here() -> None:
    times, step = 100, 1e-2
    heads, tails = {"a": 0.55, "b": 0.45}, {"a": 0.45, "b": 0.55}
    coin = privacy_loss_distribution.from_two_probability_mass_functions
    logs = [{key: math.log(value) for key, value in law.items()} for law in (heads, tails)]
    coarse = coin(*logs, value_discretization_interval=step)
    fine = coin(*logs, value_discretization_interval=1e-5)
    rounded, exact = (law.self_compose(times).get_epsilon_for_delta(1e-5) for law in (coarse, fine))
    assert rounded > exact + times * step / 10
    event = Repeated(PoissonSampled(0.01, GaussianEvent(1.0)), 10_000)
    assert accountant("pld").epsilon(event, 1e-5) == pytest.approx(6.18774, rel=2e-4)


def test_the_masses_of_a_grid_add_up() -> None:
    from sfumato.account.dominating import pair_of
    from sfumato.account.loss_grid import grid

    for event in (PoissonSampled(0.05, GaussianEvent(1.0)), FixedSizeSampled(0.05, GaussianEvent(0.5))):
        for step in (1e-2, 1e-4):
            law = grid(pair_of(event), step, 0.01)
            assert np.exp(law.log_mass).sum() + law.infinite == pytest.approx(1.0, abs=1e-10)
            assert np.exp(law.log_mass - law.losses).sum() <= 1 + 1e-10
