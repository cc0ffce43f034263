"""A guarantee is a pure function of what was spent, an accountant and delta; one text says it, everywhere the same.

Two datasets are neighbouring if they are related as `relation` says for one `unit`. Then for every set S of outcomes, and
whichever of the two is the true one, P(S) <= e^epsilon P'(S) + delta.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from decimal import ROUND_CEILING, Context
from typing import Any

from sfumato.account.auto import Auto
from sfumato.account.event import Event, Relation, Secret, Unit, why_not_private
from sfumato.account.protocol import Accountant
from sfumato.errors import BadValue
from sfumato.notebook import guarantee_card

PUBLIC = "anyone who sees the released models of all rounds"
REFERENCE_DELTA = 1e-5  # where epsilon is printed beside every other delta (PRIVACY R18)
WIDTH = 80
_LABEL = 13  # columns that the names of rows take
_SHOWN = 3  # ways of sampling that one row names


@dataclass(frozen=True, repr=False)
class Guarantee:
    """What is proven for one unit against one observer, and under which assumptions. `epsilon` is None where nothing is.

    `view` is what the observer sees, `unseen` what it must not know besides. `reference` is epsilon at `REFERENCE_DELTA`, of the
    same event by the same accountant. `whole_client`: a record's bound is that of a client whose data are all replaced.
    """

    epsilon: float | None
    delta: float
    unit: Unit
    relation: Relation
    view: str
    accountant: str
    mechanism: str = ""
    assumptions: tuple[str, ...] = ()
    unproven: str = ""
    client: int | None = None  # whose it is, if it is one client's own
    unseen: str = ""
    sampling: str = ""
    reference: float | None = None
    whole_client: bool = False

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def __repr__(self) -> str:
        return f"Guarantee({self.headline})"

    def to_json(self) -> dict[str, Any]:
        """Its facts, and what is said of them: the observer, the headline, the rows of its text, and that text."""
        said: dict[str, Any] = {"observer": self.observer, "headline": self.headline}
        said |= {"rows": [list(row) for row in self.rows()], "text": str(self)}
        return {**asdict(self), "reference_delta": REFERENCE_DELTA, **said}

    def _repr_html_(self) -> str:
        return guarantee_card(self.headline, self.rows(), self.assumptions)

    @property
    def whose(self) -> str:
        """Whose data are protected: each unit's, or those of the one client that it speaks of."""
        if self.whole_client:
            return f"any change inside {'one client' if self.client is None else f'client {self.client}'} (such as one record)"
        if self.client is None:
            return f"each {self.unit}"
        return f"{'client' if self.unit is Unit.CLIENT else 'each record of client'} {self.client}"

    @property
    def observer(self) -> str:
        """Against whom it holds: what the observer sees, and what it must not know."""
        return _observer(self.view, self.unseen)

    @property
    def headline(self) -> str:
        """Epsilon, delta, unit, relation and observer, in one line."""
        return self.summary()

    def summary(self, digits: int = 4) -> str:
        """The headline, epsilon with so many digits."""
        if self.epsilon is None:
            return f"no proven guarantee for {self.whose}, against {self.observer}"
        return f"{self.amount(digits)} for {self.whose}, {self.relation.words}, against {self.observer}"

    def amount(self, digits: int = 4) -> str:
        """Epsilon and delta; beside them epsilon at `REFERENCE_DELTA`."""
        assert self.epsilon is not None, "something is proven"
        said = f"epsilon = {rounded_up(self.epsilon, digits)} at delta = {rounded_up(self.delta, 3)}"
        if self.delta == REFERENCE_DELTA:
            return said
        return f"{said} ({_or_none(self.reference, digits)} at {REFERENCE_DELTA:g})"

    def rows(self, digits: int = 4) -> tuple[tuple[str, str], ...]:
        """Names and what they stand for, in the order in which a guarantee is read; without the assumptions."""
        if self.epsilon is None:
            return (("guarantee", self._refusal),)
        epsilon, delta = rounded_up(self.epsilon, digits), rounded_up(self.delta, 3)
        inside = "; the bound of a whole client also bounds any change inside it" if self.whole_client else ""
        neighbours = self.relation.neighbours(Unit.CLIENT if self.whole_client else self.unit)
        beside = f" (epsilon {_or_none(self.reference, digits)} at delta {REFERENCE_DELTA:g})"
        return (
            ("epsilon", epsilon),
            ("delta", f"{delta}{beside if self.delta != REFERENCE_DELTA else ''}"),
            (
                "meaning",
                f"({epsilon}, {delta})-differential privacy: P(S) <= e^{epsilon} P'(S) + {delta} for neighbouring datasets and "
                f"every set S of outcomes; a probability changes by at most a factor of e^{epsilon}, plus {delta}",
            ),
            ("unit", self.whose),
            ("relation", f"{self.relation.words}: {neighbours}{inside}"),
            ("observer", self.observer),
            ("sampling", self.sampling),
            ("mechanism", self.mechanism),
            ("accountant", self.accountant),
        )

    def lines(self, digits: int = 4) -> list[str]:
        """Its text: the rows and a list of assumptions, in lines of at most 80 columns."""
        if self.epsilon is None:
            return _wrapped(self._refusal)
        found = [line for name, said in self.rows(digits) for line in _wrapped(f"{name:<{_LABEL}}{said}", _LABEL)]
        return [*found, *listed(self.assumptions)]

    @property
    def _refusal(self) -> str:
        first = self.headline
        return f"{first[0].upper()}{first[1:]}: {self.unproven.rstrip('.')}."


