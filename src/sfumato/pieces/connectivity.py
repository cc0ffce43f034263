"""Mode connectivity (Garipov et al. 2018) as an aggregate: models joined in pairs by curves that are trained on public data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
import torch
from torch import nn

from sfumato.claim import Claim, text
from sfumato.data.population import PublicData, Records, require_public
from sfumato.errors import BadValue, UnsoundRound
from sfumato.key import Key
from sfumato.pieces.context import MessageContext
from sfumato.pieces.of_messages import of_paid_messages
from sfumato.pieces.protocol import MessageAggregate
from sfumato.shapes import Row, Rows

CURVES = ("bezier", "chain")
Place: TypeAlias = Callable[[Row, float], tuple[Row, float]]


@dataclass(frozen=True)
class Curve:
    """A curve between two models with one bend: a quadratic Bezier curve, or a chain of two straight parts."""

    first: Row
    bend: Row
    last: Row
    kind: str = "bezier"

    def weights(self, at: float) -> tuple[float, float, float]:
        """How much the first model, the bend and the last one count at a point from 0 to 1."""
        if self.kind == "bezier":
            return (1 - at) ** 2, 2 * at * (1 - at), at**2
        return (1 - 2 * at, 2 * at, 0.0) if at <= 0.5 else (0.0, 2 - 2 * at, 2 * at - 1)

    def at(self, point: float) -> Row:
        """The model at a point of the curve: the first one at 0, the last one at 1."""
        first, bend, last = self.weights(point)
        return first * self.first + bend * self.bend + last * self.last


class Ensemble(nn.Module):
    """Models whose predictions are averaged: outputs as they are, or as probabilities of classes, given back as logarithms."""

    def __init__(self, models: Sequence[nn.Module], probabilities: bool = False) -> None:
        super().__init__()
        self.models, self.probabilities = nn.ModuleList(models), probabilities

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs = torch.stack([model(x) for model in self.models])
        if not self.probabilities:
            return outputs.mean(dim=0)
        return outputs.log_softmax(dim=-1).logsumexp(dim=0) - float(np.log(len(outputs)))


def ensemble(
    curve: Curve, module: Callable[[Row], nn.Module], points: int = 5, probabilities: bool = False
) -> Ensemble:
    """The models at some points of a curve, evenly from end to end, as one that averages their predictions."""
    if points < 1:
        raise BadValue(f"ensemble(points={points}): at least one point of the curve is needed.")
    places = [0.5] if points == 1 else np.linspace(0.0, 1.0, points).tolist()
    return Ensemble([module(curve.at(place).float()) for place in places], probabilities)


@dataclass(frozen=True)
class PublicSteps:
    """Steps along the gradient of the mean loss on batches of public records, drawn from a key. Dropout is off."""

    public: Any  # PublicData; anything else is refused with its reason
    steps: int = 20
    lr: float = 0.1
    batch_size: int = 64

    def check(self, who: object) -> None:
        if self.steps < 0 or self.batch_size < 1 or not self.lr > 0.0:
            raise BadValue(f"{text(who)}: steps is not negative, batch_size at least 1, and lr positive.")

    def descend(self, row: Row, steps: int, place: Place, context: MessageContext, key: Key) -> Row:
        """Move a row by `steps`, each against the gradient at `place(row, t)`, which gives a model and its share of the row."""
        records: Records = require_public(self.public, "training at the server").records
        module = context.module(context.params).eval()
        named = dict(module.named_parameters())
        parameters = [named[name] for name in context.layout.names]
        chances = key.child("places").uniform(max(steps, 1))
        for step in range(steps):
            model, share = place(row, float(chances[step]))
            context.layout.write(model, module)
            drawn = key.child("batch", step=step).integers(min(self.batch_size, records.count)) % np.uint64(
                records.count
            )
            index = torch.from_numpy(drawn.astype(np.int64))
            x, y = records.x[index].to(row.device), records.y[index].to(row.device)
            with torch.enable_grad():
                found = torch.autograd.grad(context.objective.loss(module(x), y).mean(), parameters)
            row = row - self.lr * share * torch.cat([part.reshape(-1) for part in found])
        return row


def refuse_private(data: object, who: str) -> None:
    """Only what anybody may see is trained on after payment."""
    if not isinstance(data, PublicData):
        raise UnsoundRound(
            f"{who} trains on {type(data).__name__}, which is not PublicData: looking at private data after the noise is a new, "
            "unpaid access to them.",
            "use records that anybody may see, as PublicData(name, records), or an aggregate without data.",
        )


@dataclass(frozen=True)
class ModeConnectivity(MessageAggregate):
    """Models in disjoint pairs, each joined by a curve whose bend is trained on public data, until one model is left.

    The bend starts in the middle; each step draws a point of the curve uniformly and moves the bend against the gradient there.
    A pair becomes the model at `point`: 0.5 of a chain is its bend, as UDP-FL keeps it. One that is left over has a bye.
    Pairs go by the clients' numbers. (The
    printed loop over "all pairs" of n models makes n (n - 1) / 2 of them, never fewer for n above 2, so it never ends.)
    States: free, on messages that are paid for and public data; refused on any other.
    """

    public: Any  # PublicData; anything else is refused with its reason
    curve: str = "bezier"
    steps: int = 20
    lr: float = 0.1
    batch_size: int = 64
    point: float = 0.5

    def __post_init__(self) -> None:
        if self.curve not in CURVES or not 0.0 <= self.point <= 1.0:
            raise BadValue(
                f"ModeConnectivity(curve={self.curve!r}, point={self.point}): the curve is one of {', '.join(CURVES)}, the "
                "point from 0 to 1."
            )
        self._steps.check(f"ModeConnectivity(steps={self.steps}, lr={self.lr}, batch_size={self.batch_size})")

    @property
    def _steps(self) -> PublicSteps:
        return PublicSteps(self.public, self.steps, self.lr, self.batch_size)

    def connect(self, first: Row, last: Row, context: MessageContext, key: Key) -> Curve:
        """The trained curve between two models."""

        def place(bend: Row, at: float) -> tuple[Row, float]:
            curve = Curve(first, bend, last, self.curve)
            return curve.at(at), curve.weights(at)[1]

        bend = self._steps.descend((first + last) / 2, self.steps, place, context, key)
        return Curve(first, bend, last, self.curve)

    def combine(self, messages: Rows, context: MessageContext) -> Row:
        context.layout.check_whole(messages, "ModeConnectivity")
        models: list[Row] = list(context.params + messages)
        level = 0
        while len(models) > 1:
            key = context.key.child("level", number=level)
            pairs = [
                self.connect(models[nth], models[nth + 1], context, key.child("pair", nth=nth)).at(self.point)
                for nth in range(0, len(models) - 1, 2)
            ]
            models, level = [*pairs, *models[2 * len(pairs) :]], level + 1
        row: Row = models[0] - context.params
        return row

    def carry(self, claim: Claim) -> Claim:
        refuse_private(self.public, "ModeConnectivity")
        return of_paid_messages(claim, self).assuming(self.public.declared)


@dataclass(frozen=True)
class MeanThenPublic(MessageAggregate):
    """The control beside ModeConnectivity: the mean of the models, and then as many steps on the same public data.

    `steps` is per pair, so n messages get (n - 1) `steps`, one gradient for each that mode connectivity takes. States the same.
    """

    public: Any  # PublicData; anything else is refused with its reason
    steps: int = 20
    lr: float = 0.1
    batch_size: int = 64
    by_number: ClassVar[bool] = False  # the order of messages does not matter

    def __post_init__(self) -> None:
        self._steps.check(f"MeanThenPublic(steps={self.steps}, lr={self.lr}, batch_size={self.batch_size})")

    @property
    def _steps(self) -> PublicSteps:
        return PublicSteps(self.public, self.steps, self.lr, self.batch_size)

    def combine(self, messages: Rows, context: MessageContext) -> Row:
        context.layout.check_whole(messages, "MeanThenPublic")
        mean = context.params + messages.double().mean(dim=0).to(context.params)
        steps = self.steps * (len(messages) - 1)
        return self._steps.descend(mean, steps, lambda row, _: (row, 1.0), context, context.key) - context.params

    def carry(self, claim: Claim) -> Claim:
        refuse_private(self.public, "MeanThenPublic")
        return of_paid_messages(claim, self).assuming(self.public.declared)


def bend_of_theorem_5(previous: Row, stepped: Row, smoothness: float) -> Row:
    """UDP-FL's Theorem 5, with its second moment put right: the bend whose curve from `stepped` to `previous` steps by 1/L.

    The expected point of the Bezier curve (1 - r)^2 v + 2 r (1 - r) theta + r^2 w, r uniform, is (v + theta + w) / 3. For it to lie
    1/L from w, toward v: theta = 2 w - v + (3 / L) (v - w) / |v - w|. The paper prints theta = 1.2 / L + 1.1 w - 0.1 v: it takes
    1/12, the variance of r, for E r^2 = 1/3, and adds the number 1.2 / L to every coordinate, though 1/L is the length of a
    vector. It is no rule of training: it does not look at the loss along the curve, and L is not known.
    """
    if not smoothness > 0.0:
        raise BadValue(f"smoothness={smoothness}: the constant L of a smooth loss is positive.")
    away = stepped - previous
    length = float(away.norm())
    if not length > 0.0:
        raise BadValue("bend_of_theorem_5: both models are the same, so there is no direction to step in.")
    return 2 * previous - stepped + (3.0 / smoothness / length) * away
