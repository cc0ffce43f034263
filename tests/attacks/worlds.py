"""Two neighbouring worlds, and what each view sees of one round in them: the exact law, one part for each cohort."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np

from tests.attacks.losses import Array, Pair, Part, gaussian_masses, observed
from tests.attacks.semantics import Message, Semantics, Unmodelled, cohorts


@dataclass(frozen=True)
class World:
    """Who is there. The victim comes last; the first of the others are curious, the next ones drop out whenever drawn.

    `victim` holds the messages that it may send, with their chances (DpSgd draws batches); None if it is not there.
    """

    population: int  # without the victim
    victim: tuple[tuple[float, Message], ...] | None
    others: Message
    silent: int = 0
    victim_is_silent: bool = False

    def __str__(self) -> str:
        def shown(message: Message) -> str:
            return f"{np.round(message.values, 6).tolist()} ({message.records} records)"

        whom = "not there" if self.victim is None else " or ".join(f"{c:.3g}: {shown(m)}" for c, m in self.victim)
        drops = f", {self.silent} of them drop out" if self.silent else ""
        also = ", drops out" if self.victim_is_silent else ""
        return f"{self.population} others send {shown(self.others)}{drops}; the victim: {whom}{also}"


def law(run: Semantics, world: World, view: str) -> list[Part]:
    """What `view` sees of one round, exactly: the world, a server that samples honestly, or one that always draws the victim."""
    count = world.population + (world.victim is not None)
    curious = min(run.curious, world.population)
    found = []
    drawn_with = cohorts(run.sample, count)
    if view == "chooser":
        whole = sum(chance for chance, cohort in drawn_with if world.population in cohort)
        drawn_with = [(chance / whole, cohort) for chance, cohort in drawn_with if world.population in cohort]
    for chance, cohort in drawn_with:
        replied = [client for client in cohort if not _is_silent(run, world, client, curious)]
        drawn = world.population in cohort
        sends = world.victim if drawn and world.victim is not None else ((1.0, world.others),)
        for own, message in sends:
            messages = [message if client == world.population else world.others for client in replied]
            honest = sum(1 for client in replied if client >= curious)
            if run.smallest and len(replied) < run.smallest:
                part = Part(("given up", drawn if view != "world" else None), 1.0, (0.0,), 0.0)
            elif view == "world":
                known = tuple(client for client in cohort if client < curious)
                part = _released(run, known, messages, [client >= curious for client in replied])
            elif run.sums:
                total = sum((message.values for message in messages), np.zeros_like(message.values))
                who = ("sum", drawn, len(replied), honest)
                part = Part(who, 1.0, tuple(total), honest * run.message_stddev**2, message.idle)
            elif world.population in replied:
                part = Part("its message", 1.0, tuple(message.values), run.message_stddev**2, message.idle)
            else:
                part = Part("no message", 1.0, (0.0,), 0.0)
            found.append(Part(part.label, chance * own, part.mean, part.variance, part.idle))
    return found


def _is_silent(run: Semantics, world: World, client: int, curious: int) -> bool:
    if client == world.population:
        return world.victim_is_silent
    return curious <= client < curious + world.silent


def _released(run: Semantics, known: tuple[int, ...], messages: list[Message], hidden: list[bool]) -> Part:
    """The release, for those who know whether they were drawn themselves, what they sent, and their own noise."""
    weights = np.array([float(message.records) if run.by_examples else 1.0 for message in messages])
    over = run.over if run.over is not None else weights.sum()
    if not messages and run.over is None:
        return Part((known, "nobody"), 1.0, (0.0,), 0.0)
    noise = float((weights**2 * np.array(hidden, dtype=float)).sum()) * run.message_stddev**2 if messages else 0.0
    variance = noise / over**2 + run.server_stddev**2
    if not messages:
        return Part(known, 1.0, (), variance)  # its width is filled in by `between`
    total = np.asarray((weights[:, None] * np.array([message.values for message in messages])).sum(axis=0))
    if run.smoothing and messages[0].idle:
        raise Unmodelled("smoothing of what is mostly zero")
    return Part(known, 1.0, tuple(run.smoothed(total / over)), variance, messages[0].idle)


def between(run: Semantics, worlds: tuple[World, World], view: str) -> Pair:
    """What one round shows of the two worlds."""
    laws = [law(run, world, view) for world in worlds]
    width = max(len(part.mean) for parts in laws for part in parts)
    idle = worlds[0].others.idle
    filled = [
        [
            Part(p.label, p.chance, (*p.mean, *[0.0] * (width - len(p.mean))), p.variance, p.idle if p.mean else idle)
            for p in parts
        ]
        for parts in laws
    ]
    return observed(*filled)


@dataclass(frozen=True)
class Habit:
    """What a client with a memory sends: one thing the first time that it is drawn, another when it is drawn again."""

    first: float
    again: float

    def at(self, times: int) -> float:
        """How much of the message it sends, if it was drawn so often before."""
        return self.again if times else self.first


def remembered(
    run: Semantics, population: int, message: Array, habits: tuple[Habit, Habit, Habit], rounds: int
) -> Pair:
    """All rounds at once, where clients keep a memory: what the others do, and what the victim does in each of two worlds.

    Only the line of `message` is looked at, with the server's noise on it.
    """
    others, *victims = habits
    drawn = cohorts(run.sample, population)
    if len(drawn) ** rounds > 4096 or run.message_stddev or run.over is None or run.smoothing:
        raise Unmodelled("too many sequences of cohorts")
    length, curious = float(np.linalg.norm(message)) / run.over, min(run.curious, population - 1)
    worlds: list[dict[tuple[object, tuple[float, ...]], float]] = [{}, {}]
    for sequence in product(drawn, repeat=rounds):
        chance = float(np.prod([one for one, _ in sequence]))
        label = tuple(tuple(client for client in who if client < curious) for _, who in sequence)
        for world, victim in zip(worlds, victims, strict=True):
            before = [0] * population
            values = []
            for _, who in sequence:
                values.append(sum((victim if c == population - 1 else others).at(before[c]) for c in who))
                for client in who:
                    before[client] += 1
            key = (label, tuple(values))
            world[key] = world.get(key, 0.0) + chance
    return _on_a_grid(worlds, length / run.server_stddev, rounds)


def _on_a_grid(worlds: list[dict[tuple[object, tuple[float, ...]], float]], shift: float, rounds: int) -> Pair:
    """Cells of equal width in each round, jointly: the law of a few dependent rounds."""
    places = sorted({value for world in worlds for _, values in world for value in values})
    count = {1: 2000, 2: 200, 3: 50}[rounds]
    edges = np.concatenate([[-np.inf], np.linspace(shift * places[0] - 7, shift * places[-1] + 7, count), [np.inf]])
    masses = {value: gaussian_masses(edges, shift * value, 1.0) for value in places}
    labels = dict.fromkeys(label for world in worlds for label, _ in world)
    result: list[list[Array]] = [[], []]
    for label in labels:
        for nth, world in enumerate(worlds):
            total = np.zeros((count + 1,) * rounds)
            for (own, values), chance in world.items():
                if own == label:
                    joint = masses[values[0]]
                    for value in values[1:]:
                        joint = joint[..., None] * masses[value]
                    total += chance * joint
            result[nth].append(total.ravel())
    return Pair(np.concatenate(result[0]), np.concatenate(result[1]))
