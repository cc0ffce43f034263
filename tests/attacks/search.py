"""The attack: over neighbouring data sets, drop-outs and what the others send, the most that a view can find out.

`violation(round, ...)` compares it with what is printed for every unit and every view.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from math import comb
from typing import Any

import numpy as np

from sfumato import AdaptiveClip, DpSgd, FixedSize, Poisson, Relation, Round, Unit, WeightByExamples
from sfumato.account.event import Event, Repeated
from sfumato.claim import text
from sfumato.guarantee import guarantee
from tests.attacks.losses import Array, Composed, Pair
from tests.attacks.semantics import SHRINK, Message, Semantics, Unmodelled
from tests.attacks.worlds import Habit, World, between, remembered

VIEWS = ("world", "server", "chooser")
DELTAS = (1e-5, 1e-3, 0.05)
_ROUNDING = 1e-9  # of sums of a hundred thousand chances, and of the transform that adds losses
_HUGE = 1e6
_BEST = 3  # how many of the pairs that lie farthest apart are tried


@dataclass(frozen=True)
class Shape:
    """The model's layers, and how many coordinates more the first one has, where every row is zero."""

    layers: tuple[int, ...]
    idle: int = 0

    @property
    def dimension(self) -> int:
        """The length of a row."""
        return sum(self.layers) + self.idle


@dataclass(frozen=True)
class Violation:
    """An explicit attack that attains more than is printed."""

    round: Round
    population: int
    shape: Shape
    rounds: int
    unit: Unit
    view: str
    relation: Relation
    delta: float
    printed: float
    attained: float
    worlds: tuple[Any, Any]

    def __str__(self) -> str:
        one, other = self.worlds
        return (
            f"{text(self.round)}\n  {self.population} clients, dimension {self.shape.dimension}, {self.rounds} rounds; "
            f"{self.unit}, {self.relation.words}, against the {self.view}: printed {self.printed:.4f} at delta {self.delta}, "
            f"attained {self.attained:.4f}\n  one world:   {one}\n  the other:   {other}"
        )


@lru_cache(maxsize=100_000)
def printed(event: Event, rounds: int, delta: float, unit: Unit, relation: Relation) -> float | None:
    """The epsilon that would be printed; None if none is."""
    return guarantee(Repeated(event, rounds), delta, unit=unit, relation=relation, view="").epsilon


def violation(round: Round, population: int, shape: Shape, rounds: int = 1) -> Violation | None:
    """The worst that any attack finds above what is printed, or None. A refusal is raised, as is a round that none fits."""
    derivation = round.derive(population=population, dimension=shape.dimension)
    run = Semantics.of(round, derivation.primary.stddev)
    found: list[Violation] = []
    silence: Unmodelled | None = Unmodelled("no view has a guarantee")
    for unit, proof in derivation.units.items():
        for view in VIEWS:
            event = getattr(proof, view, None)
            if event is None:
                continue
            claims = [(d, e) for d in DELTAS if (e := printed(event, rounds, d, unit, proof.relation)) is not None]
            try:
                tried = attacks(round, run, population, shape, rounds, unit, proof.relation, view, claims)
            except Unmodelled as reason:
                silence = silence and reason
                continue
            silence = None
            for (worlds, seen), (delta, epsilon) in product(tried, claims):
                if seen.delta(epsilon) > delta * (1.0 + 1e-6) + _ROUNDING:
                    facts = (unit, view, proof.relation, delta, epsilon, seen.epsilon(delta), worlds)
                    found.append(Violation(round, population, shape, rounds, *facts))
    if silence is not None:
        raise silence
    return max(found, key=lambda one: one.attained - one.printed, default=None)


def attacks(
    round: Round,
    run: Semantics,
    population: int,
    shape: Shape,
    rounds: int,
    unit: Unit,
    relation: Relation,
    view: str,
    claims: list[tuple[float, float]],
) -> list[tuple[tuple[Any, Any], Composed]]:
    """The pairs of worlds that show most in one round, with what all rounds show of them, in both directions."""
    if round.personal is not None and rounds > 1:
        return list(_with_memory(round, run, population, shape, rounds, unit, relation, view))
    single = []
    for worlds in neighbours(round, run, population, shape, unit, relation):
        pair = between(run, worlds, view)
        single += [(worlds, pair), (worlds, pair.reversed)]
    if rounds == 1:
        return [(worlds, Composed([pair])) for worlds, pair in single]
    best: dict[int, None] = {}
    for delta, epsilon in claims:
        order = sorted(range(len(single)), key=lambda nth: -Composed([single[nth][1]]).delta(epsilon / rounds))
        best.update(dict.fromkeys(order[:_BEST]))
    result = []
    for worlds, pair in (single[nth] for nth in best):
        result.append((worlds, Composed([pair] * rounds)))
        if relation is Relation.REPLACE:  # who is swapped for whom may differ from round to round
            back = pair.reversed
            result.append((worlds, Composed([back if number % 2 else pair for number in range(rounds)])))
    return result


