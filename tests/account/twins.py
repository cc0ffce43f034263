"""Closed forms of single releases that nothing prices with: what tests hold the accountants against."""

from __future__ import annotations

from scipy.special import ndtr

from sfumato.account.gdp import bisect, gdp_tradeoff


def sampled_tradeoff(rate: float, mu: float, false_positive_rate: float) -> float:
    """C_rate(G_mu)(a), the trade-off of one step on a batch of fixed size under replace (Dong, Roth, Su 2022).

    With f = rate G_mu + (1 - rate) identity and x the fixed point of G_mu: f up to x, slope -1 up to f(x), then the
    inverse of f.
    """

    def sampled(at: float) -> float:
        return rate * gdp_tradeoff(mu, at) + (1 - rate) * (1 - at)

    fixed = float(ndtr(-mu / 2))
    if false_positive_rate <= fixed:
        return sampled(false_positive_rate)
    if false_positive_rate <= sampled(fixed):
        return fixed + sampled(fixed) - false_positive_rate
    return bisect(0.0, fixed, lambda at: sampled(at) > false_positive_rate)[0]
