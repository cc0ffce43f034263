"""Central-limit values beside the proven ones: labelled, and never a bound."""

from __future__ import annotations

from sfumato.account.dominating import merged_gaussian
from sfumato.account.event import Event, FixedSizeSampled, Mixture, PoissonSampled, Real, Relation, Repeated
from sfumato.account.gdp import clt_mu_fixed_size, clt_mu_poisson, gdp_epsilon

LABEL = "central-limit approximation, not a bound: it can be too low for few rounds or a small delta"


def approximations(event: Event, delta: Real) -> dict[str, dict[str, float | str]]:
    """The central-limit mu and epsilon of a sampled Gaussian event, or nothing where there is no formula.

    Participation is ignored: every round is counted, as in PriFedSync.

    >>> from sfumato.account.event import GaussianEvent
    >>> round(approximations(Repeated(PoissonSampled(0.01, GaussianEvent(1.1)), 1000), 1e-5)["clt"]["mu"], 4)
    0.3585
    """
    times, inner = 1, event
    while isinstance(inner, Repeated | Mixture):
        times *= inner.times if isinstance(inner, Repeated) else 1
        inner = inner.event
    if not isinstance(inner, PoissonSampled | FixedSizeSampled) or (ratio := merged_gaussian(inner.event)) is None:
        return {}
    if isinstance(inner, PoissonSampled) and inner.relation is Relation.ADD_REMOVE:
        mu = clt_mu_poisson(inner.rate, ratio, times)
    elif isinstance(inner, FixedSizeSampled) and inner.relation is Relation.REPLACE:
        mu = clt_mu_fixed_size(inner.rate, ratio, times)
    else:
        return {}
    if not mu < 1e5:
        return {}
    return {"clt": {"mu": mu, "epsilon": gdp_epsilon(mu, delta), "label": LABEL}}
