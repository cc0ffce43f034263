"""The clients' half of a round, where clients are elsewhere: letters go out over a wire, rows come back.

What is stated of such a run, besides what its Round proves:
- The cohort is drawn from everybody in the registry, online or not, and nobody is drawn in place of one who does not reply.
  So a reply that is missing, late or broken is a zero row under a constant divisor: what a row of that client might have been.
- Whether a client replies may depend on its own machine, and is assumed not to depend on one record or on other clients' data.
- Where noise is in the messages themselves, so many of them must arrive as its shares were sized for. With fewer, the round is
  given up: nothing of it is used, and it counts.
- A round that is begun again, because the server was stopped in it, may get other replies. It gets fresh noise, and both count.
"""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from sfumato.data.population import PublicData
from sfumato.engine.clients import Block, Clients, Start, Total
from sfumato.engine.slots import Opening, Slots
from sfumato.engine.workers import GivenUp
from sfumato.federation.question import OK, RELEASED, TRAIN, Question
from sfumato.federation.summing import Summing, check_shares, check_summed, fewest, is_summed, sum_settings
from sfumato.federation.terms import Agreement
from sfumato.federation.wire import Letter, Wire, WireLost
from sfumato.key import Key
from sfumato.pieces.exact import LARGEST_SUM
from sfumato.secure_sum import GaveUp, Power, SecureSumError
from sfumato.secure_sum import assumptions as words_of

ASSUMES = (
    "nodes that are offline are counted in the population",
    "whether a client replies at all (it may lack memory, or be killed) does not depend on one record or on other clients' data",
    "the time that a reply takes is not covered",
    "whoever sees the traffic learns who takes part, and sampling hides nothing from them",
    "the server is whoever runs it, its SuperLink or their disks",
)
_ASKED_BESIDES = "what an active server asks besides is in the ledger of each node, and not in this one"
_POLL = 0.1  # seconds between two looks at who is online
_SLACK = 1.0 + 2.0**-20  # of a norm in float32


def online_once(wire: Wire, enough: Callable[[set[int]], bool], seconds: float) -> set[int]:
    """Who is online, as soon as these are enough, or so many seconds have passed; a wire that is lost is begun anew."""
    until = time.monotonic() + seconds
    while True:
        try:
            online = wire.online()
        except WireLost:
            wire.restart()
            online = set()
        if enough(online) or time.monotonic() >= until:
            return online
        time.sleep(_POLL)


@dataclass(frozen=True)
class Tally:
    """How a round went, by client: who replied, and by code why others did not. It tells who was drawn, so only the server's
    operator sees it.
    """

    round: int
    drawn: int
    replied: int
    why: Counter[str]

    def __str__(self) -> str:
        others = "".join(f", {count} {code}" for code, count in sorted(self.why.items()))
        return f"round {self.round + 1}: {self.replied} of {self.drawn} replied{others}"


