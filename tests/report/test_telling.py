"""How well anybody can tell: never less than the best test achieves, and no more than epsilon allows."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from sfumato.account import accountant
from sfumato.account.event import (
    ByClient,
    Composed,
    Event,
    GaussianEvent,
    LaplaceEvent,
    NonPrivate,
    Nothing,
    PoissonSampled,
    Repeated,
)
from sfumato.report import write_page
from sfumato.report.read import read_runs
from sfumato.report.telling import Telling, telling
from sfumato.report.words import share_down, share_up
from tests.audit.runs import train

from .runs import proven, unproven
from .test_page import Page, page

ALARMS = (1e-4, 0.001, 0.01, 0.05, 0.1, 0.3, 0.5, 0.9)
SAMPLED = Repeated(PoissonSampled(0.1, GaussianEvent(1.0)), 20)
EVENTS = (
    GaussianEvent(0.5),
    Repeated(GaussianEvent(4.0), 9),
    SAMPLED,
    LaplaceEvent(1.0),
    Repeated(LaplaceEvent(3.0), 5),
)


@pytest.mark.parametrize("mu", [0.1, 1.0, 3.0])
def test_of_a_gaussian_it_is_what_the_best_test_finds_and_hardly_more(mu: float) -> None:
    """N(0, 1) against N(mu, 1): the best test with these false alarms finds Phi(mu - Phi^-1(1 - a))."""
    for alarms in ALARMS:
        exact, found = float(ndtr(mu + ndtri(alarms))), Telling(GaussianEvent(1 / mu)).found(alarms)
        assert exact <= found <= exact + 1e-10
    right = Telling(GaussianEvent(1 / mu)).right
    assert ndtr(mu / 2) <= right <= ndtr(mu / 2) + 1e-10


@pytest.mark.parametrize(("rate", "ratio"), [(0.3, 0.6), (0.05, 1.0)])
def test_in_a_sample_the_easier_of_both_directions_counts(rate: float, ratio: float) -> None:
    """The best tests between noise and noise with a unit in it that is drawn: a threshold, from either side."""
    known, shift = Telling(PoissonSampled(rate, GaussianEvent(ratio))), 1 / ratio
    cuts = np.linspace(-9.0, 9.0 + shift, 20_001)
    there, away = (1 - rate) * ndtr(-cuts) + rate * ndtr(shift - cuts), ndtr(-cuts)
    for alarms in ALARMS:
        added = float(np.interp(alarms, away[::-1], there[::-1]))
        removed = float(np.interp(alarms, 1 - there, 1 - away))
        assert max(added, removed) - 1e-6 <= known.found(alarms) <= max(added, removed) + 0.02


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.words())
def test_it_is_no_more_than_any_epsilon_and_delta_allow_and_implies_them(event: Event) -> None:
    price, known = accountant(), Telling(event)
    for delta in (1e-8, 1e-5, 1e-3, 0.03, 0.2):
        epsilon = price.epsilon(event, delta)
        for alarms in ALARMS:
            allowed = min(math.exp(epsilon) * alarms + delta, 1 - math.exp(-epsilon) * (1 - delta - alarms))
            assert (
                known.found(alarms) <= 1.01 * allowed + 1e-8
            )  # the grid of the curve is coarser than that of one epsilon
    for epsilon in (0.0, 0.5, 2.0):
        beyond = max(known.found(alarms) - math.exp(epsilon) * alarms for alarms in np.geomspace(1e-6, 1.0, 200))
        assert beyond >= 0.97 * price.delta(event, epsilon) - 1e-3, "it would allow less than there is"


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.words())
def test_the_lines_that_are_drawn_never_lie_above_the_floor(event: Event) -> None:
    xs, ys = zip(*Telling(event).curve, strict=True)
    assert xs[0] == 0.0 and xs[-1] == 1.0 and ys[-1] == 0.0
    for alarms in np.linspace(0.0, 1.0, 997):
        assert float(np.interp(alarms, xs, ys)) <= accountant().tradeoff(event, float(alarms)) + 1e-12


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.words())
def test_the_lines_that_are_drawn_have_no_kink(event: Event) -> None:
    """What is taken off the floor is never much more at one point than at the one before it, and the lines bend one way."""
    xs, ys = map(np.array, zip(*Telling(event).curve, strict=True))
    slopes = np.diff(ys) / np.diff(xs)
    assert (np.diff(slopes[1:]) >= -1e-3 * np.abs(slopes[1:-1])).all()
    floors = np.array([1.0 - Telling(event).found(float(share)) for share in xs])
    off = (floors - ys)[(xs > 1e-3) & (xs < 0.9)]
    assert (off > 0).all() and (off[1:] <= 1.2 * off[:-1]).all()


def test_where_clients_differ_the_one_that_is_easiest_to_find_counts() -> None:
    event = ByClient(GaussianEvent(4.0), (((3,), GaussianEvent(1.0)),))
    assert Telling(event).found(0.01) == Telling(GaussianEvent(1.0)).found(0.01)


def test_where_nothing_is_proven_or_nothing_happened_there_is_none() -> None:
    assert telling(None) is None and telling(Nothing()) is None
    assert telling(Repeated(NonPrivate("no noise"), 3)) is None


def test_what_is_shown_is_rounded_to_the_safe_side() -> None:
    for share in np.random.default_rng(0).random(200):
        up, down = (float(said(float(share)).removesuffix("\N{NO-BREAK SPACE}%")) for said in (share_up, share_down))
        assert down <= 100 * share <= up and up - down < 0.11


def test_the_page_of_a_real_run_says_it_and_leaves_the_ledger_alone(tmp_path: Path) -> None:
    run = train(tmp_path / "run", recipe="dp-fedavg", rounds=2, clients=10, noise_multiplier=2.0)
    before = (run / "ledger.sqlite").read_bytes()
    found = Page(write_page(run).read_text())
    assert "Whoever accepts 1 false alarm in 100 finds at most" in found.text
    assert found.tags.count("svg") == 4
    assert (run / "ledger.sqlite").read_bytes() == before
    for text in ("not a ledger", ""):
        (run / "ledger.sqlite").write_text(text)
        assert "No curve: the run's ledger" in Page(write_page(run).read_text()).text
    options = json.loads((run / "run.json").read_text())["options"]
    assert options["lr"] > 0 and "noise_multiplier" in options


def test_the_page_says_that_two_runs_tell_more_than_one(tmp_path: Path) -> None:
    """Whoever sees two runs on the same clients passes the curve of one, so that it may not be said to hold whatever they know."""
    runs = [
        train(tmp_path / str(number), recipe="dp-fedavg", rounds=2, clients=10, noise_multiplier=2.0)
        for number in (1, 2)
    ]
    one, two = (record.event for record in read_runs(runs))
    assert one is not None and two is not None
    assert Telling(Composed((one, two))).found(0.01) > Telling(one).found(0.01)
    text = Page(write_page(runs[0]).read_text()).text
    assert "Of this run alone no test does better" in text and "whatever else they know" not in text
    assert "other runs on the same clients too sees more" in text


def test_without_a_ledger_or_a_proof_the_page_says_why_there_is_no_curve(tmp_path: Path) -> None:
    assert "No curve: the run's ledger" in page(proven(tmp_path / "old")).text
    found = page(unproven(tmp_path / "claimed"))
    assert "no curve to show: nothing is proven for this run" in found.text and "false alarm" not in found.text
