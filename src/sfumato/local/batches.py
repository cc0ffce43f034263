"""Which records a client's local steps look at: shuffled epochs, from its own key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from sfumato.key import Key


def epoch_batches(records: int, batch_size: int, epochs: int | None, steps: int | None, key: Key) -> np.ndarray:
    """Indices [steps, batch] of whole epochs, or of as many steps as asked for; -1 where a batch is short.

    >>> (epoch_batches(5, 2, None, 4, Key.from_seed(0)) >= 0).sum(axis=1)
    array([2, 2, 1, 2])
    """
    width = min(batch_size, records)
    if records == 0:
        return np.empty((0, 0), np.int64)
    per_epoch = -(-records // width)
    passes = epochs if epochs is not None else -(-(steps or 0) // per_epoch)
    padded = np.full((passes, per_epoch * width), -1, np.int64)
    padded[:, :records] = key.permutations(passes, records)
    return padded.reshape(passes * per_epoch, width)[:steps]


@dataclass(frozen=True)
class Schedule:
    """The batches of several clients side by side, those with most steps first; a client that is done drops out.

    `order` says which client each place holds. Short batches repeat a record of their own, which counts nothing.
    """

    order: tuple[int, ...]
    index: np.ndarray  # [clients, steps, width], into the clients' records laid end to end in `order`
    counts: np.ndarray  # [clients, steps]

    @staticmethod
    def of(batches: Sequence[np.ndarray], sizes: Sequence[int]) -> Schedule:
        order = tuple(sorted(range(len(batches)), key=lambda i: -len(batches[i])))
        steps = len(batches[order[0]]) if order else 0
        width = max((batch.shape[1] for batch in batches), default=0)
        index = np.full((len(order), steps, width), -1, np.int64)
        for place, client in enumerate(order):
            own = batches[client]
            index[place, : own.shape[0], : own.shape[1]] = own
        counts = (index >= 0).sum(axis=2)
        starts = np.cumsum([0, *(sizes[i] for i in order)])[:-1]
        index = np.where(index >= 0, index, index[:, :, :1]) + starts[:, None, None]
        return Schedule(order, index, counts)

    @property
    def steps(self) -> int:
        """The steps of the client with most of them."""
        return int(self.counts.shape[1])

    def at(self, step: int, device: torch.device) -> tuple[torch.Tensor, tuple[int, ...]]:
        """The records of the clients that still train, padded to one width, and how many of them each client really has."""
        counts = self.counts[:, step]
        counts = counts[counts > 0]
        index = self.index[: len(counts), step, : counts.max()]
        return torch.from_numpy(index.reshape(-1)).to(device), tuple(counts.tolist())
