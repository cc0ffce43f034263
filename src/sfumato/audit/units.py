"""Whom membership is asked about: records, or clients with all of theirs, in pairs of which a model has seen one.

A pair is a place in the training data and two candidates for it. Every model, the attacked one and each shadow, was trained on
one of the two, so all of them saw as much data, and each candidate is in half of the shadows (Carlini et al. 2022, section
VI.A, train each record in half of the shadows). It is the relation of replacing one unit by another.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from sfumato.data.population import Records
from sfumato.errors import BadValue
from sfumato.key import Key


@dataclass(frozen=True)
class Units:
    """The candidates: unit i and unit `pairs + i` are those for place i. `owner` says whose each record is."""

    records: Records
    owner: Tensor
    pairs: int
    kind: str = "record"

    @staticmethod
    def of_records(first: Records, second: Records) -> Units:
        """Each record is a unit; those of the same number are the candidates for one place."""
        both = Records(torch.cat([first.x, second.x]), torch.cat([first.y, second.y]))
        return Units(both, torch.arange(both.count), first.count)

    @staticmethod
    def of_clients(first: list[Records], second: list[Records]) -> Units:
        """Each client is a unit."""
        clients = [*first, *second]
        both = Records(torch.cat([one.x for one in clients]), torch.cat([one.y for one in clients]))
        sizes = torch.tensor([one.count for one in clients])
        return Units(both, torch.arange(len(clients)).repeat_interleave(sizes), len(first), "client")

    @property
    def count(self) -> int:
        return 2 * self.pairs

    @cached_property
    def sizes(self) -> Tensor:
        """How many records each unit has."""
        return torch.bincount(self.owner, minlength=self.count)

    def means(self, values: Tensor) -> Tensor:
        """The mean over each unit's records of values [..., records]."""
        shape = (*values.shape[:-1], self.count)
        sums = torch.zeros(shape, dtype=values.dtype).index_add_(-1, self.owner, values)
        return sums / self.sizes.clamp(min=1)


def inside(choices: Tensor) -> Tensor:
    """Which units models were trained on, [models, 2 pairs], from which candidate each place got: the first where it is true."""
    return torch.cat([choices, ~choices], dim=-1)


def coins(key: Key, models: int, pairs: int) -> Tensor:
    """Choices [models, pairs] by fair coins; models 2 j and 2 j + 1 have opposite ones, so each unit is in exactly half of them.

    The first ones are the same however many there are.

    >>> some = coins(Key.from_seed(0), 4, 100)
    >>> bool((some[0] == ~some[1]).all()), torch.equal(some[:2], coins(Key.from_seed(0), 2, 100))
    (True, True)
    """
    if models < 2 or models % 2:
        raise BadValue(
            f"shadows={models}: an even number, at least 2, since each unit is in half of them. Use e.g. 16."
        )
    rows = []
    for pair in range(models // 2):
        first = torch.from_numpy(key.child("coins", pair=pair).uniform(pairs) < 0.5)
        rows += [first, ~first]
    return torch.stack(rows)
