"""Teachers that learn to see public records as they see their own: the labels of the public ones are never read.

A client trains on its own labelled records and, in every step, on as many unlabelled public ones: an extra loss makes the model's
outputs on both look alike, so that what it learnt from its own domain holds in the public one. Public records cost nothing, and a
ballot is bounded whatever was learnt, so adaptation changes no guarantee.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sfumato.data.population import PublicData, Records
from sfumato.errors import BadValue
from sfumato.gradients import KeyedMasks, LossPerRecord
from sfumato.key import Key
from sfumato.local.batches import epoch_batches
from sfumato.local.sgd import Sgd
from sfumato.models import build


@runtime_checkable
class Adaptation(Protocol):
    """An extra loss on what a model makes of a client's own records and of public ones."""

    public: PublicData | None  # None: enough to explain a round; training refuses
    strength: float
    hidden: ClassVar[bool]  # whether it looks at what the last linear layer reads, or at the outputs

    @abstractmethod
    def loss(self, head: nn.Module, own: Tensor, public: Tensor) -> Tensor:
        """How far apart the two are, [records, width] each."""

    def head(self, width: int, key: Key) -> nn.Module:
        """What is trained beside the teacher, and thrown away (default: nothing)."""
        return nn.Identity()


def _check_strength(adaptation: Adaptation) -> None:
    if not 0.0 <= adaptation.strength < float("inf"):
        name = type(adaptation).__name__
        raise BadValue(f"{name}(strength={adaptation.strength}): a finite number that is not negative, e.g. 1.0.")


@dataclass(frozen=True)
class Coral(Adaptation):
    """The distance of the outputs' covariances: strength ||C_own - C_public||^2 / (4 d^2) (deep CORAL, Sun and Saenko 2016)."""

    public: PublicData | None
    strength: float = 1.0
    hidden: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _check_strength(self)

    def loss(self, head: nn.Module, own: Tensor, public: Tensor) -> Tensor:
        apart = _covariance(own) - _covariance(public)
        return self.strength * apart.square().sum() / (4 * own.shape[1] ** 2)


def _covariance(columns: Tensor) -> Tensor:
    """Nothing for a single record."""
    centred = columns - columns.mean(0)
    return centred.T @ centred / max(1, len(columns) - 1)


@dataclass(frozen=True)
class Adversarial(Adaptation):
    """A head of one hidden layer learns to tell the domains apart, and the teacher to deceive it (Ganin et al. 2016).

    The head goes down its loss; its gradient reaches the teacher with the sign reversed, times the strength.
    """

    public: PublicData | None
    strength: float = 1.0
    units: int = 32
    hidden: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_strength(self)
        if self.units < 1:
            raise BadValue(f"Adversarial(units={self.units}): the head has at least 1 hidden unit.")

    def head(self, width: int, key: Key) -> nn.Module:
        first = build("logistic", (width,), self.units, key.child("first"))
        return nn.Sequential(first, nn.ReLU(), build("logistic", (self.units,), 1, key.child("last")))

    def loss(self, head: nn.Module, own: Tensor, public: Tensor) -> Tensor:
        both = torch.cat([own, public])
        told = head((1.0 + self.strength) * both.detach() - self.strength * both).squeeze(1)
        is_own = torch.arange(len(both), device=both.device) < len(own)
        weights = torch.where(is_own, 0.5 / len(own), 0.5 / len(public))  # both domains count alike
        return F.binary_cross_entropy_with_logits(told, is_own.to(told), weights, reduction="sum")


@dataclass(frozen=True)
class Standardised:
    """Inputs as so many of the public records' deviations from their mean, each coordinate by itself, up to 5.

    One learning rate then fits any features. A deviation is no less than a hundredth of the mean one.
    """

    public: PublicData | None

    @cached_property
    def _moments(self) -> tuple[Tensor, Tensor]:
        x = _inputs(self)
        spread = x.std(dim=0, correction=0)
        return x.mean(dim=0), spread + 0.01 * spread.mean() + 1e-6

    def __call__(self, x: Tensor) -> Tensor:
        mean, spread = self._moments
        return ((x - mean.to(x)) / spread.to(x)).clamp(-5.0, 5.0)


def _inputs(who: Adaptation | Standardised) -> Tensor:
    if who.public is None:
        raise BadValue(f"{type(who).__name__} has no public records to go by. Give it PublicData.")
    return who.public.records.x


def train_toward(
    adaptation: Adaptation,
    scale: Callable[[Tensor], Tensor],
    training: Sgd,
    module: nn.Module,
    loss: LossPerRecord,
    records: Records,
    key: Key,
) -> None:
    """Train the module in place on a client's records, by the training's steps with the extra loss.

    The records are scaled already; the public ones are scaled here.
    """
    public = _inputs(adaptation).to(records.x.device)
    batches = epoch_batches(records.count, training.batch_size, training.epochs, training.steps, key.child("batches"))
    others = epoch_batches(len(public), training.batch_size, None, len(batches), key.child("public"))
    with KeyedMasks(off=True):
        width = _seen(module, scale(public[:1]), adaptation.hidden)[1].shape[1]
    head = adaptation.head(width, key.child("head")).to(public.device)
    trained = [part for model in (module, head) for part in model.parameters() if part.requires_grad]
    leaves = [part.detach()[None] for part in trained]  # a block of one client
    velocity: list[Tensor] = []
    with KeyedMasks(key.child("dropout").generator()):
        for mine, theirs in zip(batches, others, strict=True):
            own, beside = (torch.from_numpy(index[index >= 0]).to(public.device) for index in (mine, theirs))
            outputs, seen = _seen(module, torch.cat([records.x[own], scale(public[beside])]), adaptation.hidden)
            extra = adaptation.loss(head, seen[: len(own)], seen[len(own) :])
            total = loss(outputs[: len(own)], records.y[own]).mean() + extra
            found = torch.autograd.grad(total, trained, allow_unused=True, materialize_grads=True)
            with torch.no_grad():
                velocity = training.step(leaves, [part[None].clone() for part in found], velocity, [], training.lr)


def _seen(module: nn.Module, x: Tensor, hidden: bool) -> tuple[Tensor, Tensor]:
    """A model's outputs, and what adaptation looks at: them, or what the last linear layer reads if that was trained too."""
    layers = [layer for layer in module.modules() if isinstance(layer, nn.Linear)]
    if not (hidden and layers):
        outputs = module(x)
        return outputs, outputs
    read: list[Tensor] = []
    handle = layers[-1].register_forward_pre_hook(lambda layer, inputs: read.append(inputs[0]))
    outputs = module(x)
    handle.remove()
    return outputs, read[-1].flatten(1) if read and read[-1].requires_grad else outputs
