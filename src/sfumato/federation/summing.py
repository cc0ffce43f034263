"""A round over the secure sum: which settings both sides must have, the server's phases, and a client's answers to them.

The settings follow from the terms, from who was asked, and from 32 bytes that the server draws for the round. A client
works them out for itself and refuses any others, so a server cannot ask for a smaller sum, a lower threshold or less noise.
"""

from __future__ import annotations

import math
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sfumato.engine.clients import Total
from sfumato.engine.slots import Opening, Slots
from sfumato.errors import BadValue, SfumatoError
from sfumato.federation.question import OK, Question
from sfumato.federation.terms import Agreement
from sfumato.federation.wire import BadLetter, Letter, Wire
from sfumato.key import Key
from sfumato.pieces.channel import SecureSum
from sfumato.pieces.protocol import Aggregate
from sfumato.secure_sum import Client, Phase, Power, SecureSumError, Server, SumSettings, to_steps
from sfumato.secure_sum.settings import SESSION

KEYS, SHARE, ROW, CONFIRM, UNMASK = "sum.keys", "sum.share", "sum.row", "sum.confirm", "sum.unmask"
_KINDS = {
    Phase.ADVERTS: KEYS,
    Phase.SHARES: SHARE,
    Phase.ROWS: ROW,
    Phase.CONFIRMATIONS: CONFIRM,
    Phase.UNMASKING: UNMASK,
}
_SESSION = re.compile(f"[0-9a-f]{{{2 * SESSION}}}")
_HELD = 4  # rounds whose secrets a client holds at once: one that was left unfinished is forgotten


def is_summed(slots: Slots) -> bool:
    """Whether the messages of a round go through a secure sum."""
    return isinstance(slots.round.channel, SecureSum)


def check_summed(slots: Slots, power: str) -> None:
    """Refuse a round whose rows are not whole numbers, or whose proof trusts an active server, before anything is spent."""
    if power == Power.ACTIVE.value and slots.proof.server != slots.proof.chooser:
        raise BadValue(
            "an active server asks whom it likes, and what this round states counts on a cohort that is drawn at random. Use "
            "--sample everyone, or a server that follows the protocol."
        )
    check_shares(slots)
    if slots.round.unproven:
        raise BadValue("a secure sum between machines is for rounds that are proven. Simulate this one on one machine.")
    if slots.sent.grid is None:
        raise BadValue(
            "a secure sum between machines adds whole numbers, and the rows of this round are none. Add --secure, which puts them "
            "on a grid and draws exact noise."
        )
    if slots.sent.share is None:
        raise BadValue(
            "a secure sum of very few shows their rows, so it would have to be given up; whether it is tells of a client that is "
            "there or not, which only shares of noise in a cohort of fixed size pay for. Use dp-fedavg-shares, or Plain()."
        )
    aggregate = slots.round.aggregate
    if not isinstance(aggregate, Aggregate) or bool((aggregate.weights(torch.tensor([1, 2])) != 1).any()):
        raise BadValue(
            "a secure sum adds rows as they are, and this aggregate weighs or compares them. Use Mean or Sum."
        )


def check_shares(slots: Slots) -> None:
    """Refuse shares of noise whose price counts on a secret cohort of which everybody must reply.

    One who is drawn and does not reply then gives the round up, which everyone sees. Of 20 clients of whom 3 are online, a
    cohort of 2 is released in 1.6 of 100 rounds, but then each of the 3 is in it with chance 2/3, where 2/19 is stated: at
    noise 4 and delta 1e-5 one round costs at least epsilon 1.07, and not 0.39. Where fewer may reply, nothing is amplified.
    """
    sampling = slots.proof.before[-1].sampling
    size = None if sampling is None else sampling.cohort_size(slots.sent)
    if slots.sent.share is None or slots.round.unproven or size is None or size >= slots.sent.population:
        return
    if fewest(slots) >= size:
        raise BadValue(
            f"a cohort of {size} is drawn from {slots.sent.population}, and all of them must reply: between machines a round in "
            "which one does not is given up, which tells who was drawn, so that drawing hides less than is stated. Let fewer be "
            f"enough (--set options.smallest={max(size - 1, 1)}, SecureSum(smallest=...)), or use --sample everyone."
        )


