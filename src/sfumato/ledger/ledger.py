"""An append-only record of what was spent, on disk before anything is shown.

The order of a round is: reserve (committed), draw, compute, store, settle, show. A reservation counts from the moment it is
committed, settled or not. So a crash can only make the ledger say more than was spent, never less. Randomness is drawn after
the reservation and used for that round alone (PRIVACY R5): a round that is begun again is reserved again, and both count.

Everything that the ledger says is an entry of a chain (`chain.py`), and no entry is ever changed.

Each run has a ledger of its own. A shared one adds up all runs on one population, in any number of processes: its budget is
checked in the same transaction that reserves, so two runs cannot both take the last of it.

What is added up must have been spent on the same clients. So a ledger keeps a digest of who they are, keyed with a random id
of its own: other clients under the same name are refused, and nothing that is printed of it tests a guess at their names.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import threading
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sfumato.account.adaptive import divergence
from sfumato.account.checks import LARGEST_ROUNDS
from sfumato.account.event import Event, Repeated, Unit, named, why_not_private
from sfumato.account.inside import dearest, for_clients
from sfumato.account.protocol import Accountant, accountant
from sfumato.errors import BudgetExceeded, LedgerError
from sfumato.ledger.basis import AdaptiveBasis, Counted, LedgerBasis, PlanBasis, basis_from, together
from sfumato.ledger.chain import COUNTED, FACT, RESERVE, SAID, SCHEMA, SETTLE, TABLES, Chain, link
from sfumato.ledger.file import connect, is_ours, make, schema_of
from sfumato.ledger.migrate import migrate
from sfumato.ledger.spent import Cost, Costs, digest_of, total

UNNAMED = "unnamed"  # clients of whom nobody said who they are
BASIS = "basis"  # the fact that states which sum is proven (`basis.py`); it is written once
SHOWN = "shown"  # the fact that outputs were shown before they were stored
PROMISE = "promise:"  # begins the name of a run of which its owner knows only what a server has promised


_SINCE = """
SELECT COUNT(*) FROM entries WHERE kind = 'reserve'
AND number > (SELECT MAX(number) FROM entries WHERE kind = 'fact' AND name = ?)
"""
_CHANGED = """
SELECT 1 FROM entries WHERE kind = 'fact' AND name = ?
AND number > (SELECT MIN(number) FROM entries WHERE kind = 'settle' OR (kind = 'fact' AND name = 'shown'))
"""


@dataclass(frozen=True)
class Entry:
    """One reservation. Rounds are counted from 0; a step that the run took before the first of them is round -1."""

    number: int
    run: str
    round: int
    attempt: int
    seeded: bool
    settled: bool
    costs: dict[Unit, Cost]


@dataclass(frozen=True)
class Budget:
    """The most that may be spent on each unit, against anyone who sees the released models.

    It is that of some `clients`, or that of all `but` some; without either it is common to all.
    """

    epsilon: float
    delta: float
    unit: Unit = Unit.CLIENT
    clients: tuple[int, ...] | None = None
    but: tuple[int, ...] = ()

    def spent(self, event: Event, paying: Event | None = None, by: Accountant | None = None) -> float:
        """What has been spent of it, by the one of its clients that pays most; of those whom `paying` costs something.

        `by` is what prices it, as the basis of a ledger says; by default the tight accountants.
        """
        price, every = by or accountant("auto"), for_clients(event, self.clients, self.but, paying)
        return max((price.epsilon(own, self.delta) for own in dearest(every)), default=0.0)

    @property
    def whose(self) -> str:
        """Its clients in words; empty if it is common to all."""
        if self.clients is not None:
            return f" of {named(self.clients)}"
        return " of all clients without a budget of their own" if self.but else ""


class Ledger:
    """A ledger in a file, or in memory if there is no path. Without `population` an existing file is opened to read.

    `clients` is the identity of the population's clients; None if it has none. A file is open only while something is read or
    written, or inside of `connected`, so there is nothing to close. Reading leaves it as it is, also on a read-only disk.
    """

    def __init__(self, path: Path | None, population: str | None, clients: str | None = None) -> None:
        self.path, self._lock, self._uses, self._writes = path, threading.Lock(), 0, False
        self._has_settled = False  # by this process
        self._alone = threading.RLock()  # whoever writes or reads, so that a transaction is one thread's
        if population is None and (path is None or not path.exists()):
            raise LedgerError(
                f"there is no ledger {path}. Give the file that --ledger named, or a run's ledger.sqlite."
            )
        if path is None:  # in memory it is there for as long as the ledger is
            self._connection, self._uses, self._writes = connect(None), 1, True
            weakref.finalize(self, self._connection.close)
        try:
            if path is not None and population is not None:
                make(path)
            with self.connected(to_write=population is not None):
                self._begin(population, clients)
        except sqlite3.DatabaseError as error:
            raise LedgerError(f"{path} is not a ledger, or it is damaged: {error}.") from error

    @contextmanager
    def connected(self, to_write: bool = True) -> Iterator[sqlite3.Connection]:
        """One connection for whatever is done inside, and inside of that: opening one costs as much as writing does.

        It changes nothing of what is on disk, or when: each transaction is there as soon as it ends.
        """
        with self._lock:
            if not self._uses:
                self._connection, self._writes = self._connect(to_write), to_write
            assert self._writes or not to_write, "what is opened to read is not written inside"
            self._uses += 1
        try:
            yield self._connection
        finally:
            with self._lock:
                self._uses -= 1
                if not self._uses:
                    self._connection.close()

    def _connect(self, to_write: bool) -> sqlite3.Connection:
        assert self.path is not None, "in memory there is one already"
        try:
            connection = connect(self.path, to_write=to_write)
        except sqlite3.OperationalError as error:
            raise LedgerError(
                f"{self.path} cannot be opened: {error}. Put it back where it was, or correct its permissions."
            ) from error
        try:
            if (
                schema_of(connection) == "2"
            ):  # of 0.1 and 0.2: rewritten where it lies, or read through a copy in memory
                if not to_write:
                    copy = connect(None)
                    connection.backup(copy)
                    connection.close()
                    connection = copy
                migrate(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _begin(self, population: str | None, clients: str | None) -> None:
        if population is not None:
            with self._writing() as connection:  # one transaction: whoever is killed in it leaves an empty file
                if is_ours(connection, SCHEMA):
                    for statement in TABLES.split(";"):
                        connection.execute(statement)
                    self._set_first("schema", str(SCHEMA))
                    self._set_first("id", os.urandom(16).hex())
        if (found := schema_of(self._connection)) != str(SCHEMA):
            raise LedgerError(
                f"{self.path} has schema {found}, not {SCHEMA}. Use the Sfumato that wrote it, or another file."
            )
        if population is not None:
            self._belong(population, UNNAMED if clients is None else self._keyed(clients))

    def _keyed(self, clients: str) -> str:
        return hashlib.blake2b(clients.encode(), key=bytes.fromhex(self.id), digest_size=16).hexdigest()

    def _belong(self, population: str, clients: str) -> None:
        """Refuse to add up what was spent on others."""
        with self._writing():
            self._set_first("population", population)
            self._set_first("clients", clients)
        if self.fact("population") != population:
            raise LedgerError(
                f"{self.path} belongs to the population {self.fact('population')!r}, not {population!r}. Use another file."
            )
        if (known := self.fact("clients")) != clients:
            raise LedgerError(
                f"{self.path} belongs to the clients {str(known)[:8]} of {population!r}, and this run's clients of that name are "
                f"{clients[:8]}: another split, seed or number of clients, other file names, or other ids. What is spent on one "
                "does not add up with what is spent on the other. Give what the runs before had (--split-seed, --clients, ids=), "
                "or another file."
            )

    @property
    def id(self) -> str:
        """What tells this ledger from any other, wherever its file lies."""
        return str(self.fact("id"))

    @property
    def head(self) -> str:
        """The hash of the last entry: it stands for all of them, in their order."""
        with self.connected(to_write=False) as connection:
            return Chain(connection).last()[1]

    def was_at(self, head: str) -> bool:
        """Whether that was its head at some time: then no entry up to there is gone or changed."""
        return self._row("SELECT 1 FROM entries WHERE hash = ?", head) is not None

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What must hold for everything in it to add up, and what nobody checks."""
        found = []
        if self.fact("clients") == UNNAMED:
            found.append(
                "all runs in the ledger have the same clients under the same numbers (no ids were given, so nobody checks)"
            )
        if self._row("SELECT 1 FROM counts WHERE run LIKE ?", f"{PROMISE}%") is not None:
            found.append(
                "servers have drawn cohorts in secret, added the noise and begun no more rounds than they promised (nobody checks)"
            )
        if self.fact("trusting") is not None:
            found.append(
                "servers have followed the protocol of their secure sums, and have played none of the other clients (nobody checks)"
            )
        if self.fact("node") is not None:
            found.append(
                "whether the node replies at all (it may lack memory, or be killed) does not depend on one record; the time that a "
                "reply takes is not covered"
            )
        return (*found, *self.of_basis)

    @property
    def of_basis(self) -> tuple[str, ...]:
        """What its basis assumes of what happened."""
        return () if self.basis is None else self.basis.assumptions(self.happened)

    @property
    def basis(self) -> LedgerBasis | None:
        """Which sum is proven; None before the first reservation. What an earlier version wrote is an empty plan."""
        found = self.fact(BASIS)
        if found is None:
            return PlanBasis() if self.count else None
        return basis_from(found, {digest: Costs.read(text) for digest, text in self._rows("SELECT * FROM costs")})

    def begin(self, basis: LedgerBasis) -> LedgerBasis:
        """The basis of this ledger: this one from now on, unless it has one."""
        with self._writing():
            if (found := self.basis) is not None:
                return found
            self._state(basis)
        return basis

    def restate(self, basis: PlanBasis) -> bool:
        """State the plan again, with what was interrupted in it; whether that could be done.

        Only while no output is known, and only with as many rounds as before: somebody may have seen an output that the ledger does
        not know of, as a killed server has, so nothing else of a plan may change.
        """
        with self._writing():
            known = self.basis
            if not self.is_open_plan or not isinstance(known, PlanBasis) or basis.is_exceeded(self.happened):
                return False
            since = int(self._row(_SINCE, BASIS)[0])
            if sum(times for _, times in basis.counts) > sum(times for _, times in known.counts) + since:
                return False
            self._state(basis)
        return True

    def _state(self, basis: LedgerBasis) -> None:
        with self._writing() as connection:
            if isinstance(basis, PlanBasis):
                for costs, _ in basis.counts:
                    connection.execute("INSERT OR IGNORE INTO costs VALUES (?, ?)", (costs.digest, costs.text))
            self.set_fact(BASIS, basis.written())

    @property
    def is_open_plan(self) -> bool:
        """Whether it has a plan, and no output of a reservation was stored or shown."""
        stored = (
            self._row("SELECT 1 FROM entries WHERE kind = 'settle' LIMIT 1") is not None or self.fact(SHOWN) is not None
        )
        return not stored and self.fact(BASIS) is not None and isinstance(self.basis, PlanBasis)

    def note_shown(self) -> None:
        """Note that outputs are shown before they are stored, as those between two checkpoints are."""
        self._set_first(SHOWN, "yes")

    @property
    def price(self) -> Accountant:
        """What prices its sum, by its basis."""
        return accountant("auto") if self.basis is None else self.basis.price

    def note_node(self) -> None:
        """Note that its entries are a node's replies."""
        if self.fact("node") is None:
            self.set_fact("node", "yes")

    def note_trusting(self) -> None:
        """Note that some of it holds of a server that follows the protocol of a secure sum, and of no other."""
        self.set_fact("trusting", "yes")

    @property
    def other_numbers(self) -> bool:
        """Whether its clients are known by numbers that do not count them from 0, as the ledger does."""
        return self.fact("other_numbers") is not None

    def note_other_numbers(self) -> None:
        """Note that they are; who has which is not kept."""
        self.set_fact("other_numbers", "yes")

    @property
    def durable(self) -> bool:
        """Whether it survives this process."""
        return self.path is not None

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        try:
            with self._alone, self.connected() as connection:
                if connection.in_transaction:  # inside of another of this thread's
                    yield connection
                    return
                connection.execute("BEGIN IMMEDIATE")
                try:
                    yield connection
                    connection.execute("COMMIT")
                except BaseException:
                    if connection.in_transaction:  # sqlite ends it by itself where the disk is full
                        connection.execute("ROLLBACK")
                    raise
        except sqlite3.OperationalError as error:
            raise LedgerError(
                f"{self.path} cannot be written: {error}. Nothing is drawn that it does not hold. Make room on its disk, or "
                "correct its permissions, and resume."
            ) from error

    def fact(self, name: str) -> str | None:
        """The last value that a fact about the ledger was given; None if it has none, or it was taken away."""
        row = self._row("SELECT value FROM entries WHERE kind = 'fact' AND name = ? ORDER BY number DESC LIMIT 1", name)
        return None if row is None or row[0] is None else str(row[0])

    def set_fact(self, name: str, value: str | None) -> None:
        """State a fact about the ledger, in place of what was stated before; None takes it away."""
        with self._writing() as connection:
            if self.fact(name) != value:
                Chain(connection).append(FACT, name=name, value=value)

    def _set_first(self, name: str, value: str) -> None:
        """The same, unless it has a value."""
        if self.fact(name) is None:
            self.set_fact(name, value)

    def _rows(self, query: str, *values: object) -> list[Any]:
        with self._alone, self.connected(to_write=False) as connection:
            return connection.execute(query, values).fetchall()

    def _row(self, query: str, *values: object) -> Any:
        return next(iter(self._rows(query, *values)), None)

    @property
    def shared(self) -> tuple[Path, str] | None:
        """Where the ledger lies that its run shares with others, and that ledger's id."""
        found = self.fact("shared")
        if found is None:
            return None
        path, name = json.loads(found)
        return Path(path), str(name)

    def remember_shared(self, shared: Ledger) -> None:
        """Note the shared ledger, and where it lies now; committed before its run spends anything."""
        assert shared.path is not None, "a ledger in memory is not shared"
        self.set_fact("shared", json.dumps([str(shared.path.absolute()), shared.id]))

    @property
    def budget(self) -> Budget | None:
        """The common budget, if one was set."""
        found = self.fact("budget")
        if found is None:
            return None
        epsilon, delta, unit = json.loads(found)
        return Budget(epsilon, delta, Unit(unit))

    def set_budget(self, budget: Budget | None) -> None:
        """Set the common budget, or take it away; it holds for every later reservation."""
        self.set_fact("budget", None if budget is None else json.dumps([budget.epsilon, budget.delta, budget.unit]))

    @property
    def own_budgets(self) -> tuple[Budget, ...]:
        """The budgets that clients have for themselves, all runs together: each is a line of this ledger."""
        found = json.loads(self.fact("own_budgets") or "[]")
        return tuple(
            Budget(epsilon, delta, Unit(unit), None if clients is None else tuple(clients), tuple(but))
            for epsilon, delta, unit, clients, but in found
        )

    def set_own_budgets(self, budgets: Iterable[Budget]) -> None:
        """Set clients' own budgets; they hold for every later reservation."""
        written = [[one.epsilon, one.delta, one.unit, one.clients, one.but] for one in budgets]
        self.set_fact("own_budgets", json.dumps(written))

    def reserve(
        self,
        *,
        run: str,
        round: int,
        costs: Costs,
        attempt: int = 0,
        name: str | None = None,
        seeded: bool = False,
        basis: LedgerBasis | None = None,
    ) -> int:
        """Commit what a round costs before anything of it is drawn; the number of the reservation.

        The first one states the `basis` of the ledger, in the same transaction; by default an empty plan.
        Every call is a new reservation. Only what has a `name`, such as the round of a seeded run, which draws the same noise
        whenever it is begun, is reserved once: by the same run, for the same round and cost, and by no other.
        """
        with self._writing() as connection:
            if name is not None:
                row = self._row(
                    "SELECT number, run, round, cost FROM entries WHERE kind = 'reserve' AND name = ?", name
                )
                if row is not None:
                    if tuple(row[1:]) != (run, round, costs.digest):
                        raise LedgerError(
                            f"{self.path or 'the ledger'} has counted the noise of round {round + 1} already, for another run: two "
                            "results with the same noise differ by no noise at all. Nothing was drawn: give another seed, or none."
                        )
                    return int(row[0])
            self.begin(basis or PlanBasis())
            self.check(costs)
            return Chain(connection).reserve(
                run=run, round=round, attempt=attempt, seeded=seeded, costs=costs, name=name
            )

    def check(self, costs: Costs, basis: LedgerBasis | None = None) -> None:
        """Refuse what a budget does not suffice for, and what the basis has no bound for; write nothing.

        `reserve` does so in the transaction that it writes in. `basis` is what it will be, where nothing was reserved before.
        """
        basis, happened = self.basis or basis or PlanBasis(), self.happened
        if isinstance(basis, AdaptiveBasis) and all(known.digest != costs.digest for known, _ in happened):
            _check_bounds(basis, costs)
        common = () if self.budget is None else (self.budget,)
        is_planned = isinstance(basis, PlanBasis) and bool(basis.counts)
        for budget in (*common, *self.own_budgets):
            if is_planned and basis.is_exceeded(together(happened, [(costs, 1)])):
                raise BudgetExceeded(
                    f"{self.path} has a plan, and the next round goes beyond it: a budget is kept by what was planned alone. Use "
                    "another ledger, or take its budget away."
                )
            after = total(basis.accounted(together(happened, [(costs, 1)])), budget.unit)
            if after is None or why_not_private(after.world) is not None:
                raise BudgetExceeded(
                    f"{self.path} has a budget for each {budget.unit}, but nothing is proven for {budget.unit}s in this round or "
                    "in an earlier one. Use another ledger."
                )
            # a client that has stopped holds up no other
            epsilon = budget.spent(after.world, costs.by_unit[budget.unit].world, basis.price)
            if epsilon > budget.epsilon:
                raise BudgetExceeded(
                    f"the next round would bring all runs in {self.path} to epsilon {epsilon:.4g}, over their common budget"
                    f"{budget.whose} of {budget.epsilon:g} at delta {budget.delta:g}. The run stops here."
                )

    def settle(self, run: str, *reservations: int, state: tuple[str, bytes] | None = None) -> None:
        """State that the output of rounds is stored; `state` is that output and its name, to be stored in the same transaction.

        A killed process loses nothing of it. The disk is not waited for, as it is for every reservation: if the machine fails
        before the next one, the last round is begun again, and counts twice. The first time it is waited for: then a plan is fixed.
        """
        if not reservations and state is None:
            return
        with self._alone, self.connected() as connection:
            if self._has_settled:
                connection.execute("PRAGMA synchronous=NORMAL")
            try:
                with self._writing():
                    if reservations:
                        Chain(connection).append(SETTLE, run=run, value=json.dumps(list(reservations)))
                    if state is not None:
                        connection.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", state)
            finally:
                connection.execute("PRAGMA synchronous=FULL")
        self._has_settled = True

    def state(self, name: str) -> bytes | None:
        """What `settle` stored last under a name."""
        row = self._row("SELECT content FROM state WHERE name = ?", name)
        return None if row is None else bytes(row[0])

    def holds(self, name: str) -> bool:
        """Whether something of this name was reserved before."""
        return self._row("SELECT 1 FROM entries WHERE kind = 'reserve' AND name = ?", name) is not None

    def count_of(self, run: str) -> int:
        """How many reservations a run has."""
        return int(self._row("SELECT COALESCE(SUM(times), 0) FROM counts WHERE run = ?", run)[0])

    def last_of(self, run: str) -> tuple[int, int] | None:
        """The highest round, and the highest attempt, that a run has reserved."""
        round, attempt = self._row(
            "SELECT MAX(round), MAX(attempt) FROM entries WHERE kind = 'reserve' AND run = ?", run
        )
        return None if round is None else (int(round), int(attempt))

    @property
    def seeded(self) -> bool:
        """Whether any noise in it came from a seed."""
        return self._row("SELECT 1 FROM counts WHERE seeded") is not None

    @property
    def count(self) -> int:
        """How many reservations there are."""
        return int(self._row("SELECT COALESCE(SUM(times), 0) FROM counts")[0])

    @property
    def rounds(self) -> int:
        """How many of them are of rounds, and not of a step that its run took before the first."""
        return int(self._row("SELECT COALESCE(SUM(times), 0) FROM counts WHERE NOT step")[0])

    def entries(self) -> list[Entry]:
        """All reservations, in order."""
        settled = {
            number
            for (value,) in self._rows("SELECT value FROM entries WHERE kind = 'settle'")
            for number in json.loads(value)
        }
        costs = {digest: Costs.read(text) for digest, text in self._rows("SELECT digest, written FROM costs")}
        rows = self._rows(
            "SELECT number, run, round, attempt, seeded, cost FROM entries WHERE kind = 'reserve' ORDER BY number"
        )
        return [
            Entry(number, run, round, attempt, bool(seeded), number in settled, dict(costs[cost].by_unit))
            for number, run, round, attempt, seeded, cost in rows
        ]

    @property
    def happened(self) -> Counted:
        """Each cost and how often it occurred, in the order in which it occurred first."""
        rows = self._rows(
            "SELECT written, SUM(times) FROM counts JOIN costs ON cost = digest GROUP BY cost ORDER BY MIN(first)"
        )
        return [(Costs.read(written), int(times)) for written, times in rows]

    def spent(self, unit: Unit) -> Cost | None:
        """What is accounted for on one unit, as one event per view: all that happened, and all that was planned before it.

        None if that is nothing, or not all of it is proven. `price` is what prices it.
        """
        return self.spent_with((), unit)

    def spent_with(
        self, more: Iterable[tuple[Costs, int]], unit: Unit, basis: LedgerBasis | None = None
    ) -> Cost | None:
        """The same, if `more` happened too; `basis` is what it will be, where nothing was reserved before."""
        known = self.basis or basis
        happened = together(self.happened, more)
        return total(happened if known is None else known.accounted(happened), unit)

    def damage(self) -> list[str]:
        """What is wrong with the file, in sentences: pages, the chain of entries, and what is derived from them."""
        found = [str(row[0]) for row in self._rows("PRAGMA integrity_check") if row[0] != "ok"]
        before, reserved = "", set[int]()
        known = {digest for (digest,) in self._rows("SELECT digest FROM costs")}
        for place, (*said, hash) in enumerate(
            self._rows(f"SELECT {', '.join(SAID)}, hash FROM entries ORDER BY number"), 1
        ):
            entry = dict(zip(SAID, said, strict=True))
            if entry["number"] != place:
                return [*found, f"entry {place} is missing"]
            if link(before, said) != hash:
                return [
                    *found,
                    f"entry {place} is not what was written: its hash does not follow from it and the entry before",
                ]
            before = hash
            if entry["kind"] == RESERVE:
                reserved.add(place)
                if entry["cost"] not in known:
                    found.append(f"the cost of entry {place} is missing")
            elif entry["kind"] == SETTLE and not reserved.issuperset(json.loads(entry["value"])):
                found.append(f"entry {place} settles what was not reserved")
        planned = json.loads(self.fact(BASIS) or "{}").get("plan", ())
        found += [f"the planned cost {digest[:8]} is missing" for digest, _ in planned if digest not in known]
        for digest, written in self._rows("SELECT digest, written FROM costs"):
            try:
                if digest_of(written) != digest:
                    found.append(f"the cost {digest[:8]} is not what was written")
                Costs.read(written)
            except Exception as error:
                found.append(f"the cost {digest[:8]} cannot be read: {error}")
        if self._row(_CHANGED, BASIS) is not None:
            found.append("its basis was changed after an output, so neither sum is proven")
        if sorted(self._rows("SELECT * FROM counts")) != sorted(self._rows(COUNTED)):
            found.append("the counts are not those of the entries")
        return found


def _check_bounds(basis: AdaptiveBasis, costs: Costs) -> None:
    """Refuse an event without a divergence, also if it were repeated as often as rounds can be; what is not private has none."""
    for cost in costs.by_unit.values():
        for event in (cost.world, *(() if cost.server is None else (cost.server,))):
            if why_not_private(event) is None:
                divergence(Repeated(event, LARGEST_ROUNDS), basis.order)
