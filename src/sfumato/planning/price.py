"""What a setting costs, with everything that has to be said beside its epsilon: the answer of `account`, `plan` and the page."""

from __future__ import annotations

import math
import time
from typing import Any

from sfumato.account.auto import Auto
from sfumato.account.central_limit import approximations
from sfumato.account.event import Event, Relation, Repeated
from sfumato.account.papers.dp_fed_ls import dp_fed_ls_epsilon
from sfumato.account.protocol import accountant
from sfumato.errors import CannotAccount
from sfumato.guarantee import headline
from sfumato.pieces.law import Gaussian
from sfumato.pieces.sampler import FixedSize, Poisson
from sfumato.planning.setting import Setting
from sfumato.planning.words import assumptions, sampling, views


def price(setting: Setting, delta: float, name: str) -> dict[str, Any]:
    """The answer, with everything that has to be said beside its epsilon."""
    start = time.perf_counter()
    claim, event = setting.claim(), setting.event()
    epsilon, used = _epsilon(setting, delta, name)
    seconds = time.perf_counter() - start
    shown, who = epsilon if math.isfinite(epsilon) else None, views(setting)
    server = None if claim.server is None else _price(Repeated(claim.server, setting.rounds), delta, name)[0]
    seen = server if server is not None and math.isfinite(server) else None
    view = "everyone who sees the model" + (", the server included" if shown is not None and seen == shown else "")
    return {
        "headline": headline(shown, delta, f"each {setting.unit}", view, digits=6),
        "epsilon": shown,
        "delta": delta,
        "accountant": used,
        "relation": str(claim.relation),
        "unit": str(setting.unit),
        "noise": setting.law_name,
        "noise_multiplier": setting.law.noise_multiplier,
        "order": setting.law.order,
        "stddev": claim.stddev,
        "sensitivity": claim.noise_sensitivity,
        "rounds": setting.rounds,
        "votes": setting.votes,
        "sampling": sampling(setting),
        "neighbours": claim.relation.neighbours(setting.unit),
        "views": {
            "world": {"epsilon": shown, "who": who["world"]},
            "server": {"epsilon": seen, "who": who["server"]},
        },
        "assumptions": assumptions(setting),
        "mechanism": event.words(),
        "approximations": approximations(event, delta),
        "event": event.to_json(),
        "seconds": round(seconds, 4),
    }


def _epsilon(setting: Setting, delta: float, name: str) -> tuple[float, str]:
    if name == "theorem":
        claim, sampler = setting.claim(), setting.sample.sampler
        fits = {Poisson: (Relation.ADD_REMOVE, 2), FixedSize: (Relation.REPLACE, 1)}
        relation, theorem = fits.get(type(sampler), (None, 0))
        other = setting.batch or setting.at_client or setting.votes
        if not isinstance(setting.law, Gaussian) or other or claim.relation != relation:
            raise CannotAccount(
                "the theorems of DP-Fed-LS cover Gaussian noise at the server for clients' updates: Poisson sampling under "
                "add-remove, or a fixed size under replace. Use --accountant auto."
            )
        rate = sampler.chance(claim)
        epsilon = dp_fed_ls_epsilon(theorem, setting.law.noise_multiplier, 1.0, rate, setting.rounds, delta)
        return epsilon, f"theorem {theorem} of DP-Fed-LS"
    return _price(setting.event(), delta, name)


def _price(event: Event, delta: float, name: str) -> tuple[float, str]:
    price = accountant(name)
    used = price.choose(event) if isinstance(price, Auto) else price
    return used.epsilon(event, delta), used.name
