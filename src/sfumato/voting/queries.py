"""The public records that clients are asked about, some in each round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from sfumato.data.population import PublicData, require_public
from sfumato.errors import BadValue
from sfumato.pieces.protocol import State


@dataclass(frozen=True)
class Queries:
    """A pool of public records, of which each round asks `count`.

    Which are asked is a function of what was released: first those that were asked least often, among them those of the
    highest priority, which the student sets, then by number. Labels that public records may have are never looked at. Without
    a pool a round can be explained and planned, and not run.
    """

    public: PublicData | None
    count: int

    def __post_init__(self) -> None:
        if isinstance(self.count, bool) or not isinstance(self.count, int) or self.count < 1:
            raise BadValue(f"Queries(count={self.count!r}): a round asks at least 1 query, as a whole number.")
        if self.public is None:
            return
        require_public(self.public, "Queries")
        if self.count > self.public.records.count:
            raise BadValue(
                f"Queries(count={self.count}): {self.public.name} has {self.public.records.count} records. Ask fewer in a round."
            )

    @property
    def pool(self) -> Tensor:
        """The inputs of all public records."""
        if self.public is None:
            raise BadValue(
                "clients vote on public records, and there are none. Give --public NAME, beside a table "
                "--public FILE.csv, or --public-records NUMBER; in Python Queries(PublicData(name, records), count)."
            )
        return self.public.records.x

    def start(self) -> State:
        """What is known before the first round: nothing was asked."""
        size = len(self.pool)
        return {"asked": torch.zeros(size, dtype=torch.int64), "priority": torch.zeros(size)}

    def chosen(self, state: Mapping[str, Tensor]) -> Tensor:
        """The numbers of the records that are asked next.

        >>> from sfumato.data.population import Records
        >>> queries = Queries(PublicData("four", Records(torch.zeros(4, 1), torch.zeros(4))), 2)
        >>> queries.chosen({"asked": torch.tensor([1, 0, 0, 0]), "priority": torch.tensor([9.0, 0.0, 0.0, 5.0])})
        tensor([3, 1])
        """
        first = torch.argsort(state["priority"], descending=True, stable=True)
        order = first[torch.argsort(state["asked"][first], stable=True)]
        return order[: self.count]