def listed(assumptions: Iterable[str]) -> list[str]:
    """Assumptions as they stand in a text, one below the other.

    >>> listed(["the server is trusted"])
    ['assumptions', '  - the server is trusted']
    """
    found = [line for words in assumptions for line in _wrapped(f"  - {words}", 4)]
    return ["assumptions", *found] if found else []


def _wrapped(line: str, hanging: int = 0) -> list[str]:
    return textwrap.wrap(line, WIDTH, subsequent_indent=" " * hanging, break_long_words=False, break_on_hyphens=False)


def _or_none(epsilon: float | None, digits: int) -> str:
    return "none" if epsilon is None else rounded_up(epsilon, digits)


def text_of(guarantees: Iterable[Guarantee], digits: int = 4) -> list[str]:
    """Several guarantees, one below the other."""
    found = [["", *one.lines(digits)] for one in guarantees]
    return [line for lines in found for line in lines][1:]


def told_once(world: Guarantee, server: Guarantee) -> tuple[Guarantee, ...]:
    """Two views; one that names both, where all else is the same."""
    if replace(server, view=world.view) != world:
        return world, server
    return (replace(world, view=f"{world.view}, {server.view} included"),)


def rounded_up(number: float, digits: int) -> str:
    """A bound with so many digits that is still a bound.

    >>> rounded_up(0.0029435, 3), rounded_up(2.0, 4), rounded_up(1e-05, 3)
    ('0.00295', '2', '1e-05')
    """
    context = Context(prec=digits, rounding=ROUND_CEILING)
    return f"{float(context.create_decimal(repr(number))):.{digits}g}"


def check_delta(delta: float) -> float:
    """Delta, if it is one."""
    if not 0.0 < delta < 1.0:
        raise BadValue(
            f"delta={delta}: a probability above 0 and below 1 is needed; below one over the population, e.g. 1e-5."
        )
    return delta


def default_delta(units: int | None) -> float:
    """Delta where none is given: 1e-5, or a tenth of one over the declared number of units if that is less (PRIVACY R18).

    A mechanism that publishes one of n units at random has delta 1/n, so delta is far below that. None: no number is declared;
    one that was counted would be a function of the data.

    >>> default_delta(200), default_delta(60_000)
    (1e-05, 1.6666666666666667e-06)
    """
    return REFERENCE_DELTA if units is None else min(REFERENCE_DELTA, largest_delta(units))


def largest_delta(units: int) -> float:
    """Above this a delta is cautioned about: a tenth of one over the number of units."""
    return 1 / (10 * max(units, 1))


def secrets(event: Event) -> tuple[Secret, ...]:
    """What an observer must not know for an event to cost what it costs: the one place where that is known."""
    return tuple(dict.fromkeys(part.secret for part in event.walk() if part.secret is not None))


