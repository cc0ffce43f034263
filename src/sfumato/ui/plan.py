"""A budget to play with: what a setting costs or needs, and what it leaves to an attacker. Nothing is computed here but words."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from sfumato.errors import BadValue, CannotAccount
from sfumato.guarantee import check_delta, default_delta, rounded_up
from sfumato.pieces.sampler import parse_drawn
from sfumato.planning.price import price
from sfumato.planning.setting import Setting, parse_noise
from sfumato.planning.solve import Question, solve
from sfumato.planning.words import caution, sampling
from sfumato.report.telling import telling
from sfumato.report.words import number, share_down, share_up

_DIGITS = 6  # as `sfumato account` prints an epsilon
_FALSE_ALARMS = 0.01  # where the curve is read for people
_LARGEST = 10**12


@dataclass(frozen=True)
class Asked:
    """What the page's controls say: one of `noise` and `epsilon` is given, the other is found.

    Without `rate` everyone takes part in every round; without `delta` it is the usual one for the population.
    """

    population: int
    rounds: int
    rate: float | None = None
    noise: float | None = None
    epsilon: float | None = None
    delta: float | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.population <= _LARGEST:
            raise BadValue(f"population {self.population}: at least 1 client is needed.")
        if self.rate is not None and 0 < self.rate < 1 / _LARGEST:
            raise BadValue(f"rate {self.rate}: at least {1 / _LARGEST:g}, or nobody ever takes part.")
        if self.noise is not None and self.noise > _LARGEST:
            raise BadValue(f"noise {self.noise}: at most {_LARGEST:g}. Nothing can be learnt beside as much.")
        if (self.noise is None) == (self.epsilon is None):
            raise BadValue("give the noise multiplier or the epsilon, and the other one is found.")
        if self.delta is not None:
            check_delta(self.delta)

    @property
    def sample(self) -> str:
        """The cohort, as `--sample` has it."""
        return "everyone" if self.rate is None else f"poisson:{self.rate!r}"

    @property
    def used_delta(self) -> float:
        """The delta that was given, or the usual one."""
        return check_delta(default_delta(self.population) if self.delta is None else self.delta)

    @property
    def setting(self) -> Setting:
        """The setting with all its values, the noise found if it was not given."""
        return _setting(replace(self, epsilon=None if self.noise else self.epsilon))

    @property
    def commands(self) -> dict[str, str]:
        """The same question to the command line, and the run that it is about."""
        common = f"--sample {self.sample} --rounds {self.rounds} --delta {self.used_delta!r}"
        train = f"sfumato train --data YOUR_DATA --clients {self.population} {common}"
        if self.noise is not None:
            account = f"sfumato account --noise gaussian:{self.noise!r} {common}"
            return {"account": account, "train": f"{train} --noise-multiplier {self.noise!r}"}
        plan = f"sfumato plan --clients {self.population} {common} --epsilon {self.epsilon!r}"
        return {"plan": plan, "train": f"{train} --epsilon {self.epsilon!r}"}


@lru_cache(maxsize=1024)
def _setting(asked: Asked) -> Setting:
    if asked.noise is None:
        question = Question(None, asked.sample, asked.rounds, asked.epsilon, asked.used_delta, asked.population)
        return solve(question).setting
    return Setting(parse_noise(f"gaussian:{asked.noise!r}"), parse_drawn(asked.sample, option="--sample"), asked.rounds)


@lru_cache(maxsize=1024)
def cost(asked: Asked) -> dict[str, Any]:
    """Epsilon and noise, for whom they hold, and the commands that say the same."""
    setting, delta = asked.setting, asked.used_delta
    found = price(setting, delta, "auto")
    epsilon, noise = found.public.epsilon, setting.law.noise_multiplier
    cohort = asked.population * setting.sample.rate
    return {
        "epsilon": epsilon,
        "epsilon_said": "none" if epsilon is None else rounded_up(epsilon, _DIGITS),
        "noise": noise,
        "noise_said": rounded_up(noise, _DIGITS),
        "delta": delta,
        "delta_said": rounded_up(delta, 3),
        "cohort": f"everyone, {asked.population:,}"
        if setting.everyone
        else f"about {cohort:,.4g} of {asked.population:,}",
        "caution": caution(delta, asked.population, str(setting.unit)).replace("--delta", "delta"),
        "words": f"{found.headline}. {found.server.rows(_DIGITS)[0][1]}",
        "details": [
            *found.public.rows(_DIGITS),
            *(("assumption", words) for words in found.public.assumptions),
            ("cohort", sampling(setting)),
        ],
        "commands": asked.commands,
    }


@lru_cache(maxsize=256)
def attack(asked: Asked) -> dict[str, Any]:
    """The errors that every test for one client makes at least, and two readings of them, rounded against us."""
    found = telling(asked.setting.event())
    if found is None:
        raise CannotAccount("of this setting it is not known how well anybody can tell.")
    alarms, misses = zip(*found.curve, strict=True)
    return {
        "false_alarms": alarms,
        "misses": misses,
        "said": [f"{number(100 * a)} % false alarms: misses at least {share_down(m)}" for a, m in found.curve],
        "guess": share_up(found.right),
        "found": share_up(found.found(_FALSE_ALARMS)),
        "at": f"{number(100 * _FALSE_ALARMS)} %",
    }
