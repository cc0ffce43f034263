"""Weak and strong federated privacy (PriFedSync, Definitions 3.5 and 3.6): ours beside the paper's, with what is wrong or loose.

Weak: one other client looks at all that it is sent. Strong: all other clients look together. Whatever any of them sees, and the
server too, is computed from the messages of the client in question (post-processing), so both equal what these messages cost.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from sfumato.account.event import Event, FixedSizeSampled, GaussianEvent, Mixture, Real, Relation, Repeated
from sfumato.account.gdp import clt_mu_fixed_size, gdp_epsilon
from sfumato.account.protocol import accountant
from sfumato.guarantee import rounded_up

EVERY_ROUND = "ours, as if the client took part in every round"
PARTICIPATION = "ours, with the chance to take part"
PAPER_WEAK = "the paper, weak (Theorem 2)"
PAPER_STRONG = "the paper, strong (Theorem 2)"


@dataclass(frozen=True)
class Statement:
    """One line: a claim, its mu where it has one, its epsilon, and what is to be said about it."""

    name: str
    mu: float | None
    epsilon: float
    proven: bool
    remark: str


@dataclass(frozen=True)
class Federated:
    """A PriFedSync run: fixed-size batches, each client drawn with probability `rate`, Gaussian noise of `sigma` times 2C.

    >>> run = Federated(share=16 / 600, steps=38, rounds=194, sigma=1.0, rate=0.5, clients=100)
    >>> [round(line.epsilon, 2) for line in run.statements(1e-5)]
    [22.28, 14.52, 23.69, 924.12]
    """

    share: Real  # batch size over the client's records
    steps: int
    rounds: int
    sigma: Real  # standard deviation over twice the clip norm, as in the paper
    rate: Real
    clients: int

    @staticmethod
    def of(event: Event, clients: int, rounds: int) -> Federated | None:
        """A run whose rounds cost this; None where it is not of PriFedSync's kind."""
        rate, local = (event.probability, event.event) if isinstance(event, Mixture) else (1.0, event)
        steps, step = (local.times, local.event) if isinstance(local, Repeated) else (1, local)
        if not isinstance(step, FixedSizeSampled) or not isinstance(step.event, GaussianEvent):
            return None
        known = Federated(step.rate, steps, rounds, step.event.ratio, rate, clients)
        return known if step.relation is Relation.REPLACE else None

    @property
    def local(self) -> Event:
        """What one participation costs a record."""
        return Repeated(FixedSizeSampled(self.share, GaussianEvent(self.sigma)), self.steps)

    @property
    def mu(self) -> float:
        """The paper's mu: a central limit over all steps of all rounds."""
        return clt_mu_fixed_size(self.share, self.sigma, self.steps * self.rounds)

    def every_round(self, delta: Real) -> float:
        """The exact epsilon of a client that takes part in every round."""
        return accountant().epsilon(Repeated(self.local, self.rounds), delta)

    def participation(self, delta: Real) -> float:
        """The exact epsilon where a client takes part with probability `rate`, and everybody may see when."""
        return accountant().epsilon(Repeated(Mixture(self.rate, self.local), self.rounds), delta)

    def statements(self, delta: Real) -> tuple[Statement, ...]:
        """Ours and the paper's at one delta."""
        strong = math.sqrt(max(self.clients - 1, 0)) * self.mu
        return (
            Statement(
                EVERY_ROUND,
                None,
                self.every_round(delta),
                True,
                "exact composition; weak and strong alike, and against the server, whoever chooses the cohort",
            ),
            Statement(
                PARTICIPATION,
                None,
                self.participation(delta),
                True,
                "exact; weak and strong alike, and against the server if it samples honestly",
            ),
            Statement(
                PAPER_WEAK,
                self.mu,
                gdp_epsilon(self.mu, delta),
                False,
                "a central limit, not a bound: too low for few steps or a small delta, too high for many steps; ignores the rate",
            ),
            Statement(
                PAPER_STRONG,
                strong,
                gdp_epsilon(strong, delta),
                False,
                f"sqrt({self.clients} - 1) times the weak mu is not needed: all that the others see together is still computed "
                "from the client's own messages",
            ),
        )

    def text(self, delta: Real) -> str:
        """The block that is printed."""
        lines = [f"weak and strong federated privacy after {self.rounds} rounds, epsilon at delta {delta:g}:"]
        for line in self.statements(delta):
            mu = "" if line.mu is None else f"mu {line.mu:.2f}, "
            shown = rounded_up(line.epsilon, 4) if line.proven else f"{line.epsilon:.4g}"
            lines.append(f"  {line.name}: {mu}epsilon {shown}{'' if line.proven else ' (claimed)'}; {line.remark}")
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
