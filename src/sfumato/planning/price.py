"""What a setting costs, with everything that has to be said beside its epsilon: the answer of `account`, `plan` and the page."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import Any

from sfumato.account import accountant
from sfumato.account.central_limit import approximations
from sfumato.account.event import Relation, Repeated
from sfumato.account.papers.dp_fed_ls import dp_fed_ls_epsilon
from sfumato.errors import CannotAccount
from sfumato.guarantee import PUBLIC, REFERENCE_DELTA, Guarantee, guarantee, text_of, told_once
from sfumato.pieces.law import Gaussian
from sfumato.pieces.sampler import FixedSize, Poisson
from sfumato.planning.setting import Setting
from sfumato.planning.words import assumptions, sampling

_AT_SERVER = "the noise is added at the server, which sees the updates without it and must be trusted"
_DIGITS = 6


@dataclass(frozen=True)
class Price:
    """What is proven of a setting against the public and against the server, and how long that took."""

    setting: Setting
    public: Guarantee
    server: Guarantee
    seconds: float

    @property
    def first(self) -> Guarantee:
        """What is proven against the public; against the server too, where that is the same."""
        return told_once(self.public, self.server)[0]

    @property
    def lines(self) -> list[str]:
        """The text of what is proven."""
        return text_of(told_once(self.public, self.server), _DIGITS)

    @property
    def headline(self) -> str:
        """The first of them in one line."""
        return self.first.summary(_DIGITS)

    def to_json(self) -> dict[str, Any]:
        """The answer, with everything that has to be said beside its epsilon."""
        setting, claim, event = self.setting, self.setting.claim(), self.setting.event()
        return {
            "headline": self.headline,
            "epsilon": self.public.epsilon,
            "delta": self.public.delta,
            "accountant": self.public.accountant,
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
                "world": {"epsilon": self.public.epsilon, "who": self.public.observer},
                "server": {"epsilon": self.server.epsilon, "who": self.server.observer},
            },
            "guarantees": {"world": self.public.to_json(), "server": self.server.to_json()},
            "mechanism": event.words(),
            "assumptions": list(self.public.assumptions),
            "approximations": approximations(event, self.public.delta),
            "event": event.to_json(),
            "seconds": round(self.seconds, 4),
        }


def price(setting: Setting, delta: float, name: str) -> Price:
    """What is proven of a setting at this delta, by the accountant of this name."""
    start = time.perf_counter()
    claim, rounds = setting.claim(), setting.rounds
    theorem = name == "theorem"
    facts: dict[str, Any] = {"unit": setting.unit, "relation": claim.relation, "assumptions": assumptions(setting)}
    facts["by"] = accountant("auto" if theorem else name)
    public = guarantee(setting.event(), delta, view=PUBLIC, **facts)
    if theorem:
        public = _by_theorem(setting, public)
    event = None if claim.server is None else Repeated(claim.server, rounds)
    server = guarantee(event, delta, view="the server", unpaid=_AT_SERVER, **facts)
    return Price(setting, public, server, time.perf_counter() - start)


def _by_theorem(setting: Setting, proven: Guarantee) -> Guarantee:
    """The same, with the epsilon that the theorems of DP-Fed-LS give."""
    claim, sampler = setting.claim(), setting.sample.sampler
    fits = {Poisson: (Relation.ADD_REMOVE, 2), FixedSize: (Relation.REPLACE, 1)}
    relation, theorem = fits.get(type(sampler), (None, 0))
    other = setting.batch or setting.at_client or setting.votes
    if not isinstance(setting.law, Gaussian) or other or claim.relation != relation:
        raise CannotAccount(
            "the theorems of DP-Fed-LS cover Gaussian noise at the server for clients' updates: Poisson sampling under "
            "add-remove, or a fixed size under replace. Use --accountant auto."
        )
    rate, noise = sampler.chance(claim), setting.law.noise_multiplier

    def at(delta: float) -> float:
        return dp_fed_ls_epsilon(theorem, noise, 1.0, rate, setting.rounds, delta)

    epsilon, reference = at(proven.delta), at(REFERENCE_DELTA)
    return replace(
        proven,
        epsilon=epsilon if math.isfinite(epsilon) else None,
        reference=reference if math.isfinite(reference) else None,
        accountant=f"theorem {theorem} of DP-Fed-LS",
    )
