"""Every published or verified number that belongs to accounting, from a file."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sfumato.account import accountant, calibrate_noise
from sfumato.account.convert import classic_epsilon_from_rdp, epsilon_from_rdp, log_delta_from_rdp
from sfumato.account.divergences import (
    rdp_fixed_size_gaussian,
    rdp_gaussian,
    rdp_laplace,
    rdp_laplace_ball,
    rdp_poisson_gaussian,
    rdp_poisson_laplace,
    rdp_staircase,
)
from sfumato.account.event import (
    CappedPoissonSampled,
    Event,
    FixedSizeSampled,
    GaussianEvent,
    LaplaceEvent,
    Mixture,
    PoissonSampled,
    PureEvent,
    Relation,
    Repeated,
    StaircaseBallEvent,
    StaircaseEvent,
)
from sfumato.account.gdp import bisect, clt_mu_poisson, gdp_delta, gdp_epsilon, gdp_tradeoff
from sfumato.account.papers import ae_dpfl
from sfumato.account.papers import dp_fed_ls as papers
from sfumato.account.papers.prifedsync import Published
from sfumato.account.rdp import rdp_of
from sfumato.pieces.staircase import best_share, levels, moments
from tests.account.twins import sampled_tradeoff

VALUES = json.loads(Path(__file__).with_name("reference_values.json").read_text())["values"]
Inputs = dict[str, Any]


def at_order(curve: Callable[..., Any], *numbers: float, order: float) -> float:
    return float(curve(*numbers, np.array([float(order)]))[0])


def at_best_order(convert: Callable[..., Any], rho: float, delta: float) -> float:
    """Divergences of rho times the order, converted at the best of very many orders."""
    orders = 1 + np.geomspace(1e-3, 1e3, 2_000_001)
    return float(np.min(convert(orders, rho * orders, delta)))


def pld(event: Event, i: Inputs, times: int) -> float:
    return accountant("pld").epsilon(Repeated(event, times), i["delta"])


def theorem(name: str, i: Inputs) -> Any:
    setting = papers.DpFedLs(int(name.split("thm")[1][0]), i["eps"], i["delta"], i["tau"], i["T"], i["G"])
    if name.endswith("unconstrained"):
        weight, noise = setting.unconstrained()
        assert not setting.holds(noise, setting.order(weight))
        return [weight, noise]
    return setting.feasible_noise() if name.endswith("feasible") else setting.integer_noise()


def attained(i: Inputs) -> float:
    """The pair that others at -G u and one client at +G u attain: the add direction and the remove direction, apart."""
    event = FixedSizeSampled(i["tau"], GaussianEvent(i["nu"] / (2 * i["G"])), Relation.ADD_REMOVE)
    return accountant("pld").epsilon(Repeated(event, i["T"]), i["delta"])


def of_event(event: Event, orders: Any) -> Any:
    return rdp_of(event, orders)


def centre_density(i: Inputs) -> float:
    """The joint staircase at 0, from the weights that its sampler draws levels by: each ball has volume (2 radius)^d / d!."""
    first, below = levels(i["d"], i["lam"], i["nu"])
    weights = np.diff(below, prepend=0.0) / below[-1]
    radius = first + np.arange(len(weights)) + i["nu"]
    return float((weights * math.factorial(i["d"]) / (2 * radius) ** i["d"]).sum())


# the longest prefix of an id decides
COMPUTE: dict[str, Callable[[str, Inputs], Any]] = {
    "rdp.gaussian": lambda _, i: at_order(rdp_gaussian, i["sigma"], order=i["alpha"]),
    "rdp.laplace.b": lambda _, i: at_order(rdp_laplace, i["b"], order=i["alpha"]),
    "rdp.laplace.l2clip": lambda _, i: at_order(rdp_laplace_ball, 1 / i["C_over_b"], i["d"], order=i["alpha"]),
    "rdp.staircase.lam": lambda _, i: at_order(of_event, StaircaseEvent(i["lam"], i["nu"]), order=i["alpha"]),
    "rdp.staircase.shift": lambda _, i: at_order(rdp_staircase, i["lam"], i["nu"], i["v"], order=i["alpha"]),
    "rdp.staircase.percoord.l2clip": lambda _, i: at_order(
        of_event, StaircaseBallEvent(1.0, i["lam"], i["nu"], i["d"]), order=i["alpha"]
    ),
    "rdp.staircase.percoord.l1clip": lambda _, i: (
        i["d"] * at_order(rdp_staircase, i["lam"], i["nu"], 1 / i["d"], order=i["alpha"])
    ),
    "rdp.pure_dp": lambda _, i: at_order(of_event, PureEvent(i["eps"]), order=i["alpha"]),
    "rdp.poisson_staircase": lambda _, i: at_order(
        of_event, PoissonSampled(i["q"], StaircaseEvent(i["lam"], i["nu"])), order=i["alpha"]
    ),
    "pld.staircase": lambda _, i: pld(StaircaseEvent(i["lam"], i["nu"]), i, i["T"]),
    "pld.poisson_staircase": lambda _, i: pld(PoissonSampled(i["q"], StaircaseEvent(i["lam"], i["nu"])), i, i["T"]),
    "staircase.moments": lambda _, i: moments(1, i["lam"], i["nu"]),
    "staircase.nu_var_opt": lambda _, i: [best_share(1, i["lam"]), moments(1, i["lam"], best_share(1, i["lam"]))[1]],
    "staircase.l1norm": lambda _, i: [centre_density(i), moments(i["d"], i["lam"], i["nu"])[0]],
    "calib.staircase": lambda _, i: bisect(
        1e-3,
        9.0,
        lambda lam: at_order(of_event, StaircaseEvent(lam, 1 / (1 + math.exp(lam / 2))), order=i["alpha"]) < i["rdp"],
    )[0],
    "rdp.poisson_gaussian": lambda _, i: at_order(rdp_poisson_gaussian, i["q"], i["sigma"], order=i["alpha"]),
    "rdp.poisson_laplace": lambda _, i: at_order(rdp_poisson_laplace, i["q"], i["b"], order=i["alpha"]),
    "rdp.wor_": lambda _, i: at_order(
        rdp_fixed_size_gaussian, i["q"], i["sigma_over_replace_sensitivity"], order=i["alpha"]
    ),
    "conv.classic.zcdp": lambda _, i: at_best_order(classic_epsilon_from_rdp, i["rho"], i["delta"]),
    "conv.improved.zcdp": lambda _, i: at_best_order(epsilon_from_rdp, i["rho"], i["delta"]),
    "conv.improved.delta": lambda _, i: math.exp(log_delta_from_rdp(float(i["alpha"]), i["rdp"], i["eps"])),
    "gdp.delta": lambda _, i: gdp_delta(i["mu"], i["eps"]),
    "gdp.eps": lambda _, i: gdp_epsilon(i["mu"], i["delta"]),
    "gdp.clt.poisson": lambda _, i: clt_mu_poisson(i["q"], i["sigma"], i["T"]),
    "fdp.G": lambda _, i: gdp_tradeoff(i["mu"], i["alpha"]),
    "fdp.Cp": lambda _, i: sampled_tradeoff(i["p"], i["mu"], i["alpha"]),
    "fdp.exact": lambda _, i: pld(FixedSizeSampled(i["q"], GaussianEvent(i["sigma"])), i, i["N"]),
    "fdp.participation": lambda _, i: pld(
        Mixture(i["p"], Repeated(FixedSizeSampled(i["q"], GaussianEvent(i["sigma"])), i["K"])), i, i["R"]
    ),
    "pld.poisson_gaussian": lambda _, i: pld(PoissonSampled(i["q"], GaussianEvent(i["noise_multiplier"])), i, i["T"]),
    "pld.laplace": lambda _, i: pld(LaplaceEvent(i["b"]), i, i["T"]),
    "pld.poisson_laplace": lambda _, i: pld(PoissonSampled(i["q"], LaplaceEvent(i["b"])), i, i["T"]),
    "pld.wor_addremove": lambda _, i: pld(
        FixedSizeSampled(i["q"], GaussianEvent(i["sigma"] / 2), Relation.ADD_REMOVE), i, i["T"]
    ),
    "pld.wor_replaceone": lambda _, i: pld(FixedSizeSampled(i["q"], GaussianEvent(i["sigma"] / 2)), i, i["T"]),
    "pld.truncated": lambda _, i: pld(
        CappedPoissonSampled(i["q"], i["cap"], i["n"], GaussianEvent(i["noise_multiplier"])), i, i["T"]
    ),
    "paper.prifedsync": lambda _, i: Published(i["B"] / i["n"], i["K"], i["R"], i["sigma"], 1.0, 1).mu,
    "paper.dp_fed_ls.thm": theorem,
    "paper.dp_fed_ls.T2.uniform": lambda _, i: papers.dp_fed_ls_table_uniform(i["q"], i["z"], i["T"], i["delta"]),
    "paper.dp_fed_ls.T3.uniform": lambda _, i: papers.dp_fed_ls_table_uniform(i["q"], i["z"], i["T"], i["delta"]),
    "paper.dp_fed_ls.T2.poisson": lambda _, i: papers.dp_fed_ls_table_poisson(i["q"], i["z"], i["T"], i["delta"]),
    "paper.dp_fed_ls.T3.poisson": lambda _, i: papers.dp_fed_ls_table_poisson(i["q"], i["z"], i["T"], i["delta"]),
    "paper.dp_fedsam": lambda _, i: papers.dp_fedsam_epsilon(i["q"], i["sigma"], i["T"], i["delta"])[0],
    "calib.analytic": lambda _, i: calibrate_noise(GaussianEvent, i["eps"], i["delta"]),
    "calib.dp_fed_ls.poisson": lambda _, i: (
        i["G"]
        * calibrate_noise(lambda z: Repeated(PoissonSampled(i["tau"], GaussianEvent(z)), i["T"]), i["eps"], i["delta"])
    ),
    "calib.pld": lambda _, i: calibrate_noise(
        lambda z: Repeated(PoissonSampled(i["q"], GaussianEvent(z)), i["T"]), i["eps"], i["delta"]
    ),
    "calib.laplace.rdp.l2": lambda _, i: math.sqrt(i["alpha"] / (2 * i["rdp"])),
    "calib.vote": lambda _, i: (
        i["l2_sensitivity"]
        * calibrate_noise(lambda ratio: Repeated(GaussianEvent(ratio), i["Q"]), i["eps"], i["delta"])
    ),
    "calib.gdp.mu": lambda _, i: 1 / calibrate_noise(GaussianEvent, i["eps"], i["delta"]),
    "vote.": lambda _, i: accountant("gdp").epsilon(
        Repeated(GaussianEvent(i["sigma"] / i["l2_sensitivity"]), i["Q"]), i["delta"]
    ),
    "vote.argmax_probs": lambda _, i: ae_dpfl.label_chances(i["counts"], i["sigma"]),
    "vote.q_union": lambda _, i: ae_dpfl.chance_of_another(i["counts"], i["sigma"]),
    "vote.papernot2018": lambda _, i: ae_dpfl.diagnostic_by_papernot(i["counts"], i["sigma"], i["alpha"]),
    "vote.lemma13_sound": lambda _, i: ae_dpfl.diagnostic_by_lemma_13(i["counts"], i["sigma"], i["alpha"]),
    "dropout": lambda _, i: pld(
        PoissonSampled(i["q"], GaussianEvent(i["sigma"] * math.sqrt((i["m"] - i["h"]) / i["m"]))), i, i["T"]
    ),
    "counterex.dp_fed_ls": lambda _, i: attained(i),
    "counterex.ae_dpfl": lambda _, i: pld(PoissonSampled(i["q"], GaussianEvent(i["z"])), i, i["T"]),
    "lemma.dp_fed_ls.3": lambda _, i: (
        at_order(rdp_poisson_gaussian, i["tau"], math.sqrt(i["nu2"]), order=i["alpha"])
        / (2 * i["tau"] ** 2 * i["alpha"] / i["nu2"])
    ),
}
FACTS = ("counterex.dp_fedsam.wor_zero_out",)  # a relation that no accountant here offers for a fixed size


@pytest.mark.parametrize("value", [v for v in VALUES if v["id"] not in FACTS], ids=lambda v: v["id"])
def test_reference_value(value: dict[str, Any]) -> None:
    prefix = max((known for known in COMPUTE if value["id"].startswith(known)), key=len)
    found = np.atleast_1d(COMPUTE[prefix](value["id"], value["inputs"]))
    expected = np.atleast_1d(value["expected"])
    tolerance = value["tolerance"] * (np.abs(expected) if value["tolerance_kind"] == "rel" else 1.0)
    assert np.all(np.abs(found - expected) <= tolerance), (found, expected)
    if value.get("never_below"):
        assert np.all(found >= expected - value["never_below_slack"])


def test_zero_out_with_a_fixed_size_is_refused_because_a_worse_pair_is_attained() -> None:
    from sfumato.errors import CannotAccount

    with pytest.raises(CannotAccount, match="zero_out"):
        accountant().epsilon(FixedSizeSampled(0.1, GaussianEvent(0.95), Relation.ZERO_OUT), 0.002)
