"""Fewer coordinates: chosen by each client for itself (then the choice is private), or by all alike (then it is public)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch

from sfumato.claim import Claim, text
from sfumato.data.population import PublicData
from sfumato.errors import BadValue, UnsoundRound
from sfumato.pieces.context import Context, Facts
from sfumato.pieces.protocol import ClientPiece
from sfumato.shapes import Row, Rows
from sfumato.update import Layout


def _check_keep(name: str, keep: float) -> None:
    if not 0.0 < keep <= 1.0:
        raise BadValue(f"{name}(keep={keep}): the fraction of coordinates to keep is above 0 and at most 1, e.g. 0.4.")


def kept_of(keep: float, size: int) -> int:
    """How many of `size` coordinates are kept: at least one."""
    return max(1, round(keep * size))


@dataclass(frozen=True)
class TopK(ClientPiece):
    """Keep the fraction `keep` of each layer's coordinates with the largest magnitude, and zero the rest (LUS; Definition 5).

    States: no norm grows. Which coordinates a client keeps is private, so the noise that follows must cover all of them, as
    `AddNoise` does. On a message that carries its own noise it is post-processing; after noise shares it is refused.
    """

    keep: float
    keeps_grid: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_keep("TopK", self.keep)

    def __call__(self, rows: Rows, context: Context) -> Rows:
        return torch.cat([self._layer(part) for part in context.layout.layers(rows, self)], dim=1)

    def _layer(self, part: torch.Tensor) -> torch.Tensor:
        kept = kept_of(self.keep, part.shape[1])
        if kept == part.shape[1]:
            return part
        values = part.detach().cpu().numpy()
        return torch.from_numpy(np.where(_largest(np.abs(values), kept), values, np.float32(0.0))).to(part)

    def carry(self, claim: Claim) -> Claim:
        if claim.at_client(self).share is not None:
            raise UnsoundRound(
                f"{text(self)} comes after the noise shares, so a coordinate that few clients keep carries less noise than is "
                "accounted, and which ones they keep is private.",
                "put TopK before Clip and noise every coordinate, or use SharedMask.",
            )
        return claim


@dataclass(frozen=True)
class RandomMask:
    """Coordinates drawn at random, anew every round, from a key that all share (Fed-SMP rand_k)."""

    def choose(self, keep: float, facts: Facts) -> np.ndarray:
        """The kept coordinates, in order."""
        dimension = facts.layout.dimension
        return np.sort(facts.key.permutations(1, dimension)[0, : kept_of(keep, dimension)])


@dataclass(frozen=True)
class PublicTopK:
    """The largest coordinates of each layer of the update that local training makes on public data (Fed-SMP top_k)."""

    data: Any

    def choose(self, keep: float, facts: Facts) -> np.ndarray:
        return largest(facts.train(self.data), keep, facts.layout)


@dataclass(frozen=True)
class PreviousTopK:
    """The largest coordinates of each layer of the last released aggregate, which is already paid for; at first, random ones."""

    def choose(self, keep: float, facts: Facts) -> np.ndarray:
        if facts.previous is None:
            return RandomMask().choose(keep, facts)
        return largest(facts.previous, keep, facts.layout)


def _largest(sizes: np.ndarray, kept: int) -> np.ndarray:
    """Which of each row's numbers are its `kept` largest; of equal ones the first. Numpy finds the bound without sorting."""
    bound = np.partition(sizes, -kept, axis=1)[:, -kept, None]
    chosen = np.asarray(sizes >= bound)
    for row in np.flatnonzero(np.count_nonzero(chosen, axis=1) > kept):
        equal = np.flatnonzero(sizes[row] == bound[row])
        chosen[row, equal[kept - np.count_nonzero(sizes[row] > bound[row]) :]] = False
    return chosen


def largest(row: torch.Tensor, keep: float, layout: Layout) -> np.ndarray:
    """The coordinates of the largest magnitude in each layer, in order."""
    found, start = [], 0
    for part in torch.split(row, list(layout.sizes)):
        sizes = part.detach().abs().cpu().numpy()[None]
        found.append(start + np.flatnonzero(_largest(sizes, kept_of(keep, len(part)))))
        start += len(part)
    return np.concatenate(found)


@dataclass(frozen=True)
class SharedMask(ClientPiece):
    """All clients send the same coordinates and no others; the server puts them back in their places after the noise.

    States: no norm grows, and the choice is public, so the noise needs to cover the kept coordinates only. The choice is
    made from public things alone: a shared key, public data, or the last release.
    """

    keep: float
    by: RandomMask | PublicTopK | PreviousTopK = field(default_factory=RandomMask)
    keeps_grid: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_keep("SharedMask", self.keep)

    @property
    def needs_previous(self) -> bool:
        return isinstance(self.by, PreviousTopK)

    def prepare(self, facts: Facts) -> torch.Tensor:
        return torch.from_numpy(self.by.choose(self.keep, facts))

    def __call__(self, rows: Rows, context: Context) -> torch.Tensor:
        assert context.prepared is not None, "the mask is prepared before the round"
        context.layout.check_whole(rows, self)
        return rows.index_select(1, context.prepared)

    def undo(self, value: Row, context: Context) -> torch.Tensor:
        assert context.prepared is not None, "the mask is prepared before the round"
        whole = torch.zeros(context.layout.dimension, dtype=value.dtype, device=value.device)
        return whole.index_copy(0, context.prepared, value)

    def carry(self, claim: Claim) -> Claim:
        if isinstance(self.by, PublicTopK) and not isinstance(self.by.data, PublicData):
            raise UnsoundRound(
                f"SharedMask reads {type(self.by.data).__name__}, which is not PublicData: a mask made from private data tells "
                "about them, and nothing pays for it.",
                "use PublicTopK(PublicData(name, records)), RandomMask() or PreviousTopK().",
            )
        if isinstance(self.by, PublicTopK):
            claim = claim.assuming(self.by.data.declared)
        kept = kept_of(self.keep, claim.at_client(self).dimension)
        # The largest are chosen in each layer, so their number is the layout's; all of them bound it.
        return claim.with_dimension(kept) if isinstance(self.by, RandomMask) else claim
