"""Aggregates that see messages one by one: medians, trimmed means, and a pull toward the model with the weakest privacy.

Accepted only where every message is already private when it leaves its client: what follows is then post-processing. All
messages of a cohort are in memory at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from sfumato.claim import Claim, text
from sfumato.errors import BadValue, UnsoundRound
from sfumato.pieces.context import MessageContext
from sfumato.pieces.protocol import MessageAggregate
from sfumato.shapes import Row, Rows

_PART = 2**16  # coordinates that are sorted at once


def of_paid_messages(claim: Claim, who: object) -> Claim:
    """The claim after an aggregate that looks at single messages; refused where the server has none, or none that is paid."""
    if claim.only_sum:
        raise UnsoundRound(
            f"{text(who)} looks at single messages, and the channel shows nothing but their sum.",
            "use the channel Plain() or Shuffler(), or an aggregate that adds, such as Mean(over=...).",
        )
    if claim.share is not None:
        raise UnsoundRound(
            f"{text(who)} looks at single messages, and each carries a share of the noise only: what is accounted is "
            "the noise of their sum.",
            "add the whole noise to every message with AddNoise in the client slot, or use Mean(over=...).",
        )
    if not claim.paid or claim.server is None:
        raise UnsoundRound(
            f"{text(who)} looks at single messages, and they are not private yet: how far a client or a record moves the result "
            "has no useful bound, and noise that comes later is sized for a sum.",
            "train with DpSgd (records), or put Clip and AddNoise into the client slot (clients, relation='replace').",
        )
    return replace(claim, aggregated=True)


def _parts(messages: Rows, of: Callable[[torch.Tensor], torch.Tensor]) -> Row:
    """A function of each coordinate's values in order, part by part, in float64."""

    def sorted_parts() -> Iterator[torch.Tensor]:
        for part in torch.split(messages, _PART, dim=1):
            yield of(part.double().sort(dim=0).values)

    return torch.cat(list(sorted_parts()))


@dataclass(frozen=True)
class Median(MessageAggregate):
    """The median of every coordinate; of an even number the mean of the two in the middle. Free, on paid messages."""

    by_number: ClassVar[bool] = False  # the order of messages does not matter

    def combine(self, messages: Rows, context: MessageContext) -> Row:
        low, high = (len(messages) - 1) // 2, len(messages) // 2
        return _parts(messages, lambda values: (values[low] + values[high]) / 2)

    def carry(self, claim: Claim) -> Claim:
        return of_paid_messages(claim, self)


@dataclass(frozen=True)
class TrimmedMean(MessageAggregate):
    """The mean of every coordinate without its `trim` share of smallest and of largest values. Free, on paid messages.

    With trim 0 it is the plain mean.
    """

    trim: float = 0.1
    by_number: ClassVar[bool] = False  # the order of messages does not matter

    def __post_init__(self) -> None:
        if not 0.0 <= self.trim < 0.5:
            raise BadValue(f"TrimmedMean(trim={self.trim}): the share dropped at each end, at least 0 and below 0.5.")

    def combine(self, messages: Rows, context: MessageContext) -> Row:
        dropped = math.floor(self.trim * len(messages))
        return _parts(messages, lambda values: values[dropped : len(values) - dropped].mean(dim=0))

    def carry(self, claim: Claim) -> Claim:
        return of_paid_messages(claim, self)


@dataclass(frozen=True)
class GeometricMedian(MessageAggregate):
    """The point with the least sum of distances to all messages, by a fixed number of Weiszfeld's steps from their mean.

    Free, on paid messages. Distances below `smallest` times the largest one count as that, so a step never divides by zero.
    """

    iterations: int = 50
    smallest: float = 1e-9
    by_number: ClassVar[bool] = False  # the order of messages does not matter

    def __post_init__(self) -> None:
        if self.iterations < 1 or not 0.0 < self.smallest < 1.0:
            raise BadValue(f"{text(self)}: iterations is at least 1, smallest between 0 and 1.")

    def combine(self, messages: Rows, context: MessageContext) -> Row:
        points = messages.double()
        centre = points.mean(dim=0)
        for _ in range(self.iterations):
            far = (points - centre).norm(dim=1)
            if not float(far.max()) > 0.0:
                break
            weights = 1.0 / far.clamp(min=self.smallest * float(far.max()))
            centre = (weights / weights.sum()) @ points
        return centre

    def carry(self, claim: Claim) -> Claim:
        return of_paid_messages(claim, self)


@dataclass(frozen=True)
class TowardWeakest(MessageAggregate):
    """UDP-FL's penalty: before `aggregate`, each message moves toward that of the weakest privacy, the largest epsilon.

    w_k + strength lambda_k (w_max - w_k), with lambda_k = (epsilon_max - epsilon_k) / epsilon_max: whoever has more noise
    leans more on who has least. The largest epsilon is that of the cohort; several that share it count with their mean.
    `epsilons` are public numbers, a mapping from client to epsilon; `default` is that of all others, if there are any.

    The paper contradicts itself: the text penalises the deviation from the strongest guarantee, the formula names the weakest
    model, and its sign, inside -eta (...), would push models away from it. This attracts. States: free, as messages are paid for
    one by one before anybody compares them, and who has which budget is public (PRIVACY B(ix)).
    """

    aggregate: MessageAggregate
    epsilons: Any  # a mapping; kept as pairs of client and epsilon
    strength: float = 1.0
    default: float | None = None

    def __post_init__(self) -> None:
        given = dict(self.epsilons.items() if isinstance(self.epsilons, Mapping) else self.epsilons)
        object.__setattr__(self, "epsilons", tuple(sorted(given.items())))
        every = [*given.values(), *([] if self.default is None else [self.default])]
        if not every or not all(value > 0.0 for value in every) or not 0.0 <= self.strength <= 1.0:
            raise BadValue(
                f"{text(self)}: every client has a positive epsilon, which may be infinite, and strength is 0 to 1."
            )

    def combine(self, messages: Rows, context: MessageContext) -> Row:
        known = dict(self.epsilons)
        if context.clients is None:
            raise BadValue(
                "TowardWeakest needs every sender's epsilon, but the channel does not show who sent what. Use Plain()."
            )
        own = [known.get(client, self.default) for client in context.clients]
        if None in own:
            nobody = context.clients[own.index(None)]
            raise BadValue(
                f"TowardWeakest needs every sender's epsilon, but client {nobody} has none. Name it, or give default=."
            )
        budgets = torch.tensor(own, dtype=torch.float64, device=messages.device)
        weakest = budgets == budgets.max()
        share = torch.where(weakest, 0.0, 1.0 - budgets / budgets.max())
        points = messages.double()
        pull = points[weakest].mean(dim=0) - points
        return self.aggregate.combine(points + self.strength * share[:, None] * pull, context)

    def carry(self, claim: Claim) -> Claim:
        if claim.shuffled:
            raise UnsoundRound(
                f"{text(self)} needs to know who sent a message, and the shuffler does not show it.",
                "use the channel Plain(), or leave the penalty out.",
            )
        of_paid_messages(claim, self)
        return self.aggregate.carry(claim)
