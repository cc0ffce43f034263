"""Weak and strong federated privacy as PriFedSync states it (Definitions 3.5 and 3.6), with what is wrong or loose.

Weak: one other client looks at all that it is sent. Strong: all other clients look together. Whatever any of them sees, and the
server too, is computed from the messages of the client in question (post-processing), so both equal what these messages cost:
what a Round derives against the server.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from sfumato.account.event import Real
from sfumato.account.gdp import clt_mu_fixed_size, gdp_epsilon


class Claimed(NamedTuple):
    """One line of the paper: its name, its mu, the epsilon that follows, and what is to be said about it."""

    name: str
    mu: float
    epsilon: float
    remark: str


@dataclass(frozen=True)
class Published:
    """A PriFedSync run: fixed-size batches, each client drawn with probability `rate`, Gaussian noise of `sigma` times 2C.

    >>> run = Published(share=16 / 600, steps=38, rounds=194, sigma=1.0, rate=0.5, clients=100)
    >>> [round(line.epsilon, 2) for line in run.claims(1e-5)]
    [23.69, 924.12]
    """

    share: Real  # batch size over the client's records
    steps: int
    rounds: int
    sigma: Real  # standard deviation over twice the clip norm, as in the paper
    rate: Real
    clients: int

    @property
    def mu(self) -> float:
        """The paper's mu: a central limit over all steps of all rounds."""
        return clt_mu_fixed_size(self.share, self.sigma, self.steps * self.rounds)

    def claims(self, delta: Real) -> tuple[Claimed, Claimed]:
        """The paper's two statements at one delta; neither is proven."""
        strong = math.sqrt(max(self.clients - 1, 0)) * self.mu
        limit = "a central limit, not a bound: too low for few steps or a small delta, too high for many steps; ignores the rate"
        not_needed = (
            f"sqrt({self.clients} - 1) times the weak mu is not needed: all that the others see together is still computed "
            "from the client's own messages"
        )
        return (
            Claimed("the paper, weak (Theorem 2)", self.mu, gdp_epsilon(self.mu, delta), limit),
            Claimed("the paper, strong (Theorem 2)", strong, gdp_epsilon(strong, delta), not_needed),
        )

    def text(self, delta: Real) -> str:
        """The block that is printed."""
        lines = ["the paper's weak and strong federated privacy, beside ours against the server:"]
        for line in self.claims(delta):
            lines.append(f"  {line.name}: mu {line.mu:.2f}, epsilon {line.epsilon:.4g} (claimed); {line.remark}")
        if self.rate < 1:
            claimed, attained = p_squared_claim(self.rate, 2), p_squared_attained(self.rate)
            lines.append(
                f"  the paper, amplification by p^2 (Theorem 1): false over several rounds. Two rounds without local noise can be "
                f"told apart by {attained:.4g} in total variation, and the theorem says at most {claimed:.4g}: what a client sent "
                "in one round reaches the others through the global model in the next"
            )
        return "\n".join(lines)


def p_squared_claim(rate: Real, rounds: int) -> float:
    """The total variation that Theorem 1 allows, whatever the local training: 1 - (1 - p^2)^rounds.

    >>> p_squared_claim(0.5, 2)
    0.4375
    """
    return 1.0 - float((1.0 - rate**2) ** rounds)


def p_squared_attained(rate: Real) -> float:
    """What one of two clients really learns in two rounds (server step below 1): 3 p^2 - 2 p^3, always more than claimed.

    It sees the other's first model if both were drawn in round one, or if the other was drawn in round one and it itself in
    round two, or if both were drawn in round two.

    >>> p_squared_attained(0.5)
    0.5
    """
    return float(3 * rate**2 - 2 * rate**3)
