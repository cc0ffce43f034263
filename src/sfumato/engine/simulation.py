"""A run that is ready to start, and what is known after each of its rounds.

Each round goes in the order of the ledger: reserve, draw, compute, store, settle, show. With a folder, a run that was killed at
any moment can be resumed: the rounds that were begun and not stored are begun again, with fresh noise, and both count. That is
at most as many rounds as lie between two checkpoints: one, unless `checkpoint_every` says otherwise.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import nn

from sfumato.account.event import Event, Nothing, Unit
from sfumato.account.inside import for_client
from sfumato.data.population import Population
from sfumato.derive import Derivation, pieces
from sfumato.engine.checkpoint import Checkpoint
from sfumato.engine.clients import START, Job, Memory, Total, message_context
from sfumato.engine.cohort import Cohort
from sfumato.engine.keys import Keys, Randomness
from sfumato.engine.slots import Opening
from sfumato.engine.workers import GivenUp
from sfumato.errors import BadValue, BudgetExceeded, NotFinite
from sfumato.guarantee import PUBLIC, Guarantee, default_delta, guarantee
from sfumato.ledger.ledger import Ledger
from sfumato.ledger.spending import Spending
from sfumato.notebook import guarantee_card
from sfumato.pieces.context import StepContext
from sfumato.pieces.protocol import State
from sfumato.several_inputs import own_module
from sfumato.unproven import claims

_NOT_DURABLE = "the ledger is in memory: what was spent is forgotten when this process ends"
_SEEDED = "simulation: no one knows the seed, no other run on these data has it, and data and code stay the same until the run ends"
_RESUMED = (
    "no copy of the run's folder was resumed too: what copies spend together is known only to a ledger that they share"
)
_BY_CHANCE = "what interrupted the run did not depend on who was drawn or on what any record holds"
RESUMED = "resumed"  # a fact of a run's ledger: after how many rounds it was resumed last
INTERRUPTED = "interrupted"  # a fact of a run's ledger: some rounds were begun and never stored
Learn = Callable[[torch.Tensor, State, torch.Tensor, StepContext], tuple[torch.Tensor, State]]


@dataclass(frozen=True, repr=False)
class Progress:
    """What is known after a round: released values, but for `seconds`, which grow with how many were drawn, and `diagnostics`:
    these two are not private.

    `params` are those that the optimizer reports: the average, if it averages its iterates; `state` is what it keeps, such as
    released votes.
    """

    round: int
    rounds: int
    params: torch.Tensor
    seconds: float
    derivation: Derivation
    run: Simulation
    diagnostics: dict[str, object] | None = None
    memory: Memory = field(default_factory=dict)
    state: State = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Progress(round {self.round} of {self.rounds}, {len(self.params):,} parameters)"

    def _repr_html_(self) -> str:
        told = f"round {self.round} of {self.rounds}, {len(self.params):,} parameters"
        spent = self.guarantee()
        return guarantee_card(spent.headline, spent.rows(), spent.assumptions, above=told)

    @property
    def module(self) -> nn.Module:
        """An ordinary module with the parameters of this round."""
        return own_module(self.run.module(self.params)).cpu()

    def personal_module(self, client: int) -> nn.Module:
        """A client's own model, which never leaves it; the global one if it keeps none."""
        return own_module(self.run.module(self.memory.get(client, {}).get(START, self.params))).cpu()

    def epsilon(self, delta: float | None = None) -> float | None:
        """What has been spent against anyone who sees the released models; None where nothing is proven."""
        return self.run.guarantee(delta).epsilon

    def guarantee(
        self, delta: float | None = None, unit: Unit | None = None, server: bool = False, client: int | None = None
    ) -> Guarantee:
        """What has been spent, and what that proves; on the records of one client, if one is named. Default delta: the run's."""
        return self.run.guarantee(delta, unit, server, client)


