"""What a sampler must hold: it draws as it states."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy import stats

from sfumato.account.event import CuriousDraws, FixedSizeSampled, GaussianEvent, PoissonSampled, Relation, Unit
from sfumato.claim import Claim
from sfumato.engine.keys import Keys
from sfumato.key import Key
from sfumato.pieces.protocol import Sampler

_POPULATION, _DRAWS = 40, 4000
_LEAST_P = 1e-6


def check_sampler(sampler: Sampler) -> None:
    """Each client is drawn at the stated rate, independently of the round before, with the stated spread of cohort sizes.

    Poisson: sizes are binomial and pairs independent. Fixed size: every size the same, every subset equally likely (pairs).
    """
    keys = Keys.of(Key.from_seed(11))
    drawn = np.zeros((_DRAWS, _POPULATION), bool)
    for number in range(_DRAWS):
        ids = np.asarray(sampler.cohort(_POPULATION, keys.turn(number)))
        assert len(set(ids.tolist())) == len(ids), f"{sampler} draws a client twice"
        assert ids.size == 0 or (ids.min() >= 0 and ids.max() < _POPULATION), f"{sampler} draws who is not there"
        drawn[number, ids] = True
    claim = Claim(Unit.CLIENT, sampler.relation, _POPULATION, 10).bounded(l2=1.0)
    if sampler.named:
        _check_each(sampler, drawn, claim)
        return
    claim = sampler.carry(claim)
    stated = list(claim.amplified(lambda reach: GaussianEvent(1.0)).walk())
    event = next((part for part in stated if isinstance(part, PoissonSampled | FixedSizeSampled)), stated[0])
    if isinstance(event, FixedSizeSampled) and event.relation is Relation.ADD_REMOVE and sampler.curious:
        assert any(isinstance(part, CuriousDraws) and part.curious >= sampler.curious for part in stated), (
            f"{sampler}: whether a curious client was drawn tells how many there are to draw from, and nothing pays for it"
        )
    if not isinstance(event, PoissonSampled | FixedSizeSampled):
        assert event == GaussianEvent(1.0), f"{sampler} states {event}, for which there is no law here"
        return
    check_drawn(sampler, drawn, event)
    stretch = 2 if sampler.relation is Relation.REPLACE or isinstance(event, FixedSizeSampled) else 1
    moved = claim.reach().l2
    assert moved >= stretch, f"{sampler} states that one client moves {moved:g} rows, but it moves {stretch}"


def _check_each(sampler: Sampler, drawn: np.ndarray, claim: Claim) -> None:
    """Each client at its own rate until its own last round, and not after it; two of them independently."""
    for client in range(_POPULATION):
        own = sampler.carry(replace(claim, client=client))
        until = len(drawn) if own.until is None else own.until
        late = int(drawn[until:, client].sum())
        assert not late, f"{sampler}: {client} was drawn {late} times after its last round"
        _check_rate(sampler, drawn[:until, client, None], own.sampling.chance(own) if own.sampling else 1.0)
        stated = own.amplified(lambda reach: GaussianEvent(1.0))
        rate = stated.rate if isinstance(stated, PoissonSampled) else 1.0
        assert own.sampling is not None and rate >= own.sampling.chance(own), f"{sampler}: {client} is drawn more often"
    together, pair = drawn[:, 0] & drawn[:, 1], drawn[:, 0].mean() * drawn[:, 1].mean()
    p_value = stats.binomtest(int(together.sum()), len(drawn), pair).pvalue
    assert p_value > _LEAST_P, f"{sampler}: two are not drawn independently"


def _check_rate(sampler: Any, drawn: np.ndarray, rate: float) -> None:
    """Each was drawn as often as the rate says."""
    for client in range(drawn.shape[1]):
        times = int(drawn[:, client].sum())
        p_value = stats.binomtest(times, len(drawn), rate).pvalue
        assert p_value > _LEAST_P, f"{sampler}: {client} was drawn {times} times in {len(drawn)}, not at rate {rate}"


def _check_poisson(sampler: Any, drawn: np.ndarray, rate: float) -> None:
    """Each at the rate, and the sizes spread as those of independent draws."""
    _check_rate(sampler, drawn, rate)
    sizes = drawn.sum(axis=1)
    spread = drawn.shape[1] * rate * (1 - rate)
    ratio = sizes.var() / spread if spread else 1.0
    assert abs(ratio - 1.0) < 9.5 / np.sqrt(len(drawn)), (
        f"{sampler}: cohort sizes vary {ratio:.2f} times as much as independent draws would"
    )


def _check_fixed(sampler: Any, drawn: np.ndarray, rate: float) -> None:
    """One size, each at the rate, pairs as often as they should be."""
    sizes = drawn.sum(axis=1)
    assert sizes.min() == sizes.max(), f"{sampler}: the cohort's size varies from {sizes.min()} to {sizes.max()}"
    true = sizes[0] / drawn.shape[1]
    assert rate >= true, f"{sampler} states the rate {rate}, below the true {true}"
    _check_rate(sampler, drawn, true)
    together = int((drawn[:, 0] & drawn[:, 1]).sum())
    pair = true * (sizes[0] - 1) / (drawn.shape[1] - 1)
    assert stats.binomtest(together, len(drawn), pair).pvalue > _LEAST_P, f"{sampler}: two are not drawn independently"


def check_drawn(sampler: Any, drawn: np.ndarray, event: PoissonSampled | FixedSizeSampled) -> None:
    """They are drawn as the event says, and whether one is drawn does not depend on the draw before."""
    check = _check_poisson if isinstance(event, PoissonSampled) else _check_fixed
    check(sampler, drawn, event.rate)
    before, after = drawn[:-1], drawn[1:]
    for client in range(drawn.shape[1]):
        if 0 < before[:, client].mean() < 1:
            table = [
                [int((before[:, client] == a)[after[:, client] == b].sum()) for b in (False, True)]
                for a in (False, True)
            ]
            p_value = stats.chi2_contingency(table).pvalue if np.min(np.sum(table, axis=0)) else 0.0
            assert p_value > _LEAST_P, f"{sampler}: whether client {client} is drawn depends on the round before"