def fewest(slots: Slots) -> int:
    """How many must reply where noise is in the messages: as many as its shares were sized for, and those who may be curious.

    A size that varies is refused there, unless nothing is proven of the round anyway.
    """
    sampling, smallest = slots.proof.before[-1].sampling, getattr(slots.round.channel, "smallest", 0)
    size = None if sampling is None else sampling.cohort_size(slots.sent)
    return int(smallest or size or 0)


def sum_settings(agreement: Agreement, opening: Opening, session: bytes, clients: Sequence[int]) -> SumSettings:
    """The settings of a round in which these were asked, from what the Round states.

    The fewest rows are those whose shares of noise it counts on; who may collude are those whose shares it does not count. They
    name what everybody has built and the round, so that clients who were told other terms or another round are in no sum together.
    """
    slots = agreement.job.slots
    claim = slots.sent
    assert claim.grid is not None and claim.share is not None, "checked before"
    smallest = fewest(slots)
    facts: dict[str, Any] = {
        "largest": math.ceil(claim.l2 / claim.grid),
        "noise": claim.share / claim.grid,
        "smallest": smallest,
        "colluding": smallest - claim.share_count,
        "power": Power(agreement.terms.sum.get("power", Power.FOLLOWS.value)),
        "about": f"{agreement.hash}/{opening.number}",
    }
    cohort, width = tuple(sorted(clients)), slots.width(opening)
    try:
        return SumSettings.chosen(session, cohort, width, bits=32, **facts)
    except BadValue:
        return SumSettings.chosen(session, cohort, width, bits=64, **facts)


@dataclass(frozen=True)
class Summing:
    """The server's half of the secure sum of one round: four or five questions to whoever is still there."""

    wire: Wire
    deadline: float
    verifying: Mapping[int, bytes] | None = None

    def total(self, settings: SumSettings, questions: Mapping[int, Question]) -> tuple[Total, tuple[int, ...]]:
        """The sum and whose rows are in it; raises a `SecureSumError` where too few are left, or some spoil it."""
        server = Server(settings, self.verifying)
        letters = {client: _first(question, settings) for client, question in questions.items()}
        while True:
            for client, reply in self.wire.ask(letters, self.deadline):
                self._take(server, client, reply)
            if server.phase is Phase.UNMASKING:
                break
            following = server.advance()
            kind = _KINDS[server.phase]
            session = settings.session.hex()
            letters = {client: _letter(kind, session, content) for client, content in following.items()}
        steps = server.total()
        return Total(torch.from_numpy(steps.astype(np.float64)), float(len(server.survivors))), server.survivors

    @staticmethod
    def _take(server: Server, client: int, reply: Letter) -> None:
        """A reply that is none is as one that did not come."""
        content = reply.tensors.get("content")
        if reply.kind == OK and content is not None and content.dtype == torch.uint8:
            try:
                server.take(client, content.numpy().tobytes())
            except SecureSumError:
                return


def _first(question: Question, settings: SumSettings) -> Letter:
    letter = question.letter(KEYS)
    asked = torch.tensor(settings.clients, dtype=torch.int64)
    facts = {**letter.facts, "session": settings.session.hex()}
    return Letter(KEYS, facts, {**letter.tensors, "asked": asked})


def _letter(kind: str, session: str, content: bytes) -> Letter:
    return Letter(kind, {"session": session}, {"content": torch.frombuffer(bytearray(content), dtype=torch.uint8)})


@dataclass
class _Round:
    client: Client
    question: Question
    settings: SumSettings
    masked: tuple[str, Letter] | None = None  # the request that was answered with a masked update, and the reply


class NotNow(SfumatoError):
    """A question of a secure sum that does not belong to any round that this client is in."""


