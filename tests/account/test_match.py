"""The harmonizer: one law's size for another's cost, on the safe side, to a millionth, and monotone; the exact sums behind it."""

from __future__ import annotations

import math
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest

from sfumato import Gaussian, Laplace, Poisson, Staircase, match
from sfumato.account import accountant, pld
from sfumato.account.event import Event, FixedSizeSampled, PoissonSampled, PureEvent, Repeated, StaircaseEvent
from sfumato.account.few_losses import few_losses
from sfumato.account.rdp import curve
from sfumato.errors import BadValue
from sfumato.pieces.law_names import NamedLaw
from sfumato.pieces.sampler import Drawn
from sfumato.planning.setting import Setting

LAWS: tuple[NamedLaw, ...] = (Gaussian(1.0), Laplace(1.0), Laplace(1.0, order=2), Staircase(1.0))
STEPS: dict[str, Any] = {"sample": Poisson(0.05), "rounds": 300, "dimension": 7850}


def event_of(law: NamedLaw) -> Event:
    return Setting(law, Drawn(Poisson(0.05)), 300, dimension=7850).event()


@pytest.mark.parametrize(("law", "like"), list(product(LAWS, LAWS[:3])), ids=repr)
def test_it_costs_no_more_and_a_millionth_less_noise_costs_more(law: NamedLaw, like: NamedLaw) -> None:
    found = match(law, like=like, delta=1e-5, **STEPS)
    target, price = accountant().epsilon(event_of(like), 1e-5), accountant()
    assert price.epsilon(event_of(found), 1e-5) <= target
    smaller = found.with_noise(found.noise_multiplier * (1 - 1e-6))
    assert price.epsilon(event_of(smaller), 1e-5) > target
    if type(law) is type(like) and law == like:
        assert found.noise_multiplier == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize(
    ("law", "like"), [(Laplace(1.0), Gaussian(1.3)), (Staircase(1.0), Laplace(0.7, order=2))], ids=repr
)
def test_by_the_curve_it_is_nowhere_above(law: NamedLaw, like: NamedLaw) -> None:
    wanted = curve(event_of(like))
    found = match(law, like=like, **STEPS)
    assert (curve(event_of(found)) <= wanted).all()
    smaller = found.with_noise(found.noise_multiplier * (1 - 1e-6))
    assert (curve(event_of(smaller)) > wanted).any()
    assert found.noise_multiplier >= match(law, like=like, delta=1e-5, by="rdp", **STEPS).noise_multiplier * (1 - 1e-6)


def test_more_noise_in_the_reference_is_more_noise_in_the_answer() -> None:
    for law in LAWS[1:]:
        for options in ({"delta": 1e-5}, *([{}] if isinstance(law, Staircase) else [])):
            sizes = [match(law, like=Gaussian(z), **options, **STEPS).noise_multiplier for z in (0.8, 0.804, 3.0)]
            assert all(one < two for one, two in pairwise(sizes)), (law, sizes)


def test_there_and_back() -> None:
    there = match(Laplace(1.0), like=Gaussian(1.1), delta=1e-5, **STEPS)
    assert match(Gaussian(9.0), like=there, delta=1e-5, **STEPS).noise_multiplier == pytest.approx(1.1, rel=5e-4)


def test_one_release_has_closed_forms() -> None:
    """The epsilon of one Laplace release is 1/scale + 2 log(1 - delta)."""
    found = match(Laplace(1.0), like=Gaussian(0.6002289), delta=1e-5)
    epsilon = accountant().epsilon(Repeated(Gaussian(1.0).event(0.6002289, _one()), 1), 1e-5)
    assert found.noise_multiplier == pytest.approx(1 / (epsilon - 2 * math.log1p(-1e-5)), rel=1e-6)
    with pytest.raises(BadValue, match="dimension"):
        match(Staircase(1.0), like=Gaussian(1.0), delta=1e-5)


def _one() -> Any:
    from sfumato.claim import Reach

    return Reach(1.0, 1.0, 1)


@pytest.mark.parametrize("event", [PureEvent(0.7), StaircaseEvent(1.1, 0.3)], ids=repr)
@pytest.mark.parametrize("sampled", [lambda e: e, lambda e: PoissonSampled(0.2, e), lambda e: FixedSizeSampled(0.2, e)])
def test_few_losses_repeat_exactly(event: Event, sampled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the convolution of the atoms, written out, and under what the grid says."""
    from sfumato.account.dominating import pair_of
    from sfumato.account.pairs import Atoms

    atoms = pair_of(event)
    assert isinstance(atoms, Atoms)
    p = np.array(atoms.chances)
    q, times, outer = p * np.exp(-np.array(atoms.values)), 9, sampled(event)
    mixed = p if outer is event else 0.8 * q + 0.2 * p
    ways = [(mixed, q), (q, mixed)]
    if isinstance(outer, FixedSizeSampled):
        up = mixed > q * (1 + 1e-9)
        rest = 1 - mixed[up].sum() - q[up].sum()
        one, two = (np.concatenate([a[up], [rest], b[up]]) for a, b in ((mixed, q), (q, mixed)))
        ways = [(one, two)]
    epsilon = accountant("pld").epsilon(Repeated(outer, times), 1e-3)
    exact = max(_delta(one, two, times, epsilon) for one, two in ways)
    assert exact == pytest.approx(1e-3, rel=1e-6) and exact <= 1e-3
    assert accountant("pld").delta(Repeated(outer, times), epsilon) == pytest.approx(exact, rel=1e-6)
    monkeypatch.setattr(pld, "few_losses", lambda *_: None)
    assert accountant("pld").epsilon(Repeated(outer, times), 1e-3) >= epsilon * (1 - 1e-9)


def _delta(p: np.ndarray, q: np.ndarray, times: int, epsilon: float) -> float:
    """All sequences of outcomes, by products."""
    joint = {(): (1.0, 1.0)}
    for _ in range(times):
        nxt: dict[tuple[int, ...], tuple[float, float]] = {}
        for counts, (a, b) in joint.items():
            for place in range(len(p)):
                key = tuple(sorted((*counts, place)))
                old = nxt.get(key, (0.0, 0.0))
                nxt[key] = (old[0] + a * p[place], old[1] + b * q[place])
        joint = nxt
    return sum(max(a - math.exp(epsilon) * b, 0.0) for a, b in joint.values())


def test_what_is_too_long_or_has_other_losses_is_left_to_the_grid() -> None:
    assert few_losses(Repeated(StaircaseEvent(1.0, 0.3), 100_000), False) is None
    assert few_losses(PureEvent(1.0), False) is None
    assert few_losses(Repeated(PoissonSampled(0.1, Gaussian(1.0).event(1.0, _one())), 5), False) is None
