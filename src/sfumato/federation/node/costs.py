"""What a run costs the one client that a node holds, as the node itself can know it.

Two kinds of cost, for each unit by itself:

- **Own.** The client's message is private when it leaves: noise at the client, private local steps, shares in a secure sum that
  is real. What is recorded is `chooser`, the event of one participation against whoever chose the cohort. It is true whatever
  the server does: it may choose the cohort, the parameters and how often it asks, each after it saw all answers before, and
  every answer is one more such event (adaptive composition). A request that arrives again gets the stored reply, and nothing is
  released twice. In a secure sum each session is another request: with other updates in it, a sum is another one. No
  amplification is believed, since only the server knows who was drawn and how. Shares in a secure sum against a server that
  follows its protocol are counted like this too, but they are not true whatever it does: such a server could play all other
  clients itself. So they are `trusting`, and allowed only where a promise suffices.
- **Promised.** The message leaves without noise of its own, and what hides the client is noise that the server promises to add,
  to a sum over a cohort that it promises to draw and to keep secret. What is recorded is `world` for every round that the
  run has or will have, since amplification counts the rounds in which the client is not drawn as well. It is true of everyone
  who sees the models, if the server keeps its promise; against the server nothing is proven, and nothing is recorded. A server
  that lies about its noise, its cohort or its number of rounds breaks it, and no node can see that. What it cannot do is
  to have a node record less than it was told: rounds begun again, further rounds and every different question count.
"""

from __future__ import annotations

from dataclasses import dataclass

from sfumato.account.event import Event, Nothing, Repeated, Unit
from sfumato.derive import UnitDerivation
from sfumato.federation.terms import Agreement
from sfumato.ledger.basis import Counted
from sfumato.ledger.spent import Cost, Costs
from sfumato.pieces.channel import SecureSum
from sfumato.secure_sum import Power


@dataclass(frozen=True)
class Dues:
    """What is proven for one client, apart by who must be believed."""

    client: int
    own: dict[Unit, UnitDerivation]
    promised: dict[Unit, UnitDerivation]
    trusting: frozenset[Unit] = (
        frozenset()
    )  # of the own ones, those that are true of a server that follows the secure sum
    rounds: int = 1  # of the run, by its terms

    @staticmethod
    def of(agreement: Agreement, client: int) -> Dues:
        own: dict[Unit, UnitDerivation] = {}
        promised: dict[Unit, UnitDerivation] = {}
        for unit, proof in agreement.derivation.units.items():
            kind = own if _leaves_private(agreement, part_of(proof, client)) else promised
            kind[unit] = proof
        active = agreement.terms.sum.get("power") == Power.ACTIVE.value
        trusting = (unit for unit, proof in own.items() if not active and _is_summed(agreement, part_of(proof, client)))
        return Dues(client, own, promised, frozenset(trusting), agreement.terms.rounds)

    @property
    def units(self) -> set[Unit]:
        return {*self.own, *self.promised}

    @property
    def planned(self) -> Counted:
        """The most that the run can cost by its terms: the promise of all its rounds, and an answer in each of them."""
        promise = [(self.of_promise(Heard(), Heard(self.rounds)), 1)] if self.promised else []
        return [*promise, *([(self.of_one_answer(), self.rounds)] if self.own else [])]

    def of_one_answer(self) -> Costs:
        """What one more answer costs; what the server has promised pays for the other units."""
        return self._costs(dict.fromkeys(self.own, 1), "chooser")

    def of_promise(self, before: Heard, now: Heard) -> Costs:
        """What is still to be recorded of a promise, of which everything up to `before` is."""
        more = {
            unit: max(0, now.events(part_of(proof, self.client)) - before.events(part_of(proof, self.client)))
            for unit, proof in self.promised.items()
        }
        return self._costs(more, "world")

    def _costs(self, times: dict[Unit, int], view: str) -> Costs:
        """A cost for each unit that is proven: an entry without one would say that nothing is."""
        found: dict[Unit, Cost] = {}
        for unit, proof in {**self.own, **self.promised}.items():
            cost = _cost(proof, self.client, view, times.get(unit, 0))
            assert cost is not None, "what is paid has an event in its view"
            found[unit] = cost
        return Costs(found)


@dataclass(frozen=True)
class Heard:
    """What a node has heard of a run: how many rounds the server's ledger will hold, and whether some were begun again."""

    count: int = 0
    anew: bool = False

    def events(self, proof: UnitDerivation) -> int:
        """The most events of one round that such a ledger can hold: where rounds are drawn anew, each counts in full."""
        if self.anew:
            return self.count
        return proof.times(self.count if proof.until is None else min(self.count, proof.until))

    def and_also(self, other: Heard) -> Heard:
        """The more of both.

        >>> Heard(7).and_also(Heard(3, anew=True))
        Heard(count=7, anew=True)
        """
        return Heard(max(self.count, other.count), self.anew or other.anew)


def part_of(proof: UnitDerivation, client: int) -> UnitDerivation:
    """The walk of one client's own group, where pieces tell clients apart; the first is that of all others."""
    if not proof.parts:
        return proof
    return next((part for who, part in proof.parts if client in who), proof.parts[0][1])


def _leaves_private(agreement: Agreement, proof: UnitDerivation) -> bool:
    """Whether the message hides the unit from the server itself.

    Shares add up in a sum. Where a secure sum is only named, and not agreed on, the server sees each message with one share.
    """
    return proof.chooser is not None and not (_is_summed(agreement, proof) and not agreement.terms.sum)


def _is_summed(agreement: Agreement, proof: UnitDerivation) -> bool:
    """Whether what hides the unit are shares that others add too, in a secure sum."""
    in_shares = any(claim.share is not None for claim in proof.before)
    return in_shares and isinstance(agreement.job.slots.round.channel, SecureSum)


def _cost(proof: UnitDerivation, client: int, view: str, times: int) -> Cost | None:
    """So many events of one view. What an own message costs is the same in both views; of a promise the server has none."""
    part = part_of(proof, client)
    event: Event | None = getattr(part, view)
    if times and event is None:
        return None
    happened = Nothing() if not times or event is None else event if times == 1 else Repeated(event, times)
    swapped = None if proof.swapped is None else _cost(proof.swapped, client, view, times)
    server = happened if view == "chooser" or not times else None
    return Cost(part.relation, happened, server, swapped)
