"""An optimizer that moves nothing: for rounds whose release is wanted for itself, such as a score or a matrix of moments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from sfumato.claim import Claim
from sfumato.pieces.protocol import Optimizer, State

if TYPE_CHECKING:
    from sfumato.pieces.context import StepContext


@dataclass(frozen=True)
class KeepRelease(Optimizer):
    """Parameters stay as they are, and what was released is kept in the state: free, as it is paid for."""

    def learn(self, params: Tensor, state: State, update: Tensor, context: StepContext) -> tuple[Tensor, State]:
        return params, {"release": update}

    def start(self, params: Tensor) -> State:
        return {"release": params.new_zeros(1)}

    def carry(self, claim: Claim) -> Claim:
        return claim
