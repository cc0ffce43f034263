"""From released votes to labels and weights: post-processing, so it costs nothing."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor

from sfumato.errors import BadValue

_LEAST = 1e-3  # no answer counts for nothing
_SURE = 2.0  # from so many standard deviations on a margin counts in full


@runtime_checkable
class Labels(Protocol):
    """How votes are read, and how sure a student's own outputs are in the same sense."""

    task: ClassVar[str]  # Of the objective that a student of such labels has.

    @abstractmethod
    def read(self, votes: Tensor, stddev: Tensor) -> tuple[Tensor, Tensor]:
        """Targets and weights of records, from the mean of what was released on each and the deviation of its noise."""

    @abstractmethod
    def sureness(self, outputs: Tensor) -> Tensor:
        """How far each of a student's predictions is from another label."""


def by_margin(margins: Tensor, stddev: Tensor) -> Tensor:
    """Weights from just above 0 for no margin to 1 from two standard deviations on; 1 where there is no noise."""
    quiet = stddev == 0.0
    return torch.where(quiet, 1.0, (margins / stddev.where(~quiet, 1.0)).clamp(0.0, _SURE) / _SURE + _LEAST)


@dataclass(frozen=True)
class Argmax(Labels):
    """The class with most noisy votes, weighted by its margin over the next in units of the noise (unless `weigh` is off).

    The whole noisy histogram was paid for, so its margin is free to look at.

    >>> Argmax().read(torch.tensor([[90.0, 10.0], [31.0, 6.0]]), torch.tensor([25.0, 25.0]))
    (tensor([0, 0]), tensor([1.0010, 0.5010]))
    """

    weigh: bool = True
    task: ClassVar[str] = "classification"

    def read(self, votes: Tensor, stddev: Tensor) -> tuple[Tensor, Tensor]:
        first, second = votes.topk(2, dim=1).values.unbind(1)
        weights = by_margin(first - second, stddev) if self.weigh else votes.new_ones(len(votes))
        return votes.argmax(dim=1), weights.float()

    def sureness(self, outputs: Tensor) -> Tensor:
        first, second = outputs.softmax(dim=1).topk(2, dim=1).values.unbind(1)
        return first - second


@dataclass(frozen=True)
class Majority(Labels):
    """Attributes, each by itself: positive where the noisy count is above half the declared number of voters.

    `population` is a constant that was declared before data were seen; where voters are drawn, it is their expected number. A
    realised count would be another, unpaid look at the data, and an arg max would be another question. A record weighs the
    mean of its attributes' margins.

    >>> Majority(100, weigh=False).read(torch.tensor([[70.0, 20.0]]), torch.tensor([5.0]))
    (tensor([[1., 0.]]), tensor([1.]))
    """

    population: float
    weigh: bool = True
    task: ClassVar[str] = "multi-label"

    def __post_init__(self) -> None:
        if not (self.population > 0.0 and math.isfinite(self.population)):
            raise BadValue(f"Majority(population={self.population}): declare how many clients vote, e.g. 100.")

    def read(self, votes: Tensor, stddev: Tensor) -> tuple[Tensor, Tensor]:
        above = votes - 0.5 * self.population
        weights = by_margin(above.abs(), stddev[:, None]).mean(dim=1) if self.weigh else votes.new_ones(len(votes))
        return (above > 0.0).float(), weights.float()

    def sureness(self, outputs: Tensor) -> Tensor:
        return (outputs.sigmoid() - 0.5).abs().mean(dim=1)
