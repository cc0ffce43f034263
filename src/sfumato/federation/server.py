"""A run between machines, from the server's side: the same run as on one machine, with its cohort elsewhere."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from sfumato.engine.checkpoint import Checkpoint
from sfumato.engine.clients import Start
from sfumato.engine.plan import Plan
from sfumato.errors import BadValue, SfumatoError
from sfumato.federation.cohort import Federation, Tally, online_once
from sfumato.federation.question import CHECK, END, OK
from sfumato.federation.settings import Settings, verifying_keys
from sfumato.federation.terms import Agreement, Terms
from sfumato.federation.wire import Letter, Wire, WireLost
from sfumato.key import Key
from sfumato.pieces.channel import SecureSum
from sfumato.run.prepare import Prepared, prepare
from sfumato.run.request import Request
from sfumato.run.run import Run

Told = Callable[[str], object]


class NobodyTakesPart(SfumatoError):
    """No node that is online would take part in a run, so that it has not begun and nothing is spent."""


def prepared_for(request: Request, settings: Settings, found: Mapping[str, Any] | None = None) -> Prepared:
    """Everything that the server needs of a run whose data are elsewhere; refuses before anything is spent."""
    members = settings.members()
    if request.data.clients != len(members):
        raise BadValue(
            f"data.clients={request.data.clients}, but the registry {settings.registry} names {len(members)} nodes, each of them "
            "one client. Give the same number."
        )
    if request.diagnostics or request.device != "cpu":
        raise BadValue("diagnostics and other devices are for simulations: between machines nobody sees clients' data.")
    if settings.keys == "shared" and request.seed is None:
        raise BadValue("federation.keys='shared' is for tests with a seed: else clients' keys are their own.")
    run = settings.run or os.urandom(16).hex()
    request = replace(request, federation={**settings.table(), "run": run})
    prepared = prepare(request, found, elsewhere=settings.people(request.data.name, request.seed is not None))
    tested = prepared.input_shape if prepared.test is None else tuple(prepared.test.records.x.shape[1:])
    if tested != prepared.input_shape:
        raise BadValue(
            f"clients' records have the declared shape {prepared.input_shape}, and the test data {tested}. Declare "
            "in [federation] input_shape what clients have, and test on the same."
        )
    return prepared


def terms_of(prepared: Prepared, settings: Settings) -> Terms:
    """What the nodes of a run are told that it is."""
    summed = {"power": settings.power} if isinstance(prepared.round.channel, SecureSum) else {}
    return Terms.of(prepared, prepared.request.federation["run"], keys=settings.keys, sum=summed)


class Served:
    """A run that is ready to start over a wire. `tell` hears in words how it goes, for the server's operator alone."""

    def __init__(
        self,
        prepared: Prepared,
        wire: Wire,
        settings: Settings,
        folder: Path,
        *,
        resume: bool = False,
        page: Callable[[Path], object] | None = None,
        tell: Told = lambda words: None,
    ) -> None:
        if settings.run and not resume:
            raise BadValue(
                f"federation.run={settings.run!r} is the name of a run that has begun, and nodes count rounds of one name once. "
                "Leave it out, so that this run gets a name of its own, or go on with that run (--resume)."
            )
        if (every := prepared.request.checkpoint_every) != 1:
            raise BadValue(
                f"checkpoint_every={every}: a federated run stores every round before its nodes hear of it. Leave it out."
            )
        self.wire, self.settings, self.folder, self.tell = wire, settings, folder, tell
        self.members = settings.members()
        self.agreement = Agreement.of(terms_of(prepared, settings), prepared.public)
        told: dict[str, Any] = {
            "public": prepared.public,
            "tell": self._heard,
            "verifying": verifying_keys(self.members),
        }
        cohort = partial(Federation, wire=wire, agreement=self.agreement, deadline=settings.deadline, **told)
        repeatable = settings.keys == "shared"  # else who replies may change, and what: noise is never drawn again
        self.run = Run(prepared, folder, resume=resume, plan=Plan(), page=page, cohort=cohort, repeatable=repeatable)

    def _heard(self, tally: Tally) -> None:
        if tally.why:
            self.tell(str(tally))

    def check(self) -> None:
        """Ask who is online what it would refuse, before anything is spent; refuse to begin if nobody takes part."""
        try:
            online, replies = self._asked()
        except WireLost:  # nothing is spent, so it is asked again; if it is lost once more, something is wrong with it
            self.wire.restart()
            online, replies = self._asked()
        for client, member in enumerate(self.members):
            said = replies[client].kind if client in replies else "silent" if client in online else "offline"
            if said != OK:
                self.tell(f"{member.name} (client {client}): {said}")
        if not any(reply.kind == OK for reply in replies.values()):
            self.run.forget()
            raise NobodyTakesPart(
                f"of {len(self.members)} nodes {len(online)} are online, and none would take part: nothing was begun, and nothing "
                "is spent. What each says stands above; sfumato node check explains it on its host."
            )

    def _asked(self) -> tuple[set[int], dict[int, Letter]]:
        """Who is online, and what each of them says."""
        everybody = set(range(len(self.members)))
        at = f"{self.settings.host}:{self.settings.port}"
        self.tell(f"waiting for {len(everybody)} nodes at {at}, for at most {self.settings.wait:g} s")
        online = online_once(self.wire, lambda now: now >= everybody, self.settings.wait)
        self._federation.saw(online)
        asking = self._asking(self.run.start)
        letters = {client: self._federation.question(asking, client).letter(CHECK) for client in online}
        return online, dict(self.wire.ask(letters, self.settings.deadline))

    @property
    def _federation(self) -> Federation:
        workers = self.run.simulation.cohort.workers
        assert isinstance(workers, Federation), "the cohort is elsewhere"
        return workers

    def _asking(self, now: Checkpoint) -> Start:
        """A question outside of any round, in the form of one: nothing that is the server's own is drawn for it."""
        nobody, spent = Key.from_seed(0), self.run.ledger.rounds
        number = max(0, min(now.round, self.agreement.terms.rounds - 1))
        opening = self.run.simulation.cohort.open(now.params, number, nobody, now.kept, now.state)
        reserved = max(spent, number + 1)
        spending = self.run.simulation.spending
        return Start(now.params, opening, nobody, attempt=spending.attempt, reserved=reserved, since=spending.since)

    def end(self) -> None:
        """Send the final model to whoever is online: it is what everybody may see."""
        last = self.run.simulation.now
        params = self.run.simulation.reported(last)
        start = replace(self._asking(last), params=params)
        try:
            letters = {client: self._federation.question(start, client).letter(END) for client in self.wire.online()}
            heard = sum(reply.kind == OK for _, reply in self.wire.ask(letters, self.settings.deadline))
        except WireLost:
            heard = 0
        self.tell(f"{heard} of {len(self.members)} nodes have the final model")
