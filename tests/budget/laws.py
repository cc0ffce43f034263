"""What must hold where clients have settings of their own, as checks that can fail: `test_sabotage.py` shows that they do."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import torch

from sfumato import (
    Everyone,
    FixedSize,
    Key,
    PoissonPerClient,
    RealisedMean,
    Records,
    Relation,
    Round,
    Unit,
    accountant,
)  # fmt: skip
from sfumato.account.event import Event, GaussianEvent
from sfumato.account.inside import for_client
from sfumato.gradients import OneByOne
from sfumato.local.task import Task
from sfumato.update import Layout
from tests.attacks.losses import Composed, Part, observed
from tests.attacks.semantics import Cohorts, cohorts
from tests.helpers import linear, unchecked

DELTAS = (1e-2, 1e-4)


@cohorts.register
def _(sampler: PoissonPerClient, population: int) -> Cohorts:
    rates = [sampler.of(client).rate for client in range(population)]
    every = product((False, True), repeat=population)
    found = [(np.prod([q if on else 1 - q for q, on in zip(rates, who, strict=True)]), who) for who in every]
    return [(float(chance), tuple(np.flatnonzero(who).tolist())) for chance, who in found if chance]


def attained(round: Round, population: int, victim: int, rounds: int) -> list[float]:
    """What an explicit attack learns of one client, at least, at each delta: the exact law of a release on one line.

    Nothing here reads a claim but for the standard deviation, since the engine draws that very one.
    """
    (clip, *_), over = round.client, round.aggregate.divisor
    stddev = round.derive(population=population, dimension=1).primary.stddev
    assert stddev is not None and over is not None
    norms = [clip.of(client).norm for client in range(population)]  # type: ignore[attr-defined]
    relation = round.sample.relation
    best = [0.0] * len(DELTAS)
    for sign in (-1.0, 0.0, 1.0):
        rows = [sign * norm for norm in norms]
        other = {Relation.REPLACE: -norms[victim], Relation.ZERO_OUT: 0.0}.get(relation)
        one = _law(round, [*rows[:victim], norms[victim], *rows[victim + 1 :]], over, stddev)
        two = _law(round, [*rows[:victim], other, *rows[victim + 1 :]], over, stddev)
        for pair in (observed(one, two), observed(two, one)):
            seen = Composed([pair] * rounds)
            best = [max(most, seen.epsilon(delta)) for most, delta in zip(best, DELTAS, strict=True)]
    return best


def _law(round: Round, rows: list[float | None], over: float, stddev: float) -> list[Part]:
    """One part for each cohort; a client whose row is None is not there."""
    there = [client for client, row in enumerate(rows) if row is not None]
    if isinstance(round.sample, FixedSize):
        found = [(chance, [there[place] for place in who]) for chance, who in cohorts(round.sample, len(there))]
    else:
        found = [(chance, [one for one in who if one in there]) for chance, who in cohorts(round.sample, len(rows))]
    return [Part("", chance, (sum(rows[one] or 0.0 for one in who) / over,), stddev**2) for chance, who in found]


def check_no_attack(round: Round, population: int, rounds: int, exact: bool = False) -> None:
    """No client's own guarantee is passed; with `exact` the attack comes close to it. The last client is like the one before."""
    with unchecked():
        event = round.derive(population=population, dimension=1).primary.after(rounds)
        for victim in range(population - 1):
            own = for_client(event, victim)
            for delta, seen in zip(DELTAS, attained(round, population, victim, rounds), strict=True):
                proven = accountant("auto").epsilon(own, delta)
                told = f"client {victim}: {seen:.4f} is attained where {proven:.4f} is proven"
                assert seen <= proven * (1 + 1e-9), told
                assert not exact or seen >= 0.95 * proven, told


def check_own_noise(local: Any, clients: int) -> None:
    """Each client draws the noise that is accounted for it: where gradients are zero, a row holds nothing else."""
    module = linear(100, 30)
    layout, start = Layout.of(module), Layout.of(module).row(module)
    records = torch.zeros(8, 100), torch.zeros(8, dtype=torch.int64)
    task = Task(
        OneByOne(module),
        layout,
        lambda outputs, y: 0.0 * outputs.sum(1),
        start,
        start.expand(clients, -1),
        [Records(*records)] * clients,
        [Key.from_seed(client) for client in range(clients)],
        0,
        list(range(clients)),
    )
    rows = local.train(task)
    for client in range(clients):
        own = local.of(client)
        steps = [part for part in _event(local, client).walk() if isinstance(part, GaussianEvent)]
        stated = steps[0].ratio * own.clip * own.steps**0.5 / own.divisor
        found = float((rows[client]).double().std())
        assert abs(found / stated - 1) < 0.06, (
            f"client {client} draws noise of {found:.4f}, and {stated:.4f} is accounted"
        )


def _event(local: Any, client: int) -> Event:
    round = Round(sample=Everyone(), local=local, aggregate=RealisedMean(), unit=Unit.RECORD)
    return for_client(round.derive(population=100, dimension=10).primary.world, client)


def check_largest(event: Event, clients: int, delta: float) -> None:
    """What is said of all is not below what holds for any."""
    said = accountant("auto").epsilon(event, delta)
    each = [accountant("auto").epsilon(for_client(event, client), delta) for client in range(clients)]
    assert said >= max(each), f"epsilon {said:.4f} is said of all, and {max(each):.4f} was spent on one"