def unseen_of(event: Event, unit: Unit) -> str:
    """What an observer must not know, in words; empty where nothing was credited for a secret.

    >>> from sfumato.account.event import GaussianEvent, PoissonSampled
    >>> unseen_of(PoissonSampled(0.1, GaussianEvent(1.0)), Unit.CLIENT), unseen_of(GaussianEvent(1.0), Unit.CLIENT)
    ('who took part in them', '')
    """
    words = {
        Secret.PARTICIPATION: "who took part in them" if unit is Unit.CLIENT else "which records were drawn",
        Secret.ORDER: "which message is whose",
        Secret.RUNS: "any run other than the best",
    }
    return " nor ".join(words[secret] for secret in secrets(event))


def observed_by(view: str, event: Event, unit: Unit) -> str:
    """The observer for whom an event was priced: what it sees, and what it must not know."""
    return _observer(view, unseen_of(event, unit))


def _observer(view: str, unseen: str) -> str:
    return f"{view}, but not {unseen}" if unseen else view


def assumed_secret(event: Event, unit: Unit) -> tuple[str, ...]:
    """The same as assumptions: what is drawn in secret, and credited, stays secret."""
    drawn = "who takes part in a round" if unit is Unit.CLIENT else "which records are drawn"
    words = {
        Secret.PARTICIPATION: f"{drawn} stays secret from the observer",
        Secret.ORDER: "which message is whose stays secret from the observer",
        Secret.RUNS: (
            "no one, clients that take part included, sees more of all the runs than the best: not how many, nor how long they took"
        ),
    }
    return tuple(words[secret] for secret in secrets(event))


def sampling_of(event: Event) -> str:
    """How units were drawn, and whether that must stay secret, in words.

    >>> from sfumato.account.event import GaussianEvent, Mixture, PoissonSampled
    >>> sampling_of(PoissonSampled(0.1, GaussianEvent(1.0)))
    'Poisson, rate 0.1 (must stay secret)'
    >>> sampling_of(Mixture(0.5, GaussianEvent(1.0)))
    'participation with probability 0.5, which the observer sees'
    """
    drawn = {part.sampling: part.secret is not None for part in event.walk() if part.sampling}
    said = [f"{words} (must stay secret)" if hidden else words for words, hidden in drawn.items()]
    more = [f"and {len(said) - _SHOWN} more"] if len(said) > _SHOWN else []
    return "; ".join([*said[:_SHOWN], *more]) or "none credited"


def guarantee(
    event: Event | None,
    delta: float,
    *,
    unit: Unit,
    relation: Relation,
    view: str = PUBLIC,
    assumptions: tuple[str, ...] = (),
    by: Accountant | None = None,
    unpaid: str = "it sees the messages before any noise",
    whole_client: bool = False,
) -> Guarantee:
    """The guarantee for what happened; `unpaid` says why there is none in a view without an event.

    `by` prices it: what the basis of a ledger says, or by default the tightest accountant, which is proven for a plan.
    """
    check_delta(delta)
    why = unpaid if event is None else why_not_private(event)
    if event is not None and why is None:
        chosen = Auto().choose(event) if by is None or isinstance(by, Auto) else by
        epsilon = chosen.epsilon(event, delta)
        if math.isfinite(epsilon):
            drawn = Unit.CLIENT if whole_client else unit
            return Guarantee(
                epsilon=epsilon,
                delta=delta,
                unit=unit,
                relation=relation,
                view=view,
                accountant=chosen.name,
                mechanism=event.words(),
                assumptions=tuple(dict.fromkeys((*assumptions, *assumed_secret(event, drawn)))),
                unseen=unseen_of(event, drawn),
                sampling=sampling_of(event),
                reference=epsilon if delta == REFERENCE_DELTA else _finite(chosen.epsilon(event, REFERENCE_DELTA)),
                whole_client=whole_client,
            )
        why = "no finite epsilon holds at this delta"
    name = "auto" if by is None else by.name
    return Guarantee(None, delta, unit, relation, view, name, unproven=why or "", whole_client=whole_client)


def _finite(epsilon: float) -> float | None:
    return epsilon if math.isfinite(epsilon) else None
