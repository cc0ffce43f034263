"""What is free after the noise: smoothing, and any function on public data."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from sfumato.claim import Claim
from sfumato.data.population import PublicData
from sfumato.errors import BadValue, UnsoundRound
from sfumato.pieces.context import Context
from sfumato.pieces.protocol import ServerPiece
from sfumato.shapes import Row


@dataclass(frozen=True)
class PostProcess(ServerPiece):
    """Any function of the aggregate, and of public data if it needs some.

    States: nothing is lost, if the value was paid for before and the data are public.
    """

    function: Callable[..., torch.Tensor]
    data: Any = None  # PublicData; anything else is refused with its reason

    def __call__(self, value: Row, context: Context) -> Row:
        result = self.function(value) if self.data is None else self.function(value, self.data)
        if result.shape != value.shape:
            raise BadValue(f"PostProcess returned shape {tuple(result.shape)}, but the row has {tuple(value.shape)}.")
        return result

    def carry(self, claim: Claim) -> Claim:
        if self.data is not None and not isinstance(self.data, PublicData):
            raise UnsoundRound(
                f"PostProcess reads {type(self.data).__name__}, which is not PublicData: looking at private data after the "
                "noise is a new, unpaid access to them.",
                "use records that anybody may see, as PublicData(name, records), or do without data.",
            )
        if not claim.at_server(self).paid:
            raise UnsoundRound(
                "PostProcess comes before the noise: an arbitrary function has no bound on how far one client moves its result.",
                "put it after AddNoise in the server slot.",
            )
        read = () if self.data is None else (self.data.declared,)
        return claim.assuming("the function of PostProcess reads nothing but what it is given", *read)


_NEGLIGIBLE = 1e-18


@dataclass(frozen=True)
class LaplacianSmoothing(ServerPiece):
    """Multiply by the inverse of I + strength L, with L the Laplacian of a ring (periodic, as the paper's FFT has it).

    States: its eigenvalues 1 / (1 + strength (2 - 2 cos)) lie in (0, 1], so no L2 norm grows; its kernel is positive and sums
    to 1, so no L1 norm grows. Before the noise it keeps every bound, after the noise it is free. Whole row, or each layer as a
    ring of its own. Strength 0 is the identity.

    I + s L = (s / r) (1 - r B)(1 - r F), with shifts B and F and r the root below 1: two recursive passes, O(d).
    """

    strength: float = 1.0
    per_layer: bool = False

    def __post_init__(self) -> None:
        if not (self.strength >= 0.0 and math.isfinite(self.strength)):
            raise BadValue(f"LaplacianSmoothing(strength={self.strength}): the strength is not negative, e.g. 1.0.")

    def __call__(self, value: Row, context: Context) -> Row:
        row = value.detach().cpu().double()
        parts = context.layout.layers(row, self) if self.per_layer else (row,)
        return torch.from_numpy(np.concatenate([smooth(part.numpy(), self.strength) for part in parts])).to(value)

    def carry(self, claim: Claim) -> Claim:
        return claim.at_server(self)


def smooth(values: np.ndarray, strength: float) -> np.ndarray:
    """The solution u of (I + strength L) u = values on a ring.

    >>> smooth(np.array([1.0, 0.0, 0.0]), 1.0)
    array([0.5 , 0.25, 0.25])
    """
    from scipy.signal import lfilter

    scale = 2.0 / (1.0 + 2.0 * strength + math.sqrt(1.0 + 4.0 * strength))
    root = strength * scale

    def ring_pass(x: np.ndarray) -> np.ndarray:
        """y[i] = x[i] + root * y[i - 1], around the ring."""
        passed, _ = lfilter([1.0], [1.0, -root], x, zi=[root * _wrapped(x, root)])
        return np.asarray(passed)

    return scale * ring_pass(ring_pass(values)[::-1])[::-1]


def _wrapped(x: np.ndarray, root: float) -> float:
    """The last value of the pass, before the first: the sum of root^k x[-1-k] around the ring without end."""
    reach = len(x) if root == 0.0 else min(len(x), 1 + int(math.log(_NEGLIGIBLE) / math.log(root)))
    once = float(np.dot(x[::-1][:reach], root ** np.arange(reach)))
    return once / (1.0 - root ** len(x))
