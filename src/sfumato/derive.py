"""The walk: carry a claim through a round's slots, for each unit, and keep what every piece saw.

Nothing else in the program computes a sensitivity or attaches an event to a run. The engine hands each piece the claim
that reached it in this walk, so the noise that is drawn and the noise that is accounted are one number.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from types import BuiltinFunctionType, FunctionType
from typing import TYPE_CHECKING, Any

from sfumato.account.event import Event, NonPrivate, Nothing, Relation, Repeated, Unit
from sfumato.claim import Claim, Step, Steps, table, text
from sfumato.errors import BadValue, UnsoundRound

if TYPE_CHECKING:
    from sfumato.round import Round


@dataclass(frozen=True)
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
    swapped: UnitDerivation | None = None  # the same walk under replace, where that is another relation and is proven

    def times(self, rounds: int, start: int = 0) -> int:
        """How often the events are due from round `start` on, up to that many rounds; rounds are counted from 0."""
        return -(-rounds // self.every) - -(-start // self.every)

    def at(self, number: int, server: bool = False) -> Event | None:
        """What one round costs, by its number; None where nothing is proven against the server."""
        event = self.server if server else self.world
        return event if event is None or number % self.every == 0 else Nothing()

    def after(self, rounds: int, start: int = 0) -> Event:
        """What rounds `start` to `rounds` cost against everyone who sees the model."""
        times = self.times(rounds, start)
        return Repeated(self.world, times) if times else Nothing()


@dataclass(frozen=True)
class Derivation:
    """What is proven for a round at one population and dimension. `units` holds only what is proven."""

    population: int
    dimension: int
    primary: UnitDerivation  # of the unit that the round must hide
    units: dict[Unit, UnitDerivation]
    refused: dict[Unit, UnsoundRound]


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
    units: dict[Unit, UnitDerivation] = {}
    refused: dict[Unit, UnsoundRound] = {}
    for unit in Unit:
        try:
            proof = _walk(round, unit, population, dimension)
        except UnsoundRound as refusal:
            refused[unit] = refusal
            continue
        units[unit] = dataclasses.replace(proof, swapped=_under_replace(round, proof, population, dimension))
    if round.unit in refused:
        raise refused[round.unit]
    return Derivation(population, dimension, units[round.unit], units, refused)


def _under_replace(round: Round, proof: UnitDerivation, population: int, dimension: int) -> UnitDerivation | None:
    """The relation in which everything adds up: what runs under different relations spent is stated in it."""
    if proof.relation is Relation.REPLACE:
        return None
    try:
        return _walk(round, proof.unit, population, dimension, asked=Relation.REPLACE)
    except UnsoundRound:
        return None


def _walk(round: Round, unit: Unit, population: int, dimension: int, asked: Relation | None = None) -> UnitDerivation:
    relation = asked or (round.sample.relation if unit is Unit.CLIENT else Relation.REPLACE)
    remembers, is_asked = round.personal is not None, asked is not None
    claim = Claim(unit, relation, population, dimension, remembers=remembers, relation_is_asked=is_asked)
    steps: list[Step] = []
    before: list[Claim] = []
    try:
        for slot, piece in pieces(round):
            before.append(claim)
            claim = _carried(piece, claim)
            if slot == "client" and before[-1].share is not None:
                raise UnsoundRound(
                    f"{text(piece)} comes after the noise shares and may change the noise that they add up to.",
                    "put NoiseShare last in the client slot.",
                )
            claim = claim.assuming(*(f"as stated by {name}" for name in outsiders(piece)))
            steps.append(_stated(slot, piece, claim))
        if claim.world is None:
            raise UnsoundRound(
                "no piece of this round adds noise, so nothing is hidden from those who see the model.",
                "put AddNoise(Gaussian(noise_multiplier)) into the server slot; for a baseline without privacy, say "
                "nonprivate=True (recipe fedavg).",
            )
    except UnsoundRound as refusal:
        so_far = f"  ({relation.words}, one {unit})\n{table(tuple(steps))}" if steps else ""
        raise UnsoundRound(refusal.reason, refusal.fix, so_far) from None
    views, noise = (claim.world, claim.server, claim.chooser), (claim.stddev, claim.noise_sensitivity)
    proof = tuple(steps), tuple(before)
    return UnitDerivation(unit, claim.relation, *views, *noise, claim.assumptions, *proof, claim.every)


def _carried(piece: Any, claim: Claim) -> Claim:
    """What a piece states; that values lie on a grid, only if it says so itself."""
    after: Claim = piece.carry(claim)
    return after if after.grid is None or piece.keeps_grid else dataclasses.replace(after, grid=None)


_PLAIN = (type(None), bool, int, float, complex, str, bytes, Enum)
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


def _stated(slot: str, piece: Any, claim: Claim) -> Step:
    opening = f"neighbours: {claim.relation.words} one {claim.unit}"
    return Step(slot, text(piece), opening if slot == "sample" or claim.sampling is None else str(claim))


def _without_guarantee(round: Round, population: int, dimension: int) -> Derivation:
    """A round that claims nothing. The pieces still need the bounds that hold, so the walk goes on past a refusal."""
    none = NonPrivate("this is the baseline without privacy" if round.nonprivate else "its privacy could not be proven")
    claim = Claim(round.unit, round.sample.relation, population, dimension, sampling=round.sample)
    steps: list[Step] = []
    before: list[Claim] = []
    for slot, piece in pieces(round):
        before.append(claim)
        try:
            claim = _carried(piece, claim)
            steps.append(_stated(slot, piece, claim))
        except UnsoundRound as refusal:
            claim = piece.unproven(claim)
            steps.append(Step(slot, text(piece), refusal.reason, proven=False))
    views, noise = (none, none, none), (claim.stddev, None)
    unit = UnitDerivation(round.unit, round.sample.relation, *views, *noise, (), tuple(steps), tuple(before))
    return Derivation(population, dimension, unit, {unit.unit: unit}, {})
