"""Which records of a client count as zero, so that whether and how the client replies does not depend on them (PRIVACY R15).

What a record-level guarantee needs is that a faulty record changes its own contribution and nothing else. An update that becomes
zero as a whole because of one record moves by a batch: with PriFedSync's defaults (16 of 600 records, 38 steps, noise 2 C) that
version attains epsilon 1,425 where 1.44 is printed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

Fault = Callable[[int, Exception], None]  # a record's number, and what it raised


@dataclass
class Faults:
    """The records at fault of one client, by their numbers: those known when they were loaded, and those that raise in training.

    Training that is given one leaves these records out, notes further ones, and continues. Without one (`Task.faults` is None) an
    exception ends the run: so it is in simulations. `whole` says that nothing of the client can be used.
    """

    records: dict[int, str] = field(default_factory=dict)  # a number, and why, for the owner only
    whole: str = ""  # why nothing can be used
    raised: Exception | None = None  # the first error, whose words may hold data

    def note(self, record: int, error: Exception) -> None:
        """Remember that a record raised: from now on it counts as zero."""
        self.records.setdefault(record, f"it raised {type(error).__name__}")
        self.raised = self.raised or error

    def without(self, drawn: Tensor, count: int) -> Tensor:
        """The drawn numbers, without records at fault and without those that the client does not have."""
        bad = torch.tensor(sorted(self.records), dtype=drawn.dtype, device=drawn.device)
        return drawn[(drawn < count) & ~torch.isin(drawn, bad)]


def out_of_memory(error: BaseException | None) -> bool:
    """Whether the machine has no memory left, for which no single record is blamed.

    A client that fails so has dropped out; guarantees assume that this does not depend on one record.
    """
    while error is not None:
        if isinstance(error, MemoryError | torch.OutOfMemoryError):
            return True
        if isinstance(error, RuntimeError) and any(words in str(error).lower() for words in _MEMORY):
            return True
        error = error.__cause__
    return False


_MEMORY = ("can't allocate memory", "cannot allocate memory", "out of memory", "std::bad_alloc")


def listed(records: Iterable[int]) -> str:
    """Numbers of records as the owner reads them; of many the first five.

    >>> listed([7, 3]), listed(range(9))
    ('records 3, 7', 'records 0, 1, 2, 3, 4 and 4 more')
    """
    numbers = sorted(records)
    more = f" and {len(numbers) - 5} more" if len(numbers) > 5 else ""
    return f"record{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers[:5]))}{more}"
