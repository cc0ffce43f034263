"""The two halves of a round around its sum: every piece gets the claim that reached it in the derivation, and its own key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch

from sfumato.claim import Claim
from sfumato.data.population import PublicData
from sfumato.derive import UnitDerivation, pieces
from sfumato.engine.keys import Keys, client_key
from sfumato.errors import BadValue
from sfumato.key import Key
from sfumato.pieces.context import Context, Facts, MessageContext
from sfumato.pieces.mean import Divide
from sfumato.pieces.protocol import Aggregate, ControlPiece, MessageAggregate, State, StepRule
from sfumato.round import Round
from sfumato.update import Layout

Kept = dict[str, torch.Tensor]  # what pieces keep between rounds, and the last release
_PREVIOUS, _CONTROL = "previous", "control"
_PART = 2**13  # coordinates of all messages that are added at once, so that their float64 copies stay in the cache


def _no_training(data: PublicData) -> torch.Tensor:
    raise NotImplementedError("this engine cannot train on public data")


@dataclass(frozen=True)
class Opening:
    """What is fixed for a whole round before any client is loaded, and sent to its clients: public values, and a key that
    all of them share. Nothing of the server's can be computed from it.
    """

    number: int
    key: Key
    kept: Kept = field(default_factory=dict)  # by the client pieces: functions of what was released
    prepared: dict[int, torch.Tensor] = field(default_factory=dict)
    local: torch.Tensor | None = None  # what local training prepared

    def to(self, device: torch.device | str) -> Opening:
        """The same where the parameters are: pieces prepare and keep their tensors wherever they like."""
        kept = {place: value.to(device) for place, value in self.kept.items()}
        prepared = {nth: value.to(device) for nth, value in self.prepared.items()}
        local = None if self.local is None else self.local.to(device)
        return replace(self, kept=kept, prepared=prepared, local=local)


@dataclass(frozen=True)
class Slots:
    """A round that was derived, ready to be run by any engine. Pieces are counted within their own slot."""

    round: Round
    proof: UnitDerivation
    layout: Layout

    @property
    def alone(self) -> bool:
        """Whether each client must be computed alone: rounding beside others would make its row on a grid depend on them."""
        return any(claim.grid is not None for claim in self.proof.before)

    @property
    def length(self) -> int:
        return self.round.local.message_length(self.layout)

    @property
    def sums(self) -> bool:
        """Whether the aggregate adds messages, and need not see them."""
        return isinstance(self.round.aggregate, Aggregate)

    @property
    def permutes(self) -> bool:
        return permutes(self.round)

    @property
    def gathers(self) -> bool:
        return gathers(self.round)

    @property
    def control(self) -> ControlPiece | None:
        return self.round.personal if isinstance(self.round.personal, ControlPiece) else None

    def shared_control(self, opening: Opening) -> torch.Tensor:
        """The control variate that the server keeps."""
        return opening.kept[_CONTROL]

    def control_length(self, number: int) -> float:
        length = self.round.local.controlled(number)
        if length is None:
            raise BadValue(
                f"{self.round.personal} needs local training of plain steps, as many for every client, that add what they are "
                "given to each gradient. Use Sgd(lr, steps=...) without momentum or a ball, or DpSgd with "
                "GradientDescent; the same steps and learning rate for every client."
            )
        return length

    @property
    def sent(self) -> Claim:
        """What is known of a message when it is sent: the claim that reached the channel."""
        return self._claims("channel")[0]

    def _claims(self, wanted: str) -> list[Claim]:
        return [claim for (slot, _), claim in zip(pieces(self.round), self.proof.before, strict=True) if slot == wanted]

    def start(self) -> Kept:
        """What pieces keep before the first round."""
        found = {_place("client", nth): piece.start() for nth, piece in enumerate(self.round.client)}
        found.update({_place("server", nth): piece.start() for nth, piece in enumerate(self.round.server)})
        if self.control is not None:
            found[_CONTROL] = torch.zeros(self.layout.dimension)
        return {place: value for place, value in found.items() if value is not None}

    def width(self, opening: Opening, device: torch.device | str = "cpu") -> int:
        """How many coordinates a message has; the opening's tensors are on this device."""
        nobody, sizes = torch.zeros(0, self.length, device=device), torch.zeros(0, dtype=torch.int64, device=device)
        return int(self.messages(nobody, sizes, (), opening, ()).shape[1])

    def check(self, seen: MessageContext) -> None:
        """Go through a round with nobody's data, so that pieces that do not fit together are refused before anything is spent."""
        keys, device = Keys.of(Key.from_seed(0)), seen.params.device
        kept = {place: value.to(device) for place, value in self.start().items()}
        state = self.round.optimizer.start(seen.params)
        trained = torch.zeros(self.length, device=device)
        opening = self.open(0, keys.opening(0), kept, lambda data: trained, state).to(device)
        rows, sizes = trained.expand(2, -1).clone(), torch.ones(2, dtype=torch.int64, device=device)
        messages = self.messages(
            rows, sizes, [client_key(keys.clients, client, 0) for client in range(2)], opening, range(2)
        )
        if self.control is not None and messages.shape[1] != self.layout.dimension:
            raise BadValue(
                f"{self.round.personal} speaks of the model's own {self.layout.dimension} coordinates, but messages have "
                f"{messages.shape[1]}. Leave out SharedMask, AdaptiveClip and whatever else changes their number."
            )
        if self.control is not None:
            self.control_length(0)
        total = self.weighted_sum(messages, sizes) if self.sums else (messages, 2.0)
        value, _ = self.release(*total, opening, keys, kept, seen)
        if len(value) != self.length:
            raise BadValue(
                f"the client pieces make rows of {self.length} coordinates into messages that are undone to {len(value)}. Give "
                "each piece that changes the number of coordinates an undo(value, context) that gives them back."
            )
        if self.length == self.layout.dimension:
            return
        why = f"local training sends {self.length} coordinates, and the model has {self.layout.dimension} parameters"
        if isinstance(self.round.optimizer, StepRule):
            raise BadValue(
                f"{why}: {self.round.optimizer} cannot step along them. Give an optimizer that learns from them."
            )
        if self.round.personal is not None:
            raise BadValue(f"{why}, so no client has a model of its own to keep. Leave the personal piece out.")

    def open(
        self,
        number: int,
        key: Key,
        kept: Kept | None = None,
        train: Callable[[PublicData], torch.Tensor] = _no_training,
        state: State | None = None,
    ) -> Opening:
        """Let the pieces prepare what all clients share. `key` is that of the round's opening, `state` the optimizer's."""
        kept = self.start() if kept is None else kept
        facts = Facts(
            layout=self.layout, key=key.child("prepare"), previous=kept.get(_PREVIOUS), train=train, state=state or {}
        )
        prepared = {}
        for nth, piece in enumerate(self.round.client):
            found = piece.prepare(replace(facts, key=key.child("prepare", nth=nth)))
            if found is not None:
                prepared[nth] = found
        public = {place: value for place, value in kept.items() if not place.startswith("server.")}
        return Opening(number=number, key=key, kept=public, prepared=prepared, local=self.round.local.prepare(facts))

    def _client_context(self, nth: int, opening: Opening) -> Context:
        claim, key = self._claims("client")[nth], opening.key.child("piece", nth=nth)
        state, prepared = opening.kept.get(_place("client", nth)), opening.prepared.get(nth)
        return Context(round=opening.number, layout=self.layout, claim=claim, key=key, prepared=prepared, state=state)

    def messages(
        self,
        rows: torch.Tensor,
        sizes: torch.Tensor,
        keys: Sequence[Key],
        opening: Opening,
        ids: Sequence[int],
        failed: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """What the clients send: the rows after the client slot, which may write over them. `keys` are the clients' own.

        Those that `failed` have zero rows, to which the client's own noise or share is added like to any other.
        """
        for nth, piece in enumerate(self.round.client):
            own = tuple(key.child("piece", nth=nth) for key in keys)
            spare = nth == 0 and self.round.personal is None  # what training gave, and nobody keeps
            context = replace(self._client_context(nth, opening), sizes=sizes, keys=own, ids=tuple(ids), spare=spare)
            rows = piece(rows, replace(context, failed=failed))
        return rows

    def weighted_sum(self, messages: torch.Tensor, sizes: torch.Tensor) -> tuple[torch.Tensor, float]:
        """The sum of the weighted messages, exact to float64 (one message is its own), and the sum of the weights."""
        assert isinstance(self.round.aggregate, Aggregate), "it adds"
        weights = self.round.aggregate.weights(sizes)
        alike = bool((weights == 1).all())
        if alike and len(messages) == 1:
            return messages[0], 1.0
        total = torch.empty(messages.shape[1], dtype=torch.float64, device=messages.device)
        for sum_of, some in zip(torch.split(total, _PART), torch.split(messages, _PART, dim=1), strict=True):
            torch.sum(some.double() if alike else some.double() * weights[:, None], 0, out=sum_of)
        return total, float(weights.sum())

    def _aggregate(self, total: torch.Tensor, weight: float, seen: MessageContext | None) -> torch.Tensor:
        aggregate = self.round.aggregate
        if isinstance(aggregate, Aggregate):
            return aggregate.finish(total.double(), weight)  # float64 until the noise is in it
        assert isinstance(aggregate, MessageAggregate) and seen is not None, "it sees messages"
        (claim,) = self._claims("aggregate")
        found = aggregate.combine(total, replace(seen, claim=claim)) if len(total) else total.new_zeros(total.shape[1])
        return found.double()

    def release(
        self,
        total: torch.Tensor,
        weight: float,
        opening: Opening,
        keys: Keys,
        kept: Kept,
        seen: MessageContext | None = None,
    ) -> tuple[torch.Tensor, Kept]:
        """What the server makes of the sum, or of all messages that it has `seen`, and what is kept for the next round.

        As soon as the value is paid for and divided, what client pieces did to its shape and scale is undone, last piece first.
        A division right after the noise comes before that: what a piece follows is the mean, wherever it was divided.
        """
        value = self._aggregate(total, weight, seen)
        later, undone = dict(kept), False
        for nth, (piece, claim) in enumerate(zip(self.round.server, self._claims("server"), strict=True)):
            if claim.paid and not undone and not isinstance(piece, Divide):
                value, undone = self._undo(value, opening, later), True
            own, state = keys.server_piece(nth, opening.number), kept.get(_place("server", nth))
            context = Context(
                round=opening.number, layout=self.layout, claim=claim, key=own, state=state, stream=keys.stream(nth)
            )
            value = piece(value, context)
            _keep(later, _place("server", nth), piece.follow(value, context))
        if not undone:
            value = self._undo(value, opening, later)
        value = value.float()
        if any(piece.needs_previous for piece in self.round.client):
            later[_PREVIOUS] = value
        if self.control is not None:
            population = self.proof.before[0].population
            share = self.round.sample.expected(population) / population
            later[_CONTROL] = self.control.follow(kept[_CONTROL], value, self.control_length(opening.number), share)
        return value, later

    def _undo(self, value: torch.Tensor, opening: Opening, later: Kept) -> torch.Tensor:
        for nth, piece in reversed(list(enumerate(self.round.client))):
            context = self._client_context(nth, opening)
            _keep(later, _place("client", nth), piece.follow(value, context))
            value = piece.undo(value, context)
        return value


def gathers(round: Round) -> bool:
    """Whether somebody must have all messages of a cohort at once: the aggregate, or a channel that permutes them."""
    return not isinstance(round.aggregate, Aggregate) or permutes(round)


def permutes(round: Round) -> bool:
    """Whether the channel passes messages on in another order."""
    return round.channel.order(0, Key.from_seed(0)) is not None


def _place(slot: str, nth: int) -> str:
    return f"{slot}.{nth}"


def _keep(kept: Kept, place: str, value: torch.Tensor | None) -> None:
    if value is not None:
        kept[place] = value
