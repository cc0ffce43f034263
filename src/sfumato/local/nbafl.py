"""NbAFL (Wei et al. 2020), the baseline of UDP-FL: models pulled into a ball and noised at the client. Nothing is proven."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from sfumato.account.papers.claimed import NbaflClaim
from sfumato.claim import Claim
from sfumato.errors import BadValue, UnsoundRound
from sfumato.local.task import Task
from sfumato.pieces.clip import clipped
from sfumato.pieces.context import Context
from sfumato.pieces.noise import for_each_row
from sfumato.pieces.protocol import ClientPiece, LocalPiece, ServerPiece
from sfumato.pieces.wrapper import forward_hooks
from sfumato.shapes import Rows, Value

STEP = (
    "the noise is sized for a model that one record moves by 2 norm / records, as if training were a mean over records; a clipped "
    "model can move by twice the norm. And sqrt(2 ln(1.25/delta)) is proven for an epsilon up to 1 only"
)


@dataclass(frozen=True)
@forward_hooks
class WithinBall(LocalPiece):
    """Local training whose model is scaled into a ball around zero: w / max(1, |w| / norm). States nothing about a row."""

    inner: LocalPiece
    norm: float
    fresh_rows: ClassVar[bool] = True
    keeps_grid: ClassVar[bool] = False
    keeps_distances: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not (self.norm > 0.0 and math.isfinite(self.norm)):
            raise BadValue(f"WithinBall(norm={self.norm}): the radius of the ball is positive and finite, e.g. 20.0.")

    def train(self, task: Task) -> Rows:
        return clipped(task.params + self.inner.train(task), self.norm) - task.params

    def carry(self, claim: Claim) -> Claim:
        """What was paid for stays so; a bound on the row does not, as the global model may lie outside of the ball."""
        return replace(self.inner.carry(claim), l2=math.inf, l1=math.inf)

    def controlled(self, round: int) -> None:
        """Steps that are pulled back into a ball are not plain ones."""
        return


@dataclass(frozen=True)
class Nbafl:
    """The noise of NbAFL for (epsilon, delta) of each record, as its Theorem 1 prints it.

    A model has norm at most `norm`, a client at least `records`; it is sent `exposures` times in `rounds` rounds with `clients`
    others. Uplink: c L (2 C / m) / epsilon, c = sqrt(2 ln(1.25 / delta)). Downlink: 2 c C sqrt(T^2 - L^2 N) / (m N epsilon) where
    T > L sqrt(N), else none.

    >>> setting = Nbafl(epsilon=8, delta=1e-5, norm=20, records=6000, rounds=150, exposures=150, clients=10)
    >>> round(setting.uplink, 4), setting.downlink
    (0.6056, 0.0)
    """

    epsilon: float
    delta: float
    norm: float
    records: int
    rounds: int
    exposures: int
    clients: int

    def __post_init__(self) -> None:
        numbers = (self.epsilon, self.norm, self.records, self.rounds, self.exposures, self.clients)
        if not (all(number > 0 for number in numbers) and 0.0 < self.delta < 1.0 and self.exposures <= self.rounds):
            raise BadValue(f"{self}: all are positive, delta is below 1, and exposures at most rounds.")

    @property
    def _unit(self) -> float:
        return math.sqrt(2.0 * math.log(1.25 / self.delta)) * 2.0 * self.norm / self.records / self.epsilon

    @property
    def uplink(self) -> float:
        """The standard deviation of the noise in a message."""
        return self.exposures * self._unit

    @property
    def downlink(self) -> float:
        """The standard deviation of what the server adds to the mean."""
        beyond = self.rounds**2 - self.exposures**2 * self.clients
        return self._unit * math.sqrt(beyond) / self.clients if beyond > 0 else 0.0

    @property
    def claimed(self) -> NbaflClaim:
        """What this noise is said to prove."""
        return NbaflClaim(self.epsilon, self.delta, self.exposures)


@dataclass(frozen=True)
class NbaflNoise(ClientPiece, ServerPiece):
    """Gaussian noise of this standard deviation on every coordinate, whatever bounds a row. Refused, but for unproven rounds."""

    stddev: float

    def __post_init__(self) -> None:
        if not (self.stddev > 0.0 and math.isfinite(self.stddev)):
            raise BadValue(f"NbaflNoise(stddev={self.stddev}): a positive, finite standard deviation is needed.")

    def __call__(self, value: Value, context: Context) -> Value:
        if context.claim.aggregated:
            return value + context.key.normal(*value.shape, stddev=self.stddev).to(value)
        keys, length = [key.child("message") for key in context.keys], value.shape[1]
        return value + for_each_row(value, lambda key: key.normal(length, stddev=self.stddev), keys).to(value)

    def carry(self, claim: Claim) -> Claim:
        raise UnsoundRound(
            f"NbaflNoise: {STEP}.",
            "use Clip and AddNoise in the client slot, or DpSgd; as published it runs with unproven=Unproven(...).",
        )

    def unproven(self, claim: Claim) -> Claim:
        return replace(claim, stddev=self.stddev)
