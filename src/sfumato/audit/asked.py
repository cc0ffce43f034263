"""What an audit is asked: which round, for whose data, who looks; and where in the round its noise is paid for."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from sfumato.account.auto import Auto
from sfumato.account.event import ByClient, Composed, Event, NonPrivate, Relation, Unit, why_not_private
from sfumato.claim import Claim
from sfumato.derive import Derivation, UnitDerivation, pieces
from sfumato.errors import BadValue, nearest
from sfumato.pieces.law import Laplace
from sfumato.round import Round
from sfumato.update import Layout

if TYPE_CHECKING:
    from sfumato.run.basis import Basis
    from sfumato.run.prepare import Prepared

OTHERS = ("auto", "zero", "opposite", "real")
VIEWS = ("world", "server")


class NoCanary(BadValue):
    """No canary is known for this round: nothing is measured, and nothing is wrong."""


@dataclass(frozen=True)
class Asked:
    """A round and its settings, as a run has them. `others` is what clients beside the canary send.

    `before` is what was paid before the first round, for features say: no canary attacks it, and it is part of what is claimed.
    """

    round: Round
    population: int
    dimension: int
    rounds: int
    unit: Unit
    view: str = "world"
    others: str = "auto"
    layers: int = 1
    before: Event | None = None

    @staticmethod
    def of(
        prepared: Prepared, rounds: int, unit: Unit | None = None, view: str = "world", others: str = "auto"
    ) -> Asked:
        """About a run that is ready to begin, or has been; without `unit`, about what its round protects."""
        layout, round, size = Layout.of(prepared.module), prepared.round, prepared.population.size
        length, layers = round.local.message_length(layout), len(layout.sizes)
        before = None if prepared.basis is None else _before(prepared.basis, unit or round.unit, view)
        return Asked(round, size, length, rounds, unit or round.unit, view, others, layers, before)

    def __post_init__(self) -> None:
        for word, known in ((self.others, OTHERS), (self.view, VIEWS)):
            if word not in known:
                raise BadValue(f"{word!r} is not known to an audit. {nearest(word, known)}")

    @cached_property
    def derivation(self) -> Derivation:
        return self.round.derive(population=self.population, dimension=self.dimension)

    @cached_property
    def proof(self) -> UnitDerivation:
        """What is proven for the unit; for a round that is not proven, the walk that was tried."""
        if self.round.unproven:
            return self.derivation.primary
        if self.unit not in self.derivation.units:
            raise self.derivation.refused[self.unit]
        return self.derivation.units[self.unit]

    @property
    def event(self) -> Event | None:
        """What is proven that all rounds cost in this view; None where nothing is."""
        if self.round.unproven or self.unit in self.derivation.refused:
            return None
        return _private(self.proof.seen(self.view, self.rounds))

    @property
    def whole(self) -> Event | None:
        """What is proven that the rounds and what came before them cost together; None where nothing is."""
        if self.event is None or self.before is None:
            return self.event
        return _private(Composed((self.before, self.event)))

    @property
    def attained(self) -> bool:
        """Whether some worlds are as far apart as is proven, with any noise: only then a member of the family has its epsilon.

        They are not where Renyi divergence is all that is known, where Laplace noise is paid by an L1 norm that no single
        coordinate has, and where a cohort that is not seen is priced for a longer move than the unit's own.
        """
        if self.event is None or "rdp" in Auto().choose(self.event).name:
            return False
        slot, piece, claim = self.payment.slot, self.payment.piece, self.payment.claim
        if isinstance(getattr(piece, "law", None), Laplace) and (
            piece.order > 1 if slot == "local" else claim.l1 > claim.l2
        ):
            return False
        if slot in ("local", "client") or self.view == "server" or claim.sampling is None:
            return True
        own = claim.presence_is_hidden or claim.reach() == claim.moved
        return claim.sampling.chance(claim) == 1.0 or (own and not claim.barely_moves)

    @property
    def relation(self) -> Relation:
        """The relation of what is claimed."""
        if self.round.unproven:
            return self.derivation.primary.relation
        if self.unit in self.derivation.refused:
            return self.round.sample.relation if self.unit is Unit.CLIENT else Relation.REPLACE
        return self.proof.relation

    @cached_property
    def payment(self) -> Payment:
        """Where the round is paid for."""
        if any(isinstance(part, ByClient) for part in self.proof.world.walk()):
            raise NoCanary(
                "clients of this round have settings of their own, and canaries stand for clients that are alike. Audit a round "
                "without budgets of single clients."
            )
        every = list(zip(pieces(self.round), self.proof.before, strict=True))
        for nth, ((slot, piece), claim) in enumerate(every[:-1]):
            paid = claim.world is None and every[nth + 1][1].world is not None
            if paid or (self.round.unproven and slot in ("local", "client", "server") and _noise(piece)):
                same = [other for other, ((name, _), _) in enumerate(every) if name == slot]
                return Payment(slot, same.index(nth), piece, claim)
        raise NoCanary("no piece of this round adds noise that is known, so no score can be made for it")


def _before(basis: Basis, unit: Unit, view: str) -> Event:
    """What a basis of features costs this unit in this view."""
    facts = basis.proof.before[0]
    proof = basis.round.derive(population=facts.population, dimension=facts.dimension).units.get(unit)
    return (None if proof is None else proof.seen(view, 1)) or NonPrivate("the basis of its features is not hidden")


def _private(event: Event | None) -> Event | None:
    return None if event is None or why_not_private(event) is not None else event


def _noise(piece: Any) -> bool:
    return piece.noise_and_norm() is not None


@dataclass(frozen=True)
class Payment:
    """The piece that pays, its slot and place there, and the claim that reached it."""

    slot: str
    nth: int
    piece: Any = field(repr=False)
    claim: Claim = field(repr=False)
