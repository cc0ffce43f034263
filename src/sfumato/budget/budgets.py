"""The budgets of clients: (epsilon, delta) for each, or for all that are not named; and how each is kept to.

They are public facts. Whoever sees a client's clip, rate, noise or last round sees its budget, so a budget must not depend on
what the client's data say.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from sfumato.account.event import Unit
from sfumato.errors import BadValue, DataError, nearest
from sfumato.ledger.ledger import Budget
from sfumato.pieces.own import Own

WAYS = ("noise", "clip", "rate", "rounds")


@dataclass(frozen=True)
class ClientBudget:
    """The most that may be spent on a client's data (record level: on each of its records), and how it is kept to.

    `by` says what gives way where the budget is small: the client's own noise (record level), its clip norm (client level), the
    rate at which it is drawn, or the number of rounds in which it takes part; empty: noise or clip. It takes part in
    the first `rounds` rounds only, if they are given. `law` is that of its own noise, by name, at record level.
    """

    epsilon: float
    delta: float
    law: str = ""
    by: str = ""
    rounds: int | None = None

    def __post_init__(self) -> None:
        for name in ("epsilon", "delta"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise BadValue(f"a budget's {name} is {value!r}: a number is needed, e.g. epsilon 2.0 at delta 1e-5.")
            object.__setattr__(self, name, float(value))
        if not (self.epsilon > 0.0 and math.isfinite(self.epsilon)):
            raise BadValue(f"a budget's epsilon is {self.epsilon}: it is positive and finite, e.g. 2.0.")
        if not 0.0 < self.delta < 1.0:
            raise BadValue(f"a budget's delta is {self.delta}: a probability above 0 and below 1, e.g. 1e-5.")
        if self.by and self.by not in WAYS:
            raise BadValue(f"a budget's by is {self.by!r}. {nearest(str(self.by), WAYS)}")
        if self.rounds is not None and (not isinstance(self.rounds, int) or isinstance(self.rounds, bool)):
            raise BadValue(f"a budget's rounds is {self.rounds!r}: a whole number of rounds is needed.")
        if self.rounds is not None and self.rounds < 1:
            raise BadValue(f"a budget's rounds is {self.rounds}: the client takes part in at least 1, or is left out.")
        if not isinstance(self.law, str):
            raise BadValue(f"a budget's law is {self.law!r}: the name of a law is needed, e.g. 'gaussian'.")

    def to_table(self) -> dict[str, Any]:
        """Its values, without those that are left to the default."""
        return {part.name: value for part in fields(self) if (value := getattr(self, part.name)) not in ("", None)}


@dataclass(frozen=True)
class Budgets:
    """A budget for those that `own` does not name, and the budgets of those that it does; clients by number."""

    default: ClientBudget | None
    own: Own = ()

    @staticmethod
    def of(given: Any, size: int, ids: tuple[int | str, ...] = ()) -> Budgets:
        """From a file, from what is written in one, or from a mapping from client to budget, with one for "default".

        Clients are numbers from 0; where the population has ids, these ids.

        >>> Budgets.of({"default": (4.0, 1e-5), 3: (1.0, 1e-5)}, size=10).own
        (((3,), ClientBudget(epsilon=1.0, delta=1e-05, law='', by='', rounds=None)),)
        """
        if isinstance(given, Budgets):
            return given._within(size)
        if isinstance(given, str | Path):
            given = read(given)
        if not isinstance(given, Mapping):
            raise BadValue(f"budgets={given!r}: give a file, or a mapping from client to (epsilon, delta).")
        default, own = _entries(given)
        usual = None if default is None else _budget(default, "default", None)
        groups: dict[ClientBudget, list[int]] = {}
        for who, value in own:
            numbers = [number for one in who for number in _numbers(one, size, ids)]
            groups.setdefault(_budget(value, f"clients {list(who)}", usual), []).extend(numbers)
        return Budgets(usual, tuple((tuple(who), budget) for budget, who in groups.items()))._within(size)

    def _within(self, size: int) -> Budgets:
        named = [client for who, _ in self.own for client in who]
        if twice := [client for client, times in Counter(named).items() if times > 1]:
            raise BadValue(f"client {twice[0]} is given two budgets. Name each client once.")
        if named and max(named) >= size:
            raise BadValue(f"there is a budget for client {max(named)}, but clients are 0 to {size - 1}.")
        if self.default is None and len(named) < size:
            raise BadValue(
                f"{size - len(named)} of {size} clients have no budget. Give one for the others: [default] with epsilon and delta "
                'in a file, or "default" in a mapping.'
            )
        return Budgets(self.default, tuple((tuple(sorted(who)), budget) for who, budget in self.own))

    def groups(self, size: int) -> list[tuple[tuple[int, ...], ClientBudget]]:
        """Every budget that somebody has, with its clients; first that of all who are not named, if there are any, as ()."""
        named = sum(len(who) for who, _ in self.own)
        usual = [] if self.default is None or named == size else [((), self.default)]
        return [*usual, *self.own]

    def lines(self, unit: Unit, size: int | None = None) -> tuple[Budget, ...]:
        """The lines that a ledger holds of them; without `size` there may always be others."""
        named = tuple(sorted(client for who, _ in self.own for client in who))
        groups = self.groups(len(named) + 1 if size is None else size)
        return tuple(
            Budget(budget.epsilon, budget.delta, unit, who or None, () if who else named) for who, budget in groups
        )

    @property
    def delta(self) -> float:
        """The largest: a statement about all of them holds there."""
        every: list[ClientBudget] = [budget for _, budget in self.own]
        return max(budget.delta for budget in (*every, *([self.default] if self.default else [])))

    def to_table(self) -> dict[str, Any]:
        """What a file would hold."""
        usual = {} if self.default is None else {"default": self.default.to_table()}
        own = [{"clients": ranges(who), **budget.to_table()} for who, budget in self.own]
        return {**usual, **({"own": own} if own else {})}


def read(path: str | Path) -> dict[str, Any]:
    """What a file of budgets holds: [default], and [[own]] with its clients; what it says is checked by `Budgets.of`."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"the budgets {path} cannot be read: {error.strerror}. Give a TOML file.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadValue(f"the budgets {path} are not TOML: {error}.") from None


