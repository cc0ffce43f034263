"""What papers say that their rounds cost, by the formulas that they print. None of it is a bound, and no accountant reads it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sfumato.account.event import Real
from sfumato.account.papers.dp_fed_ls import dp_fedsam_epsilon


@dataclass(frozen=True)
class DpFedSamClaim:
    """Equations (16) and (17) of DP-FedSAM at the best real order, for cohorts of this share and noise over the clip norm.

    >>> round(DpFedSamClaim(0.1, 0.95).claimed_epsilon(300, 1 / 500), 3)
    10.795
    """

    rate: Real
    ratio: Real

    def claimed_epsilon(self, rounds: int, delta: Real) -> float:
        """Of so many rounds."""
        return dp_fedsam_epsilon(self.rate, self.ratio, rounds, delta)[0]


@dataclass(frozen=True)
class NbaflClaim:
    """NbAFL's noise for (epsilon, delta) of `uploads` messages, c uploads D / epsilon with c = sqrt(2 ln(1.25 / delta)), solved for
    the epsilon of fewer messages or at another delta: it grows with their number.

    >>> round(NbaflClaim(8.0, 1e-5, 150).claimed_epsilon(5, 1e-5), 3)
    0.267
    """

    epsilon: Real
    delta: Real
    uploads: int

    def claimed_epsilon(self, rounds: int, delta: Real) -> float:
        """Of so many rounds, in each of which a client sends one message."""
        grown = math.sqrt(math.log(1.25 / delta) / math.log(1.25 / self.delta))
        return self.epsilon * rounds / self.uploads * grown
