"""Fed-SMP: all clients send the same few coordinates, so the noise covers only those."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sfumato.errors import BadValue, nearest

if TYPE_CHECKING:
    from sfumato.round import Round


def fed_smp(population: int, *, keep: float = 0.4, mask: str = "random", **common: Any) -> Round:
    """A shared mask (Hu et al. 2022): random, or the largest coordinates of the previous release.

    In Python, `SharedMask(keep, PublicTopK(data))` takes the mask from public data, as Fed-SMP top_k does.
    """
    from sfumato.pieces.mask import PreviousTopK, RandomMask, SharedMask
    from sfumato.recipes.dp_fedavg import dp_fedavg

    known: dict[str, Any] = {"random": RandomMask, "previous": PreviousTopK}
    if mask not in known:
        raise BadValue(f"mask={mask!r}: there is no such mask. {nearest(mask, known)}")
    base = dp_fedavg(population, **common)
    return replace(base, client=(SharedMask(keep, known[mask]()), *base.client))