@dataclass
class SumAnswers:
    """A client's half: `agree` gives the agreement of a question that the owner allows (it raises if not), `train` its row.

    Both are told the session, for each session must get noise of its own: of two sums that have the same noisy rows in them, but
    for one, the difference would be that row with a single share.

    Secrets of a round are in memory only. Who is stopped in a round has dropped out of it, and a session is never begun twice:
    those that were seen are remembered by `seen`, which says whether one is new, and writes it down before anything is sent.
    """

    agree: Callable[[Question, bytes], Agreement]
    train: Callable[[Question, bytes], torch.Tensor]
    seen: Callable[[bytes], bool]
    signing: Ed25519PrivateKey | None = None
    verifying: Mapping[int, bytes] | None = None
    _rounds: OrderedDict[str, _Round] = field(default_factory=OrderedDict, init=False)

    def keys(self, letter: Letter) -> Letter:
        """The first question of a round: its settings are worked out, and must hide this client."""
        question, session = Question.read(letter), _session(letter.facts.get("session"))
        agreement = self.agree(question, session)
        if not is_summed(agreement.job.slots):
            raise NotNow("the terms of this run have no secure sum.")
        check_summed(agreement.job.slots, str(agreement.terms.sum.get("power")))
        asked = letter.tensors.get("asked")
        if asked is None or asked.dtype != torch.int64:
            raise BadLetter("a question of a secure sum lacks who takes part.")
        clients = tuple(int(one) for one in asked.reshape(-1).tolist())
        if not set(clients) <= set(range(agreement.terms.clients)):
            raise BadLetter("a secure sum of others than the clients of the run.")
        settings = sum_settings(agreement, question.opening, session, clients)
        if not self.seen(session):
            raise NotNow("this session was begun before.")
        if settings.power is Power.ACTIVE and self.signing is None:
            raise NotNow("this node has no signing keys. Name its registry in [server].")
        client = Client(settings, question.client, Key.from_system(), self.signing, self.verifying)
        self._rounds[session.hex()] = _Round(client, question, settings)
        while len(self._rounds) > _HELD:
            self._rounds.popitem(last=False)
        return _answer(client.advertise())

    def share(self, letter: Letter) -> Letter:
        at, content = self._at(letter)
        return _answer(at.client.share(content))

    def row(self, letter: Letter) -> Letter:
        """Train, and send the update under masks, once a session; the same request gets the same reply."""
        at, content = self._at(letter)
        name = letter.digest
        if at.masked is not None:
            if at.masked[0] != name:
                raise NotNow("the update of this session was sent before.")
            return at.masked[1]
        asked = at.question, at.settings.session
        grid = self.agree(*asked).job.slots.sent.grid
        assert grid is not None, "checked with the first question"
        reply = _answer(at.client.mask(to_steps(self.train(*asked).numpy(), grid), content))
        at.masked = name, reply
        return reply

    def confirm(self, letter: Letter) -> Letter:
        at, content = self._at(letter)
        return _answer(at.client.confirm(content))

    def unmask(self, letter: Letter) -> Letter:
        """Shares that take masks off; after these the round is over for this client."""
        at, content = self._at(letter)
        del self._rounds[str(letter.facts["session"])]
        return _answer(at.client.unmask(content))

    def _at(self, letter: Letter) -> tuple[_Round, bytes]:
        found = self._rounds.get(str(letter.facts.get("session")))
        content = letter.tensors.get("content")
        if found is None or content is None or content.dtype != torch.uint8:
            raise NotNow("this client is not in that round of a secure sum.")
        return found, content.numpy().tobytes()

    def handlers(self) -> dict[str, Callable[[Letter], Letter]]:
        """What answers each kind of question."""
        return {KEYS: self.keys, SHARE: self.share, ROW: self.row, CONFIRM: self.confirm, UNMASK: self.unmask}


def _session(said: object) -> bytes:
    if not isinstance(said, str) or not _SESSION.fullmatch(said):
        raise BadLetter(f"a session is {SESSION} bytes, as hexadecimal digits.")
    return bytes.fromhex(said)


def _answer(content: bytes) -> Letter:
    return Letter(OK, {}, {"content": torch.frombuffer(bytearray(content), dtype=torch.uint8)})
