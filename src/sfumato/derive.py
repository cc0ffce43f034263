"""The walk: carry a claim through a round's slots, for each unit, and keep what every piece saw.

Nothing else in the program computes a sensitivity or attaches an event to a run. The engine hands each piece the claim
that reached it in this walk, so the noise that is drawn and the noise that is accounted are one number.
"""

from __future__ import annotations

import dataclasses
import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from types import BuiltinFunctionType, FunctionType
from typing import TYPE_CHECKING, Any

from sfumato.account.event import ByClient, Event, NonPrivate, Nothing, Relation, Repeated, Unit
from sfumato.claim import Claim, Reach, Step, Steps, table, text
from sfumato.errors import BadValue, UnsoundRound

if TYPE_CHECKING:
    from sfumato.round import Round


@dataclass(frozen=True, repr=False)
class UnitDerivation:
    """What is proven for one unit: its relation, the event of one round in each view, and the steps that led there."""

    unit: Unit
    relation: Relation
    world: Event
    server: Event | None  # which samples honestly
    chooser: Event | None  # the server, if it may choose the cohort
    stddev: float | None
    sensitivity: float | None
    assumptions: tuple[str, ...]
    steps: Steps
    before: tuple[Claim, ...]  # the claim that reached each piece, in the order of `pieces(round)`
    every: int = 1  # the events are due in the first of so many rounds, and pay for all of them
    until: int | None = None  # how many rounds are taken part in, counted from the first; None: all
    swapped: UnitDerivation | None = None  # the same walk under replace, where that is another relation and is proven
    parts: tuple[tuple[tuple[int, ...], UnitDerivation], ...] = ()  # a walk for each group of clients; first all others

    def __repr__(self) -> str:
        return f"UnitDerivation(one {self.unit}, {self.relation.words}; each round costs: {_short(self.world.words())})"

    def times(self, rounds: int, start: int = 0, since: int = 0) -> int:
        """How often the events are due from round `start` on, up to that many rounds; rounds are counted from 0.

        They are due in the first of `every` rounds since the run was started or resumed: what lasts for several rounds, such as
        groups of clients, is drawn again then.
        """
        return -(-(rounds - since) // self.every) - -(-(start - since) // self.every)

    def at(self, number: int, server: bool = False, since: int = 0) -> Event | None:
        """What one round costs, by its number; None where nothing is proven against the server."""
        if self.parts:
            return _by_client([(who, part.at(number, server, since)) for who, part in self.parts])
        event = self.server if server else self.world
        due = self.times(number + 1, number, since) > 0 and (self.until is None or number < self.until)
        return event if event is None or due else Nothing()

    def kind_of(self, number: int, since: int = 0) -> tuple[bool, int]:
        """What decides what a round costs: rounds of one kind cost the same."""
        return self.times(number + 1, number, since) > 0, bisect_right(self._ends, number)

    def again(self, restarts: int, checkpoint_every: int) -> int:
        """How many more events interruptions can make due: each repeats the rounds since a checkpoint, and draws groups again.

        Segments of l_i rounds are due ceil(l_i / every) events each, at most (l_i + every - 1) / every.
        """
        return -(-restarts * (checkpoint_every + self.every - 1) // self.every)

    @property
    def is_steady(self) -> bool:
        """Whether every round costs the same."""
        return self.every == 1 and not self._ends

    @cached_property
    def _ends(self) -> list[int]:
        """After which rounds some clients have stopped."""
        ends = (part.until for part in (self, *(part for _, part in self.parts)))
        return sorted({end for end in ends if end is not None})

    def after(self, rounds: int, start: int = 0, since: int = 0) -> Event:
        """What rounds `start` to `rounds` cost against anyone who sees the released models."""
        event = self.seen("world", rounds, start, since)
        assert event is not None, "everyone's view has an event"
        return event

    def seen(self, view: str, rounds: int, start: int = 0, since: int = 0) -> Event | None:
        """What rounds `start` to `rounds` cost in one view; None where nothing is proven there."""
        if self.parts:
            return _by_client([(who, part.seen(view, rounds, start, since)) for who, part in self.parts])
        event: Event | None = getattr(self, view)
        last = rounds if self.until is None else max(start, min(rounds, self.until))
        times = self.times(last, start, since)
        return event if event is None else Repeated(event, times) if times else Nothing()


def _by_client(found: list[tuple[tuple[int, ...], Event | None]]) -> Event | None:
    """The events of groups of clients as one; the first is that of all whom no other group names."""
    groups: dict[Event, list[int]] = {}
    for who, event in found:
        if event is None:
            return None
        groups.setdefault(event, []).extend(who)
    default, *others = groups.items()
    if not others:
        return default[0]
    return ByClient(default[0], tuple((tuple(sorted(who)), event) for event, who in others))


@dataclass(frozen=True, repr=False)
class Derivation:
    """What is proven for a round at one population and dimension. `units` holds only what is proven."""

    population: int
    dimension: int
    primary: UnitDerivation  # of the unit that the round must hide
    units: dict[Unit, UnitDerivation]
    refused: dict[Unit, UnsoundRound]

    def by_whole_client(self, unit: Unit) -> bool:
        """Whether what is proven for a record is what is proven for a client whose data are all replaced: that bounds any change
        inside the client, one record's included, and says nothing smaller of one record (PRIVACY R16).
        """
        client, record = self.units.get(Unit.CLIENT), self.units.get(Unit.RECORD)
        if unit is not Unit.RECORD or client is None or record is None:
            return False
        replaced = client.swapped or client
        return all(getattr(record, part) == getattr(replaced, part) for part in ("relation", *_VIEWS))

    def __repr__(self) -> str:
        proven = " and ".join(f"one {unit}" for unit in self.units) or "nobody"
        return f"Derivation({self.population:,} clients, dimension {self.dimension:,}; for {proven})"


def pieces(round: Round) -> Iterator[tuple[str, Any]]:
    """Every piece with its slot, in the order of the walk."""
    yield "sample", round.sample
    yield "local", round.local
    yield from (("client", piece) for piece in round.client)
    yield "channel", round.channel
    yield "aggregate", round.aggregate
    yield from (("server", piece) for piece in round.server)
    yield "optimizer", round.optimizer
    if round.personal is not None:
        yield "personal", round.personal


def derive(round: Round, population: int, dimension: int) -> Derivation:
    """The events of one round for each unit and each view, or a refusal with its reason and its fix."""
    if population < 1:
        raise BadValue(f"population={population}: declare how many clients there are, at least 1.")
    if round.nonprivate or round.unproven:
        return _without_guarantee(round, population, dimension)
    told = _Told.of(round)
    units: dict[Unit, UnitDerivation] = {}
    refused: dict[Unit, UnsoundRound] = {}
    for unit in Unit:
        try:
            proof = _walks(told, unit, population, dimension)
        except UnsoundRound as refusal:
            refused[unit] = refusal
            continue
        units[unit] = dataclasses.replace(proof, swapped=_under_replace(told, proof, population, dimension))
    if round.unit in refused:
        raise refused[round.unit]
    return Derivation(
        population=population, dimension=dimension, primary=units[round.unit], units=units, refused=refused
    )


def _under_replace(told: _Told, proof: UnitDerivation, population: int, dimension: int) -> UnitDerivation | None:
    """The relation in which everything adds up: what runs under different relations spent is stated in it."""
    if proof.relation is Relation.REPLACE:
        return None
    try:
        return _walks(told, proof.unit, population, dimension, asked=Relation.REPLACE)
    except UnsoundRound:
        return None


PUBLIC_SETTINGS = "each client's budget and settings are public: they were chosen without its data"


@dataclass(frozen=True)
class _Told:
    """A round, and for each piece its slot, its text and who outside the library made it: what no walk changes."""

    round: Round
    pieces: tuple[tuple[str, Any, str, tuple[str, ...]], ...]

    @staticmethod
    def of(round: Round) -> _Told:
        found = ((slot, piece, _short(text(piece)), tuple(outsiders(piece))) for slot, piece in pieces(round))
        return _Told(round, tuple(found))


def _walks(told: _Told, unit: Unit, population: int, dimension: int, asked: Relation | None = None) -> UnitDerivation:
    """One walk for each group of clients that every piece treats alike.

    What a client's own walk states holds for it whatever the others' settings are: they are public, the same in both
    neighbouring worlds, and a claim bounds what this client moves. All together are only as safe as the one that pays most.
    """
    found = [
        (who, _walk(told, unit, population, dimension, asked, who[0] if who else None))
        for who in _alike(told.round, population)
    ]
    (_, first), *others = found
    if not others:
        return first
    alike = {(proof.relation, proof.every, tuple(map(_for_all, proof.before))) for _, proof in found}
    if len(alike) > 1:
        raise UnsoundRound(
            "the clients' own settings lead to different relations or bounds of the same value, so what is drawn for one would "
            "not be what is accounted for another.",
            "give all clients the same pieces, with other norms, rates or noise.",
        )
    if len({(proof.until, *(getattr(proof, view) for view in _VIEWS)) for _, proof in found}) == 1:
        return first
    views: dict[str, Any] = {view: _by_client([(who, getattr(one, view)) for who, one in found]) for view in _VIEWS}
    said = (sentence for _, proof in found for sentence in proof.assumptions)
    views["assumptions"] = (*dict.fromkeys(said), PUBLIC_SETTINGS)
    widest = max((proof.sensitivity for _, proof in found if proof.sensitivity is not None), default=None)
    steps = tuple(map(_told_apart, zip(*(proof.steps for _, proof in found), strict=True)))
    return dataclasses.replace(first, **views, sensitivity=widest, steps=steps, until=None, parts=tuple(found))


_VIEWS = ("world", "server", "chooser")


def _alike(round: Round, population: int) -> list[tuple[int, ...]]:
    """The clients in groups that every piece treats alike; first those that no piece names, as nobody, if there are any."""
    places: dict[int, list[tuple[int, int]]] = {}
    for nth, (_, piece) in enumerate(pieces(round)):
        for place, who in enumerate(piece.named):
            if who and max(who) >= population:
                raise BadValue(
                    f"{type(piece).__name__} names client {max(who)}, but there are {population}: numbers begin at 0."
                )
            for client in who:
                places.setdefault(client, []).append((nth, place))
    groups: dict[tuple[tuple[int, int], ...], list[int]] = {}
    for client, found in places.items():
        groups.setdefault(tuple(found), []).append(client)
    named = sorted((tuple(sorted(who)) for who in groups.values()), key=lambda who: (-len(who), who))
    return named if len(places) == population else [(), *named]


def _for_all(claim: Claim) -> Claim:
    """What the engine reads of a claim, which must be the same for every client."""
    own: dict[str, Any] = dict.fromkeys(("client", "until", "narrow", *_VIEWS, "stddev", "noise_sensitivity"))
    return dataclasses.replace(claim, assumptions=(), **own)


def _told_apart(steps: tuple[Step, ...]) -> Step:
    """A step as it is for most, and in how many other ways it is for some."""
    first, others = steps[0], {step.states for step in steps[1:]} - {steps[0].states}
    if not others:
        return first
    more = others.pop() if len(others) == 1 else f"{len(others)} other bounds"
    return dataclasses.replace(first, states=f"{first.states}; for some clients: {more}")


def _walk(
    told: _Told,
    unit: Unit,
    population: int,
    dimension: int,
    asked: Relation | None = None,
    client: int | None = None,
) -> UnitDerivation:
    round = told.round
    relation = asked or (round.sample.relation if unit is Unit.CLIENT else Relation.REPLACE)
    remembers, is_asked = round.personal is not None, asked is not None
    alike = not any(piece.named for _, piece in pieces(round))
    facts: dict[str, Any] = {"remembers": remembers, "relation_is_asked": is_asked, "client": client, "alike": alike}
    claim = Claim(unit=unit, relation=relation, population=population, dimension=dimension, **facts)
    steps: list[Step] = []
    before: list[Claim] = []
    try:
        for slot, piece, words, makers in told.pieces:
            before.append(claim)
            claim = _carried(piece, claim, bool(makers))
            if slot == "client" and before[-1].share is not None:
                raise UnsoundRound(
                    f"{text(piece)} comes after the noise shares and may change the noise that they add up to.",
                    "put NoiseShare last in the client slot.",
                )
            claim = claim.assuming(*(f"as stated by {name}" for name in makers))
            steps.append(_stated(slot, words, claim))
        if claim.world is None:
            raise UnsoundRound(
                "no piece of this round adds noise, so nothing is hidden from those who see the model.",
                "put AddNoise(Gaussian(noise_multiplier)) into the server slot; for a baseline without privacy, say "
                "nonprivate=True (recipe fedavg).",
            )
    except UnsoundRound as refusal:
        so_far = f"  ({relation.words}, one {unit})\n{table(tuple(steps))}" if steps else ""
        raise UnsoundRound(refusal.reason, refusal.fix, so_far) from None
    return UnitDerivation(
        unit=unit,
        relation=claim.relation,
        world=claim.world,
        server=claim.server,
        chooser=claim.chooser,
        stddev=claim.stddev,
        sensitivity=claim.noise_sensitivity,
        assumptions=claim.assumptions,
        steps=tuple(steps),
        before=tuple(before),
        every=claim.every,
        until=claim.until,
    )


def _carried(piece: Any, claim: Claim, foreign: bool = False) -> Claim:
    """What a piece states; that values lie on a grid, or closer together than their norms say, only if it says so itself.

    A piece from outside that states something new and does not speak of one client's own bound may have undone it, also
    where it states for everybody the very norm that was stated before: then everybody's bound is that client's.
    """
    after: Claim = piece.carry(claim)
    if foreign and after is not claim and after.narrow is claim.narrow:
        after = dataclasses.replace(after, narrow=None)
    if not piece.keeps_distances:
        after = dataclasses.replace(after, apart=Reach(), record=Reach(), parts=1)
    return after if after.grid is None or piece.keeps_grid else dataclasses.replace(after, grid=None)


_PLAIN = (type(None), bool, int, float, complex, str, bytes, Enum)
_LONGEST = 120
_LIBRARIES = ("builtins", "torch", "numpy", "scipy")


def outsiders(piece: Any) -> list[str]:
    """The names of classes and functions that are not the library's own, in a piece and in what it is made of."""
    if isinstance(piece, _PLAIN):
        return []
    parts: Iterable[Any] = ()
    found: list[str] = []
    if isinstance(piece, Mapping):
        parts = (*piece.keys(), *piece.values())
    elif isinstance(piece, tuple | list | set | frozenset):
        parts = piece
    else:
        named = piece if isinstance(piece, type | FunctionType | BuiltinFunctionType) else type(piece)
        home = str(named.__module__)
        own = home.startswith("sfumato.") and getattr(sys.modules.get(home), named.__name__, None) is named
        found = [] if own or home.partition(".")[0] in _LIBRARIES else [f"{home}.{named.__qualname__}"]
        if dataclasses.is_dataclass(piece):
            parts = [getattr(piece, part.name) for part in dataclasses.fields(piece)]
    return list(dict.fromkeys([*found, *(name for part in parts for name in outsiders(part))]))


def _short(words: str) -> str:
    """As much of a piece as a table has room for: one that names many clients is long."""
    return words if len(words) <= _LONGEST else f"{words[: _LONGEST - 4]} ..."


def _stated(slot: str, words: str, claim: Claim) -> Step:
    opening = f"neighbours: {claim.relation.words} one {claim.unit}"
    return Step(slot, words, opening if slot == "sample" or claim.sampling is None else str(claim))


def _without_guarantee(round: Round, population: int, dimension: int) -> Derivation:
    """A round that claims nothing. The pieces still need the bounds that hold, so the walk goes on past a refusal."""
    none = NonPrivate("this is the baseline without privacy" if round.nonprivate else "its privacy could not be proven")
    claim = Claim(
        unit=round.unit,
        relation=round.sample.relation,
        population=population,
        dimension=dimension,
        sampling=round.sample,
    )
    steps: list[Step] = []
    before: list[Claim] = []
    for slot, piece in pieces(round):
        before.append(claim)
        try:
            claim = _carried(piece, claim)
            steps.append(_stated(slot, _short(text(piece)), claim))
        except UnsoundRound as refusal:
            claim = piece.unproven(claim)
            steps.append(Step(slot, text(piece), refusal.reason, proven=False))
    unit = UnitDerivation(
        unit=round.unit,
        relation=round.sample.relation,
        world=none,
        server=none,
        chooser=none,
        stddev=claim.stddev,
        sensitivity=None,
        assumptions=(),
        steps=tuple(steps),
        before=tuple(before),
    )
    return Derivation(population=population, dimension=dimension, primary=unit, units={unit.unit: unit}, refused={})
