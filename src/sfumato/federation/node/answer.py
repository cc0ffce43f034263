"""A node's replies to a server: what they are is decided by a letter, node.toml and the node's own folder. It knows of no network.

The order is: check (public facts, node.toml, the ledgers), reserve (committed to disk), draw, load, train, store, reply. Every
answer is drawn from 32 fresh bytes of the system, which serve it alone; a request that arrives again gets the stored reply.
Refusals leave as codes, never as text; the reasons are in the owner's own log. Kind, size, weight and facts of a reply are
functions of the request and of what the owner declares (PRIVACY R15). A record that is not as declared, or that raises in training,
counts as zero; a client whose update is spoiled sends a zero update with its own noise. A failure that no record can be blamed for
(no memory, a file that cannot be read, records that changed while they were read) is a reply that is missing. Time is not covered;
`reply_seconds` lets replies leave at a fixed time after their request.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from safetensors.torch import save

from sfumato.data.faults import Faults, listed
from sfumato.data.population import Client, Population, Records
from sfumato.digest import digest
from sfumato.engine.checkpoint import write_atomically
from sfumato.engine.clients import START, Clients, Total
from sfumato.engine.plan import Plan
from sfumato.federation.node.asked import Asked
from sfumato.federation.node.books import Books, unwritable
from sfumato.federation.node.costs import Dues
from sfumato.federation.node.journal import Journal, one_at_a_time
from sfumato.federation.node.log import Log, file_log
from sfumato.federation.node.memory import Memory
from sfumato.federation.node.own_data import Find, Loaded, blames_no_record, own_data
from sfumato.federation.node.policy import Policy
from sfumato.federation.node.replies import Replies
from sfumato.federation.node.rules import Refused, judged
from sfumato.federation.node.server import Signing
from sfumato.federation.question import CHECK, END, FAILED, OK, RELEASED, TRAIN, Question, answer_of
from sfumato.federation.summing import ROW, NotNow, SumAnswers
from sfumato.federation.terms import Agreement, BadTerms, Terms
from sfumato.federation.wire import BadLetter, Letter
from sfumato.key import Key
from sfumato.pieces.protocol import PersonalPiece
from sfumato.private_log import kept, words_of
from sfumato.secure_sum import SecureSumError

_AGREEMENTS = 4  # building one takes a while, and a server has few runs at a time


class Node:
    """The owner's side of one client. `node(letter)` is the answer; a further kind of letter gets a handler of its own.

    `data` finds the node's records, and `log` takes the lines of the owner's log; else they are those of node.toml. `signing` is
    needed for a secure sum against an active server.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        data: Find | None = None,
        log: Log | None = None,
        clock: Callable[[], float] = time.time,
        signing: Signing | None = None,
    ) -> None:
        self.policy, self.clock = policy, clock
        self.loaded = Loaded(data or own_data(policy.data), policy.data if data is None else "")
        self.replies = Replies(policy.place / "replies")
        self.log = log or file_log(policy.folder / "node.log")
        self.handlers: dict[str, Callable[[Letter], Letter]] = {
            CHECK: self.check,
            TRAIN: self.train,
            RELEASED: self.released,
            END: self.end,
            **self._sums(signing).handlers(),
        }
        self._lock = threading.Lock()
        self._judged: dict[str, tuple[Agreement | None, list[Refused]]] = {}
        # by run: what a client draws once for all its rounds, until the node is stopped
        self._lasting: dict[str, Key] = {}

    def __call__(self, letter: Letter) -> Letter:
        began, held = time.monotonic(), self.policy.reply_seconds
        reply = self._reply(letter)
        if held is not None and letter.kind in (TRAIN, ROW):
            left = began + held - time.monotonic()
            if left < 0.0:
                self.log(f"{letter.kind}: the reply left {-left:.1f} s after reply_seconds: raise it")
            time.sleep(max(0.0, left))
        return reply

    def _reply(self, letter: Letter) -> Letter:
        with self._lock:
            try:
                if letter.kind not in self.handlers:
                    raise Refused("refused.kind", "this version knows no such letter")
                return self.handlers[letter.kind](letter)
            except Refused as refusal:
                self.log(f"{letter.kind}: {refusal}")
                return Letter(refusal.code)
            except (SecureSumError, NotNow) as error:
                self.log(f"{letter.kind}: refused.sum: {error}")
                return Letter("refused.sum")
            except (BadLetter, BadTerms) as error:
                self.log(f"{letter.kind}: refused.letter: {error}")
                return Letter("refused.letter")
            except Exception as error:
                self.log(f"{letter.kind}: failed: {words_of(error, self.policy.folder / 'errors')}")
                return Letter(FAILED)

    def check(self, letter: Letter) -> Letter:
        """Whether `train` would be refused, as far as that is known without the records; spends nothing."""
        self.reserve(self.asked(letter), dry=True)
        return Letter(OK)

    def train(self, letter: Letter) -> Letter:
        """Reserve, then train on the node's own records."""
        asked = self.asked(letter)
        if asked.terms.sum:
            raise Refused("refused.sum", "the run agreed on a secure sum, and a row that is not masked would leave")
        with unwritable():
            reply = self.replies.find(asked.run, letter)
        if reply is None:
            reply = answer_of(self._trained(asked, letter.digest))
            with unwritable():
                self.replies.keep(asked.run, letter, reply)
        return reply

    def _trained(self, asked: Asked, name: str) -> Total:
        """The client's part of a round. `name` is that of a request whose randomness is not its own, and can be drawn again."""
        self.reserve(asked, name)
        question, memory = asked.question, self.memory(asked)
        records, faults = self._own(asked)
        people = Population(
            self.policy.name, asked.terms.clients, lambda number: Client(records), example=asked.terms.example
        )
        clients, lasting = question.shared_keys or (
            Key.from_system(),
            self._lasting.setdefault(asked.run, Key.from_system()),
        )
        start = question.start(clients, lasting, memory.before(asked.round) or None)
        block = Clients(asked.agreement.job, people, Plan(), faults=faults)((start, [question.client]))
        self._tell(faults, records.count)
        if question.client in block.stays:
            with unwritable():
                memory.wait(asked.round, question.attempt, block.stays[question.client])
        self.log(f"train: answered round {asked.round + 1} of {asked.run!r}")
        return block.total

    def _own(self, asked: Asked) -> tuple[Records, Faults]:
        """The owner's records, and which of them count as zero: all, where they cannot be loaded and one of them may be why."""
        declared, example = self.policy.records, asked.terms.example
        assert declared is not None, "without it the question was refused"
        try:
            return self.loaded(declared, asked.terms.features, example)
        except Refused:
            raise
        except Exception as error:
            if asked.agreement.job.slots.round.local.records_apart or blames_no_record(error):
                raise
            why = f"the records cannot be loaded: {words_of(error, self.policy.folder / 'errors')}"
            return Records(example.x[:0], example.y[:0]), Faults(whole=why)

    def _tell(self, faults: Faults, count: int) -> None:
        """Say in the owner's log what counted as zero; what an error says is in the log of errors."""
        more = "" if faults.raised is None else f". {kept(faults.raised, self.policy.folder / 'errors')}"
        if faults.whole:
            self.log(f"train: sent a zero update, with this client's own noise if it adds any: {faults.whole}{more}")
        elif faults.records:
            number, why = min(faults.records.items())
            self.log(f"train: {listed(faults.records)} of {count} count as zero; of record {number}: {why}{more}")

    def _sums(self, signing: Signing | None) -> SumAnswers:
        keys = (None, None) if signing is None else (signing.own, signing.others)
        return SumAnswers(self._allowed, self._row, self._begins, *keys)

    def _allowed(self, question: Question, session: bytes) -> Agreement:
        """What a question of a secure sum amounts to, if the owner allows it; nothing is spent before a row is sent."""
        asked = self._asked(question, session)
        if not asked.terms.sum:
            raise Refused("refused.sum", "the terms agree on no secure sum")
        self.reserve(asked, dry=True)
        return asked.agreement

    def _row(self, question: Question, session: bytes) -> torch.Tensor:
        """An update for this session alone: in another one the same request gets other noise, and counts again."""
        return self._trained(self._asked(question, session), os.urandom(16).hex()).rows

    def _begins(self, session: bytes) -> bool:
        with unwritable(), Journal.opened(self.policy.place / "journal.sqlite") as journal:
            return journal.begins(session)

    def released(self, letter: Letter) -> Letter:
        """Hear the parameters that a round gave in which this client took part, and remember what it keeps of it."""
        asked = self.asked(letter)
        self._hear(asked)
        question, personal = asked.question, asked.agreement.job.slots.round.personal
        memory = self.memory(asked)
        rows = memory.trained(asked.round, question.attempt)
        if rows is not None:
            if isinstance(personal, PersonalPiece):
                rows = {START: personal.keep(rows[START], question.params, question.client)}
            with unwritable():
                memory.keep(asked.round, rows)
        return Letter(OK)

    def end(self, letter: Letter) -> Letter:
        """Keep the model that a run has given, in the node's folder."""
        asked = self.asked(letter)
        self._hear(asked)
        module = asked.agreement.job.with_params(asked.question.params)
        tensors = {name: value.contiguous().clone() for name, value in module.state_dict().items()}
        path = self.policy.place / "models" / f"{digest(asked.run)}.safetensors"
        with unwritable():
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_atomically(path, save(tensors, {"run": asked.run}), mode=0o600)
        self.log(f"end: the model of {asked.run!r} is {path}")
        return Letter(OK)

    def asked(self, letter: Letter) -> Asked:
        """The question in a letter, if it is for this client and the owner allows its terms."""
        return self._asked(Question.read(letter))

    def _asked(self, question: Question, session: bytes = b"") -> Asked:
        if question.client != self.policy.client:
            raise Refused("refused.client", f"asked as client {question.client}, and this is {self.policy.client}")
        agreement = self._agreed(question)
        if agreement.hash != question.hash:
            raise Refused("refused.hash", "what this node builds from the terms is not what the server has built")
        if (agreement.terms.keys == "own") != (question.shared_keys is None):
            raise Refused("refused.keys", "keys of clients are sent if and only if the terms say that they are shared")
        asked = Asked(question, agreement, Dues.of(agreement, question.client), session)
        asked.check_form()
        return asked

    def _agreed(self, question: Question) -> Agreement:
        public = question.public
        name = digest(question.terms, None if public is None else (public.name, *public.records))
        if name not in self._judged:
            found = judged(self.policy, Terms.read(question.terms), public)
            self._judged = dict([*self._judged.items(), (name, found)][-_AGREEMENTS:])
        agreement, refusals = self._judged[name]
        if refusals:
            raise Refused(refusals[0].code, refusals[0].words)  # a new one: what is raised again and again only grows
        assert agreement is not None, "what is not refused is built"
        return agreement

    def reserve(self, asked: Asked, name: str = "", dry: bool = False) -> None:
        """Commit what an answer costs, before a record is touched.

        With `dry` it only refuses what it would refuse. Where a test shares keys, one `name` is reserved once.
        """
        asked.check_opening()
        name = name if asked.seeded else os.urandom(16).hex()
        with self._records(asked) as (journal, books):
            new, limit = not journal.holds(name), self.policy.rounds_per_day
            if new and limit is not None and journal.within_a_day(self.clock()) >= limit:
                raise Refused("refused.often", f"{limit} rounds were answered in the last 24 hours")
            told = asked.told(journal.of_run(asked.run) + new)
            entry = (asked.dues, asked.run, asked.round, asked.question.attempt, name, asked.seeded)
            if not dry:
                journal.note_run(asked.run, asked.same_run)
            books.promise(asked.dues, asked.run, told, asked.same_run, asked.seeded, dry)
            books.answer(*entry, dry)
            if not dry:
                journal.note(asked.run, name, self.clock())

    def memory(self, asked: Asked) -> Memory:
        """What the client remembers of a run."""
        return Memory(self.policy.place / "memory" / digest(asked.run))

    def _hear(self, asked: Asked) -> None:
        """Record what else a run has promised, also where this client was never drawn, as far as its budget goes.

        Whatever goes beyond the budget would have been refused, if the client had been asked: it took no part in such a round,
        whoever was drawn.
        """
        with self._records(asked) as (journal, books):
            told = asked.told(journal.of_run(asked.run))
            journal.note_run(asked.run, asked.same_run)
            books.promise_most(asked.dues, asked.run, told, asked.terms.rounds, asked.same_run, asked.seeded)

    @contextmanager
    def _records(self, asked: Asked) -> Iterator[tuple[Journal, Books]]:
        """What was asked and spent before, if the run is the one that had its name then."""
        with (
            unwritable(),
            one_at_a_time(self.policy.folder),
            Journal.opened(self.policy.place / "journal.sqlite") as journal,
            Books.opened(self.policy) as books,
        ):
            if journal.terms_of(asked.run) not in (None, asked.same_run):
                raise Refused("refused.terms", f"the run {asked.run!r} had other terms before")
            yield journal, books
