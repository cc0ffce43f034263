"""The law of features: what a record becomes depends on no other record, to the last bit."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from sfumato.key import Key


def pictures(count: int, *shape: int) -> Tensor:
    return torch.from_numpy(Key.from_seed(5).uniform(count * torch.Size(shape).numel())).float().reshape(count, *shape)


def law_of_single_records(step: Callable[[Tensor], Tensor], x: Tensor) -> None:
    """Alone, in batches of other sizes, at another place, beside other records, elsewhere in memory."""
    whole = step(x)
    for size in (1, 2, 3, 8, 33):
        assert torch.equal(whole, torch.cat([step(part) for part in x.split(size)]))
    order = torch.from_numpy(Key.from_seed(1).permutations(1, len(x))[0])
    assert torch.equal(whole[order], step(x[order]))
    assert torch.equal(whole[7:], step(x[7:]))
    others = torch.cat([x[:1] * 1000.0, x[1:2], x[2:] * torch.nan])
    assert torch.equal(whole[1], step(others)[1])
    for offset in (1, 3, 5):
        memory = x.new_zeros(x.numel() + offset)
        memory[offset:] = x.reshape(-1)
        assert torch.equal(whole, step(memory[offset:].view_as(x)))
    assert torch.equal(whole, step(torch.stack([x, -x], dim=-1)[..., 0]))
    for dimension in range(1, x.ndim):  # the same numbers, in another order in memory
        assert torch.equal(whole, step(x.movedim(dimension, -1).contiguous().movedim(-1, dimension)))