def neighbours(
    round: Round, run: Semantics, population: int, shape: Shape, unit: Unit, relation: Relation
) -> Iterator[tuple[World, World]]:
    """Pairs of worlds under the relation: the victim's messages, what the others send, and who drops out."""
    if isinstance(round.local, DpSgd):
        if unit is Unit.CLIENT:
            raise Unmodelled("clients whose rows are noisy before they are clipped")
        pairs = list(of_records(round.local, shape, relation))
    else:
        pairs = list(_of_rows(round, run, shape, unit, relation))
    size = run.sample.size if isinstance(run.sample, FixedSize) else population
    droppers = max(0, size - run.smallest) if run.smallest and run.sums else 0
    for (one, other, others), silent in product(pairs, range(droppers + 1)):
        if silent > population - 1 - min(run.curious, population - 1):
            continue
        worlds = [World(population - 1, victim, others, silent) for victim in (one, other)]
        yield worlds[0], worlds[1]
        if droppers and relation is Relation.ADD_REMOVE and unit is Unit.CLIENT:
            yield replace(worlds[0], victim_is_silent=True), worlds[1]


Victim = tuple[tuple[float, Message], ...] | None


def _of_rows(
    round: Round, run: Semantics, shape: Shape, unit: Unit, relation: Relation
) -> Iterator[tuple[Victim, Victim, Message]]:
    """Messages of a client that may choose its row, and, if its data may all change, its number of records."""
    every = [run.message(raw) for raw in _raw_rows(round, shape)]
    silent = every[0].of(np.zeros_like(every[0].values))
    pairs: list[tuple[Message, Message | None]]
    if relation is Relation.REPLACE:
        pairs = [(a, b) for a, b in product(every, every) if unit is Unit.CLIENT or a.records == b.records]
    elif relation is Relation.ADD_REMOVE:
        pairs = [(one, None) for one in every]
    else:
        pairs = [(one, silent) for one in every]
    pairs.sort(key=lambda two: -float(np.linalg.norm(two[0].values - (0.0 if two[1] is None else two[1].values))))
    for one, other in pairs[:_BEST]:
        along = sorted(every, key=lambda message, one=one: float(message.values @ one.values))  # type: ignore[misc]
        tried = {tuple(others.values): others for others in (along[0], along[-1], run.message(_zero(shape)))}
        for others in tried.values():
            yield ((1.0, one),), None if other is None else ((1.0, other),), others


def _zero(shape: Shape) -> Message:
    return Message(np.zeros(sum(shape.layers)), 1000, shape.layers, shape.idle)


def _raw_rows(round: Round, shape: Shape) -> Iterator[Message]:
    """Rows that pieces treat differently: huge or within an adaptive norm, in one layer or in all, of few records or many."""
    width = sum(shape.layers)
    firsts = np.cumsum([0, *shape.layers[:-1]])
    each_layer, first = np.zeros(width), np.zeros(width)
    each_layer[firsts], first[0] = 1.0, 1.0
    directions = {tuple(row): row / np.linalg.norm(row) for row in (first, each_layer, np.ones(width))}.values()
    lengths = [_HUGE] + [piece.start_norm for piece in round.client if isinstance(piece, AdaptiveClip)]
    weighed = any(isinstance(piece, WeightByExamples) for piece in round.client)
    sizes = (1000, 1) if weighed or getattr(round.aggregate, "by", "") == "examples" else (1000,)
    for direction, length, sign, records in product(directions, lengths, (1.0, -1.0), sizes):
        yield Message(sign * length / SHRINK * direction, records, shape.layers, shape.idle)
    yield _zero(shape)


def of_records(local: DpSgd, shape: Shape, relation: Relation) -> Iterator[tuple[Victim, Victim, Message]]:
    """DpSgd, as the sum of its steps' clipped sums: one record's gradient is huge; the other records' are zero or opposite.

    The learning rate, the divisor and the noise-free part are known, so they are taken off.
    """
    batch = local.batch
    joins = relation is Relation.ADD_REMOVE  # the declared number of records holds in both worlds
    rate = 1.0
    if isinstance(batch, Poisson):
        rate = batch.rate
    elif isinstance(batch, FixedSize):
        rate = batch.size / (local.records + joins)
    times = range(local.steps + 1)
    chances = [comb(local.steps, k) * rate**k * (1 - rate) ** (local.steps - k) for k in times]

    def drawn(move: float) -> Victim:
        return tuple((c, _along(shape, move * k)) for k, c in zip(times, chances, strict=True) if c)

    length, nothing = local.clip / SHRINK, _along(shape, 0.0)
    yield drawn(length), drawn(0.0 if joins else -length), nothing
    if isinstance(batch, FixedSize):
        yield drawn(2 * length), drawn(0.0), nothing  # every other record has the opposite gradient


def _along(shape: Shape, length: float) -> Message:
    values = np.zeros(sum(shape.layers))
    values[0] = length
    return Message(values, 1000, shape.layers, shape.idle)


_HABITS = [Habit(first, again) for first, again in product((1.0, -1.0, 0.0), repeat=2)]


def _with_memory(
    round: Round,
    run: Semantics,
    population: int,
    shape: Shape,
    rounds: int,
    unit: Unit,
    relation: Relation,
    view: str,
) -> Iterator[tuple[tuple[Any, Any], Composed]]:
    """Clients that send another row when they are drawn again."""
    if view != "world" or unit is Unit.RECORD or relation is Relation.ADD_REMOVE or rounds > 2:
        raise Unmodelled("memory over many rounds")
    message: Array = max((run.message(raw).values for raw in _raw_rows(round, shape)), key=np.linalg.norm)
    victims = [Habit(1.0, 1.0), Habit(1.0, -1.0)]
    for others, one in product(_HABITS, victims):
        other = Habit(-one.first, -one.again) if relation is Relation.REPLACE else Habit(0.0, 0.0)
        pair: Pair = remembered(run, population, message, (others, one, other), rounds)
        for way in (pair, pair.reversed):
            yield (f"others {others}, victim {one}", f"victim {other}"), Composed([way])