def _entries(given: Mapping[Any, Any]) -> tuple[Any, list[tuple[tuple[Any, ...], Any]]]:
    """The default, and pairs of clients and budget; a file has its tables, a mapping its clients."""
    own = [(who if isinstance(who, tuple) else (who,), value) for who, value in given.items()]
    tables = given.get("own")
    if isinstance(tables, list):
        if unknown := [name for name in given if name not in ("default", "own")]:
            raise BadValue(f"budgets: there is no table {unknown[0]!r}. {nearest(str(unknown[0]), ('default', 'own'))}")
        own = [(_listed(table), {k: v for k, v in table.items() if k != "clients"}) for table in tables]
    return given.get("default"), [(who, value) for who, value in own if who != ("default",)]


def _listed(table: Any) -> tuple[Any, ...]:
    clients = table.get("clients") if isinstance(table, Mapping) else None
    if not isinstance(clients, list) or not clients:
        raise BadValue(f"a budget names its clients={clients!r}: a list of at least one is needed, e.g. [0, 3, '5-9'].")
    return tuple(clients)


def _budget(value: Any, whose: str, usual: ClientBudget | None) -> ClientBudget:
    """One budget: of a table or a mapping, or (epsilon, delta) with a law if there is one."""
    if isinstance(value, ClientBudget):
        return value
    names = [part.name for part in fields(ClientBudget)]
    if isinstance(value, tuple | list) and 2 <= len(value) <= 3:
        value = dict(zip(names, value, strict=False))
    if not isinstance(value, Mapping):
        raise BadValue(f"the budget of {whose} is {value!r}: give (epsilon, delta), or (epsilon, delta, law).")
    if unknown := [name for name in value if name not in names]:
        raise BadValue(f"the budget of {whose} has no key {unknown[0]!r}. {nearest(str(unknown[0]), names)}")
    known = {**({} if usual is None else {"delta": usual.delta}), **value}
    if missing := [name for name in ("epsilon", "delta") if name not in known]:
        raise BadValue(f"the budget of {whose} lacks {' and '.join(missing)}.")
    try:
        return ClientBudget(**known)
    except BadValue as error:
        raise BadValue(f"the budget of {whose}: {error}") from None


def _numbers(client: Any, size: int, ids: tuple[int | str, ...]) -> Iterable[int]:
    """The clients that a word names: by id, where there are ids of its kind; else a number, or a range such as '5-9'."""
    if (
        not isinstance(client, bool)
        and (known := next((one for one in (client, str(client)) if one in ids), None)) is not None
    ):
        return [ids.index(known)]  # an id that reads 7 is meant by 7, and no place
    numbered = not any(isinstance(one, int) for one in ids)
    if isinstance(client, int) and not isinstance(client, bool) and client >= 0 and numbered:
        return [client]
    if isinstance(client, str) and numbered and (found := re.fullmatch(r"(\d+)-(\d+)", client)):
        first, last = map(int, found.groups())
        if first <= last:
            return range(first, min(last, size) + 1)  # one number beyond is enough to be refused
    there = nearest(str(client), [str(one) for one in ids]) if ids else f"Clients are numbers from 0 to {size - 1}."
    raise BadValue(f"there is a budget for client {client!r}, whom nobody knows. {there}")


def ranges(who: tuple[int, ...]) -> list[int | str]:
    """Numbers in a row as a range.

    >>> ranges((0, 3, 4, 5, 9))
    [0, '3-5', 9]
    """
    runs: list[list[int]] = []
    for client in who:
        if runs and client == runs[-1][-1] + 1:
            runs[-1].append(client)
        else:
            runs.append([client])
    return [run[0] if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