@dataclass(eq=False, repr=False)
class Simulation:
    """A run that is ready to start: everything that could be refused has been checked. It is iterated over once."""

    job: Job
    derivation: Derivation
    population: Population
    spending: Spending
    rounds: int
    randomness: Randomness
    folder: Path | None
    step: str  # the name of what the run does before its first round; empty for its rounds
    start: Checkpoint
    diagnostics: bool
    cohort: Cohort
    checkpoint_every: int = 1  # rounds between two of them, but for the last
    learn: Learn | None = None  # what moves the parameters by a release; the round's optimizer, if it is None
    stopped: str = field(default="", init=False)  # why there are fewer rounds than planned
    begun: bool = field(default=False, init=False)
    now: Checkpoint = field(init=False)  # after the last round
    _unstored: bool = field(default=False, init=False)
    _reserved: list[tuple[Ledger, int]] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.now = self.start

    def __repr__(self) -> str:
        return f"Simulation({self.population.size:,} clients, rounds {self.start.round} to {self.rounds})"

    @property
    def ledger(self) -> Ledger:
        return self.spending.own

    def guarantee(
        self, delta: float | None = None, unit: Unit | None = None, server: bool = False, client: int | None = None
    ) -> Guarantee:
        """What the ledger says was spent on `unit`, against anyone who sees the released models or against the server.

        Without `client` it holds for all of them; with one, for that client alone, where clients have settings of their own.
        Default delta: that of the budget, or `default_delta` of the declared number of units.
        """
        delta = self.delta if delta is None else delta
        primary = self.derivation.primary
        unit = unit or primary.unit
        if client is not None and not 0 <= client < self.population.size:
            raise BadValue(f"client={client}: the population has clients 0 to {self.population.size - 1}.")
        proof, spent = self.derivation.units.get(unit), self.ledger.spent(unit)
        channel = self.job.slots.round.channel
        view = channel.receiver if server else PUBLIC
        why = ""
        if (claim := self.unproven(delta)) is not None:
            claimed, who = claim["claimed_epsilon"], claim["paper"] or "the paper"
            said = f"; {who} claims epsilon {claimed:.4g} ({claim['claimed_by']})" if claimed else ""
            said += "".join(f"; {words}: {epsilon:.4g}" for words, epsilon in claim.get("really", {}).items())
            why = f"its privacy could not be proven{said}; what fails: {claim['step']}"
        elif proof is None:
            refusal = self.derivation.refused.get(unit)
            why = refusal.reason if refusal else getattr(primary.world, "reason", "")
        elif spent is None and self.ledger.count:
            why = f"the ledger holds rounds for which nothing is proven for one {unit}"
        if why or proof is None:
            return Guarantee(
                epsilon=None,
                delta=delta,
                unit=unit,
                relation=(proof or primary).relation,
                view=view,
                accountant="",
                unproven=why,
            )
        whole_client = self.derivation.by_whole_client(unit)
        event: Event | None = Nothing() if spent is None else spent.server if server else spent.world
        extra = self._of_starts()
        if event is not None and client is not None:
            event = for_client(event, client)
        relation = (spent or proof).relation
        settings = any(piece.by_number for _, piece in pieces(self.job.slots.round))
        cautions = self.population.caution(unit, settings=settings, numbered=server)
        every = (*proof.assumptions, *cautions, *self.cohort.workers.assumptions(), *extra)
        found = guarantee(
            event,
            delta,
            unit=unit,
            relation=relation,
            view=view,
            assumptions=tuple(dict.fromkeys(every)),
            by=self.ledger.price,
            unpaid=channel.sees_before_noise,
            whole_client=whole_client,
        )
        return found if client is None else replace(found, client=client)

    def _of_starts(self) -> tuple[str, ...]:
        """What must hold of how the run was started, resumed and interrupted."""
        ledger = self.ledger
        known = (
            (True, ledger.of_basis),
            (ledger.fact(RESUMED) is not None, (*ledger.assumptions, _RESUMED)),
            (ledger.fact(INTERRUPTED) is not None, (_BY_CHANCE,)),
            (self.spending.seeded or ledger.seeded, (_SEEDED,)),
            (not ledger.durable, (_NOT_DURABLE,)),
        )
        return tuple(word for holds, words in known if holds for word in words)

    @property
    def delta(self) -> float:
        """The delta of the run's own budget; where there is none, the default for the declared number of units."""
        unit, round, people = self.derivation.primary.unit, self.job.slots.round, self.population
        usual = default_delta(None if people.counted else round.units(people.size))
        return next((one.delta for one in self.spending.limits if one.unit is unit), usual)

    def unproven(self, delta: float) -> dict[str, Any] | None:
        """What a paper claims for a round that could not be proven, and the step that fails; None for any other round."""
        round = self.job.slots.round
        if not round.unproven:
            return None
        return claims(round, self.derivation, self.ledger.count, delta)

    def __iter__(self) -> Iterator[Progress]:
        if self.begun:
            raise BadValue(
                "this run has begun already, and goes through its rounds once. Call simulate again for another run."
            )
        self.begun = True
        with closing(self.cohort), self.spending.connected():
            try:
                yield from self._rounds()
            finally:
                self.store()

    def __reduce__(self) -> NoReturn:
        raise BadValue("a run cannot be copied or pickled: both would draw from the same keys. Begin another one.")

    def _rounds(self) -> Iterator[Progress]:
        cohort, sampler = self.cohort, self.job.slots.round.sample
        # another run may begin a shared ledger meanwhile, and so decide what prices this one: then each round is looked at
        affordable = self.spending.shared is None and self.spending.affords(self.rounds, self.start.round)
        for number in range(self.start.round, self.rounds):
            started, now = time.perf_counter(), self.now
            self.randomness.check_process()
            if not affordable and not self._within_budget(number):
                return
            reservations = self.spending.reserve(number, self.randomness.name(number))
            keys = self.randomness.keys(number)
            ids = sampler.cohort(self.population.size, keys.turn(number))
            opening = cohort.open(now.params, number, keys.opening(number), now.kept, now.state)
            own = keys.clients, now.memory, keys.channel, keys.lasting_clients
            counted = self.spending.attempt, self.ledger.rounds, self.spending.since
            norms: tuple[float, ...] = ()
            try:
                total = cohort.total(now.params, ids.tolist(), opening, *own, *counted)
            except GivenUp:
                now = replace(now, round=number + 1)  # nothing is released, and everything counts
            else:
                norms = total.norms
                now = self._serve(now, total, opening, keys)
                now = replace(now, memory=cohort.keep(now.memory, now.params))
            self.randomness.check_process()  # a client's code may have forked: one of the two shows what was drawn
            self.now, self._unstored, self._reserved = now, True, [*self._reserved, *reservations]
            if now.round == self.rounds or (now.round - self.start.round) % self.checkpoint_every == 0:
                self.store()
                cohort.workers.released(now.params, opening)
            elif self.folder is not None:
                self.ledger.note_shown()
            seconds = time.perf_counter() - started
            notes = {"cohort": len(ids), "norms": norms} if self.diagnostics else None
            shown = self.reported(now)
            yield Progress(
                round=now.round,
                rounds=self.rounds,
                params=shown,
                seconds=seconds,
                derivation=self.derivation,
                run=self,
                diagnostics=notes,
                memory=now.memory,
                state=now.state,
            )

    def _within_budget(self, number: int) -> bool:
        """Whether a round stays within the run's budget; a budget that was planned without interruptions ends a run early."""
        name = self.randomness.name(number)
        if name is not None and self.ledger.holds(name):  # of a seeded run: reserved already, and once
            return True
        try:
            self.spending.check(number)
        except BudgetExceeded as error:
            self.stopped = str(error)
            if not self.spending.interrupted(number):
                raise
            return False
        return True

    def store(self) -> None:
        """Write the checkpoint of the last round, if that is not written, and settle the rounds up to it."""
        if not self._unstored or self.randomness.is_forked:
            return
        now, folder, ledger, step = self.now, self.folder, self.ledger, self.step
        if folder is None:
            self.spending.settle(self._reserved)
        else:
            self.spending.settle(
                self._reserved, lambda own: now.write(folder, ledger, self.spending.run, own, step=step)
            )
        self._unstored, self._reserved = False, []

    def reported(self, at: Checkpoint) -> torch.Tensor:
        """The parameters to show and to keep, where training continues from the checkpoint's own."""
        return self.job.slots.round.optimizer.report(at.params, at.state)

    def module(self, row: torch.Tensor) -> nn.Module:
        """A copy of the model with these parameters."""
        return self.job.with_params(row)

    def _serve(self, now: Checkpoint, total: Total, opening: Opening, keys: Keys) -> Checkpoint:
        """The server's half: divide, noise, process, step."""
        slots, number = self.job.slots, opening.number
        seen = message_context(self.job, now.params, keys, number, total.senders)
        value, kept = slots.release(total.rows, total.weight, opening, keys, now.kept, seen)
        stddev = self.derivation.primary.stddev
        context = StepContext(
            round=number,
            layout=slots.layout,
            objective=self.job.objective,
            module=self.module,
            key=keys.optimizer(number),
            stddev=stddev,
        )
        learn = self.learn or slots.round.optimizer.learn
        params, state = learn(now.params, now.state, value, context)
        if not all(map(math.isfinite, torch.aminmax(params))):  # much faster than isfinite() of each
            raise NotFinite(
                f"round {number + 1}: the parameters are no longer finite. Lower the learning rates; without a Clip, one client's "
                "broken row is enough."
            )
        return replace(now, round=number + 1, params=params, state=state, kept=kept)