@dataclass(eq=False)
class Federation:
    """Workers that ask the owners of data. `tell` hears how each round went."""

    clients: Clients
    wire: Wire
    agreement: Agreement
    deadline: float
    public: PublicData | None = None
    verifying: Mapping[int, bytes] | None = None  # the keys that clients sign with, against an active server
    tell: Callable[[Tally], object] = lambda tally: None
    _replied: tuple[int, ...] = field(default=(), init=False)
    _start: Start | None = field(default=None, init=False)  # of the last round
    _seen: set[int] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        if is_summed(self._slots):
            check_summed(self._slots, str(self.agreement.terms.sum.get("power")))
        check_shares(self._slots)

    def assumptions(self) -> tuple[str, ...]:
        """What holds between machines; of a secure sum, in a round in which everybody who is drawn is online."""
        if not is_summed(self._slots):
            return ASSUMES
        drawn = range(
            max(fewest(self._slots), math.ceil(self._slots.round.sample.expected(self.agreement.terms.clients)))
        )
        opening = self._slots.open(0, Key.from_seed(0), train=lambda data: torch.zeros(self._slots.length))
        settings = sum_settings(self.agreement, opening, bytes(32), drawn)
        asked = (_ASKED_BESIDES,) if settings.power is Power.ACTIVE else ()
        return (*ASSUMES, *words_of(settings), *asked)

    def close(self) -> None:
        """The wire belongs to whoever made it."""

    def blocks(self, start: Start, ids: Sequence[int]) -> Iterator[Block]:
        """The messages of those who replied in time, in the order in which they were drawn."""
        self._start = start
        if is_summed(self._slots):
            yield self._summed(start, list(ids))
            return
        found = self._asked(start, list(ids))
        self._replied = tuple(client for client in ids if client in found)
        if self._slots.sent.share is not None and len(found) < fewest(self._slots):
            raise GivenUp
        yield from (found[client] for client in self._replied)

    def _summed(self, start: Start, ids: list[int]) -> Block:
        """The sum of those who stayed to the end, and nothing else of them."""
        asked = [client for client in ids if client in self._back()]
        questions = {client: self.question(start, client) for client in asked}
        try:
            if len(asked) < fewest(self._slots):
                raise GaveUp(f"{len(asked)} are online.")
            settings = sum_settings(self.agreement, start.opening, os.urandom(32), asked)
            total, self._replied = Summing(self.wire, self.deadline, self.verifying).total(settings, questions)
        except (SecureSumError, WireLost) as error:  # too few are left, or some client gave shares that are none
            if isinstance(error, WireLost):
                self.wire.restart()
            self.tell(Tally(start.opening.number, len(ids), 0, Counter({"given-up": 1})))
            raise GivenUp from None
        grid = self._slots.sent.grid
        assert grid is not None, "checked before the run began"
        why = Counter({"dropped-out": len(ids) - len(self._replied)} if len(self._replied) < len(ids) else {})
        self.tell(Tally(start.opening.number, len(ids), len(self._replied), why))
        return Block(replace(total, rows=total.rows * grid), {}, torch.zeros(0, dtype=torch.int64))

    def _asked(self, start: Start, ids: list[int]) -> dict[int, Block]:
        online = self._back()
        letters = {client: self.question(start, client).letter(TRAIN) for client in ids if client in online}
        found: dict[int, Block] = {}
        why = Counter({"offline": len(ids) - len(letters)} if len(letters) < len(ids) else {})
        width = self._slots.width(start.opening)
        answered = 0
        try:
            for client, reply in self.wire.ask(letters, self.deadline):
                answered += 1
                code = reply.kind if reply.kind != OK else self._wrong(reply, width)
                if code:
                    why[code] += 1
                else:
                    found[client] = self._block(client, reply)
        except WireLost:  # whoever has not replied by now does not reply
            self.wire.restart()
        if answered < len(letters):
            why["late"] += len(letters) - answered
        self.tell(Tally(start.opening.number, len(ids), len(found), why))
        return found

    def saw(self, online: set[int]) -> None:
        """Who was online before the run: these are waited for, if the wire is lost before its first round."""
        self._seen = online

    def _back(self) -> set[int]:
        """Who is online, once those are back who were so before, or had time to. Where nobody is, nothing is in a hurry: a run
        whose wire is lost would else spend all its rounds on noise.
        """
        self._seen = online_once(self.wire, lambda online: bool(online) and self._seen <= online, self.deadline)
        return self._seen

    def question(self, start: Start, client: int) -> Question:
        """What one client is asked."""
        terms, number = self.agreement.terms, start.opening.number
        planned = max(terms.rounds, start.reserved + terms.rounds - number - 1)
        shared = (start.clients, start.lasting or start.clients) if terms.keys == "shared" else None
        return Question(
            terms=terms.text,
            hash=self.agreement.hash,
            client=client,
            attempt=start.attempt,
            since=start.since,
            planned=planned,
            params=start.params,
            opening=start.opening,
            public=self.public,
            shared_keys=shared,
        )

    def _wrong(self, reply: Letter, width: int) -> str:
        """Why a row cannot be used, as a code; empty, if it can. A row that passes the bound that is proven for rows is none of
        ours, and would move the model by more than one client may.
        """
        row, weight = reply.tensors.get("row"), reply.facts.get("weight")
        if row is None or row.shape != (width,) or row.dtype not in (torch.float32, torch.float64):
            return "wrong-shape"
        if not isinstance(weight, float) or not 0.0 <= weight < math.inf:
            return "wrong-weight"
        if not bool(torch.isfinite(row).all()):
            return "not-finite"
        if float(row.double().norm()) > self._longest * _SLACK:
            return "too-long"
        return "off-grid" if self._off_grid(row.double()) else ""

    def _off_grid(self, row: torch.Tensor) -> bool:
        """Whether a row is no whole number of steps where the noise is one, or so many that a sum of such rows would be rounded.

        Exact noise hides no rounding. With 3/4 of the last bit of another's row in each coordinate, the sum of the two is rounded
        if the other is there; where the noise cancels the rest, what is left tells.
        """
        claim = self._slots.sent
        if claim.grid is None or claim.paid:
            return False
        steps = row / claim.grid  # exact, as it is a power of 2
        return not bool(((steps == steps.trunc()) & (steps.abs() <= LARGEST_SUM / claim.population)).all())

    @property
    def _longest(self) -> float:
        """The norm that bounds a message; infinite, where noise is in it."""
        claim = self._slots.sent
        return math.inf if claim.share is not None or claim.paid or claim.local_paid else claim.l2

    def _block(self, client: int, reply: Letter) -> Block:
        gathers, row = self._slots.gathers, reply.tensors["row"]
        rows, senders = (row[None], (client,)) if gathers else (row, None)
        return Block(
            Total(rows, float(reply.facts["weight"]), senders), {}, torch.zeros(int(gathers), dtype=torch.int64)
        )

    @property
    def _slots(self) -> Slots:
        return self.clients.job.slots

    def released(self, params: torch.Tensor, opening: Opening) -> None:
        """Tell the parameters to those who took part, if they keep something of their own that waits for them."""
        if self._slots.round.personal is None or self._start is None:
            return
        start = replace(self._start, params=params)
        letters = {client: self.question(start, client).letter(RELEASED) for client in self._replied}
        try:
            for _ in self.wire.ask(letters, self.deadline):
                pass
        except WireLost:
            self.wire.restart()
