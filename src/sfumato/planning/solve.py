"""Population, sampling, rounds, epsilon, noise: whichever one is left open is solved for.

Epsilon falls with noise and with the population, and rises with rounds and with the cohort, so each answer is the end of a
bisection whose last point was accounted and found to be within the target.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from sfumato.account.adaptive import FittedOrder
from sfumato.account.calibrate import calibrate_noise
from sfumato.account.checks import LARGEST_ROUNDS, check_delta, check_rounds, check_target
from sfumato.account.event import Relation, Unit
from sfumato.account.protocol import accountant
from sfumato.errors import BadValue, CannotAccount
from sfumato.pieces.law_names import LAWS, NamedLaw
from sfumato.pieces.sampler import Drawn, Everyone, FixedSize, Poisson, parse_drawn
from sfumato.planning.setting import Setting

LARGEST_POPULATION = 1_000_000_000


@dataclass(frozen=True)
class Question:
    """What is known; exactly one of noise, sample, rounds and epsilon is None, or the sample has a size and no population."""

    noise: NamedLaw | None
    sample: str | None
    rounds: int | None
    epsilon: float | None
    delta: float
    clients: int | None = None
    relation: Relation | None = None
    law: str = "gaussian"
    accountant: str = "auto"
    dimension: int | None = None
    curious: int = 1
    unit: Unit = Unit.CLIENT
    votes: str = ""

    def open(self) -> str:
        """The name of the one thing to solve for."""
        known = {"noise": self.noise, "sample": self.sample, "rounds": self.rounds, "epsilon": self.epsilon}
        missing = [name for name, value in known.items() if value is None]
        if self.sample is not None and _size(self.sample) is not None and self.clients is None:
            missing.append("clients")
        if len(missing) != 1:
            what = f"{' and '.join(missing)} are open" if missing else "nothing is open"
            raise BadValue(f"plan: {what}. Give all but one of --noise, --sample, --rounds, --epsilon (and --clients).")
        return missing[0]


@dataclass(frozen=True)
class Plan:
    """An answer: everything is known, and the epsilon is proven."""

    solved: str
    setting: Setting
    epsilon: float
    delta: float
    clients: int | None
    dimension: int | None

    @property
    def cohort(self) -> float | None:
        """The expected number of clients in a round."""
        return None if self.clients is None else self.setting.sample.rate * self.clients

    @property
    def signal_to_noise(self) -> float | None:
        """The most that a round's sum can be over its noise, in L2 norms: all updates are equal, and of the clip norm.

        Of votes: one count. None where the number of clients or that of parameters is not known.
        """
        dimension = 1 if self.setting.votes else self.dimension
        if self.of_one is None or dimension is None:
            return None
        return self.of_one / math.sqrt(dimension)

    @property
    def of_one(self) -> float | None:
        """The same on one coordinate, by which plans compare in any dimension."""
        if self.cohort is None:
            return None
        stddev = self.setting.claim().stddev
        assert stddev is not None, "the noise paid"
        return self.cohort / stddev


@dataclass(frozen=True)
class Alternative:
    """One change to a plan, and the noise that the same epsilon then needs; None with the reason where it cannot be had.

    `signal` is how many times as large the sum of equal updates then is beside its noise, in any dimension.
    """

    change: str
    noise: float | None
    signal: float | None
    note: str = ""


def solve(question: Question) -> Plan:
    """The answer to a question.

    >>> plan = solve(Question(None, "poisson:0.05", 30, 6.0, 5e-4, clients=1000))
    >>> plan.solved, round(plan.setting.law.noise_multiplier, 3)
    ('noise', 0.555)
    """
    check_delta(question.delta)
    if question.epsilon is not None:
        check_target(question.epsilon)
    if question.rounds is not None:
        check_rounds(question.rounds)
    target = question.epsilon or math.inf
    opened = question.open()
    price = accountant(question.accountant)

    def cost(setting: Setting) -> float:
        return price.epsilon(setting.event(), question.delta)

    match opened:
        case "noise":
            first = _setting(question)
            noise = calibrate_noise(lambda size: first.at(size).event(), target, question.delta, by=price)
            setting = first.at(noise)
        case "rounds":
            most = _largest(lambda count: cost(_setting(question, rounds=count)) <= target, LARGEST_ROUNDS)
            setting = _setting(question, rounds=_at_least_one(most, "even one round costs more"))
        case "sample":
            if question.clients is None:
                raise BadValue("plan: to choose the cohort, say how many clients there are with --clients.")
            most = _largest(lambda size: cost(_setting(question, size=size)) <= target, question.clients)
            setting = _setting(question, size=_at_least_one(most, "even a cohort of one costs more"))
        case "clients":
            size = _size(question.sample or "") or 1
            more = _largest(lambda extra: cost(_setting(question, clients=size + extra)) > target, LARGEST_POPULATION)
            if more >= LARGEST_POPULATION:
                raise CannotAccount(f"plan: a billion clients are not enough for epsilon={target}. Add noise.")
            setting = _setting(question, clients=size + more + 1)
        case _:
            setting = _setting(question)
    clients = setting.sample.population or question.clients
    return Plan(opened, setting, cost(setting), question.delta, clients, question.dimension)


@dataclass(frozen=True)
class AdaptivePrice:
    """What a plan costs where it is not fixed before the first round: at one Renyi order, as in a shared ledger.

    `noise` is what the same epsilon needs there, where the noise was what the plan left open.
    """

    epsilon: float
    order: float
    noise: float | None = None


def adaptive_price(plan: Plan, target: float | None) -> AdaptivePrice | None:
    """The same setting in an adaptive ledger that begins with it; None where no Renyi bound of its event is known."""
    event = plan.setting.event()
    try:
        price = FittedOrder(plan.delta).at(event)
        noise = None
        if plan.solved == "noise" and target is not None:
            fitted = FittedOrder(plan.delta)
            noise = calibrate_noise(lambda size: plan.setting.at(size).event(), target, plan.delta, by=fitted)
        return AdaptivePrice(price.epsilon(event, plan.delta), price.order, noise)
    except CannotAccount:
        return None


def alternatives(plan: Plan, by: str = "auto") -> list[Alternative]:
    """What other samplers, accountants, populations, cohorts and round counts would need for the same epsilon."""
    setting, clients, once, found = plan.setting, plan.clients, plan.of_one, list[Alternative]()

    def add(change: str, changed: Setting, name: str = by, among: int | None = clients) -> None:
        guess = changed.law.noise_multiplier
        try:
            noise = calibrate_noise(
                lambda size: changed.at(size).event(), plan.epsilon, plan.delta, by=name, guess=guess
            )
        except CannotAccount as refusal:
            found.append(Alternative(change, None, None, str(refusal)))
            return
        signal = replace(plan, setting=changed.at(noise), clients=among).of_one
        found.append(Alternative(change, noise, None if not (signal and once) else signal / once))

    if setting.rounds > 1:
        add("half the rounds", replace(setting, rounds=setting.rounds // 2))
    if clients is not None:
        size = max(1, round(setting.sample.rate * clients))
        if size < clients:
            fixed = isinstance(setting.sample.sampler, Poisson)
            curious = setting.sample.sampler.curious
            drawn = Drawn(FixedSize(size, curious=curious) if fixed else Poisson(size / clients), clients)
            words = f"a {'fixed' if fixed else 'poisson'} cohort of {size} (other neighbours)"
            add(words, replace(setting, sample=drawn, relation=None))
        if not setting.everyone:
            same = replace(setting, relation=setting.claim().relation)
            add("everyone in every round", replace(same, sample=Drawn(Everyone(), clients)))
            larger = replace(setting, sample=_drawn(setting, size, 2 * clients))
            add("twice the clients, same cohort", larger, among=2 * clients)
            if 2 * size < clients:
                add("twice the cohort", replace(setting, sample=_drawn(setting, 2 * size, clients)))
    for name in ("auto", "rdp"):
        if name != by:
            add(f"the accountant {name}", setting, name)
    return found


def _drawn(setting: Setting, size: int, clients: int) -> Drawn:
    """The same kind of sampler with another cohort."""
    sampler = setting.sample.sampler
    if isinstance(sampler, FixedSize):
        return Drawn(replace(sampler, size=size), clients)
    return Drawn(Poisson(size / clients, sampler.relation), clients)


def _setting(
    question: Question, *, rounds: int | None = None, size: int | None = None, clients: int | None = None
) -> Setting:
    law = question.noise or LAWS[question.law](1.0)
    if size is not None:
        sample = Drawn(Poisson(size / (question.clients or 1)), question.clients)
    else:
        sample = _sample(question, clients or question.clients)
    often, relation, dimension = rounds or question.rounds or 1, question.relation, question.dimension
    return Setting(law, sample, often, question.unit, relation, dimension=dimension, votes=question.votes)


def _sample(question: Question, clients: int | None) -> Drawn:
    text = question.sample or ""
    size = _size(text)
    if size is not None and clients is not None:
        text = f"{text.partition(':')[0]}:{size}/{max(clients, size)}"
    sample = parse_drawn(text, option="--sample", curious=question.curious)
    if sample.population is not None and clients is not None and sample.population != clients:
        raise BadValue(f"--sample {text}: its population is not --clients {clients}. Give one of them.")
    if isinstance(sample.sampler, FixedSize) and sample.population is None:
        raise BadValue(f"--sample {text}: a fixed size needs its population, e.g. fixed:50/1000.")
    return sample


def _size(text: str) -> int | None:
    """The cohort size in 'fixed:50' or 'poisson:50'; None where the words hold a rate or a population."""
    kind, _, amount = text.partition(":")
    return int(amount) if kind in ("fixed", "poisson") and amount.isdigit() and int(amount) > 1 else None


def _largest(fits: Callable[[int], bool], limit: int) -> int:
    """The largest whole number up to `limit` that fits, if all below a fitting one fit; 0 if none does."""
    low, high = 0, 1
    while high <= limit and fits(high):
        low, high = high, 2 * high
    high = min(high, limit + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _at_least_one(count: int, otherwise: str) -> int:
    if count < 1:
        raise CannotAccount(f"plan: {otherwise} than the target epsilon. Add noise or raise the target.")
    return count
