"""What somebody sees of one client in one round: the engine's own training, client pieces, sum, noise and undoing.

Two views. The server sees the client's message. Everyone sees what is released; the most that can tell of one client is the
round in which the attacker knows all other messages and takes them away, which is the round in which nobody else takes part.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from sfumato.data.population import Client, Population, Records
from sfumato.engine.clients import Job, message_context
from sfumato.engine.keys import Keys, client_key, lasting_key
from sfumato.engine.plan import Plan
from sfumato.engine.simulate import job_of
from sfumato.engine.slots import Slots
from sfumato.errors import BadValue
from sfumato.key import Key
from sfumato.local.dp_sgd import DpSgd, PlainSteps
from sfumato.local.sgd import Sgd
from sfumato.local.task import Task
from sfumato.models import training_mode
from sfumato.pieces.sampler import Everyone
from sfumato.round import Round
from sfumato.run.prepare import Prepared
from sfumato.update import Layout

SERVER, WORLD = VIEWS = ("server", "everyone")


@dataclass(frozen=True)
class Victim:
    """A client that holds these records, in a round of this run that begins at `params`."""

    prepared: Prepared
    records: Records
    params: Tensor

    def seen(self, view: str, key: Key) -> Tensor:
        """The client's update in the model's own coordinates, as the view shows it."""
        round = self.prepared.round
        if view == SERVER:  # what comes after the channel is left out, and what client pieces did is undone
            round = replace(round, server=(), nonprivate=True, unproven=False)
        job = self._job(round)
        slots, keys = job.slots, Keys.of(key)
        if slots.length != slots.layout.dimension:
            raise BadValue(
                f"clients of this run send {slots.length} numbers, and the model has {slots.layout.dimension}: there is no "
                "gradient to invert. Attack a run whose clients send updates of the model."
            )
        kept = slots.start()
        opening = slots.open(0, keys.opening(0), kept, state=slots.round.optimizer.start(self.params))
        own = [client_key(keys.clients, 0, 0)]
        task = Task(
            Plan().forward(job.module),
            slots.layout,
            job.objective.loss,
            self.params,
            self.params[None],
            [self.records],
            own,
            0,
            [0],
        )
        task = replace(task, lasting=[lasting_key(keys.clients, 0)], shared=opening.local)
        if slots.control is not None:
            shared = slots.shared_control(opening)
            task = replace(task, corrections=slots.control.correction(torch.zeros_like(self.params)[None], shared))
        sizes = torch.tensor([self.records.count])
        messages = slots.messages(slots.round.local.train(task), sizes, own, opening, [0])
        total, weight = slots.weighted_sum(messages, sizes) if slots.sums else (messages, 0.0)
        seen = message_context(job, self.params, keys, 0, (0,))
        value, _ = slots.release(total, weight, opening, keys, kept, seen)
        return value

    def module(self) -> nn.Module:
        """The model that the client was sent."""
        module = copy.deepcopy(self.prepared.module)
        Layout.of(module).write(self.params, module)
        return training_mode(module)

    def _job(self, round: Round) -> Job:
        prepared = self.prepared
        population: Population = replace(prepared.population, load=lambda number: Client(self.records), example=None)
        job, derivation = job_of(round, population, prepared.module, prepared.objective, "cpu")
        return replace(job, slots=Slots(round, derivation.primary, job.slots.layout), module=self.module())


def one_step(round: Round, records: int) -> Round:
    """The round in which a client takes one step on all of its records, which is where a message tells most."""
    local: Any = round.local
    if isinstance(local, Sgd):
        return replace(round, local=replace(local, epochs=None, steps=1, batch_size=records))
    if isinstance(local, DpSgd | PlainSteps):
        return whole_batches(replace(round, local=replace(local, steps=1)), records)
    raise BadValue(f"{local}: nobody here knows what one step of it is. Give --steps 0, for the round as it is.")


def whole_batches(round: Round, records: int) -> Round:
    """The round in which the records of the client are those that were drawn for every batch, as the unlucky ones are."""
    local: Any = round.local
    if isinstance(local, DpSgd):
        return replace(round, local=replace(local, batch=Everyone(), records=records), nonprivate=True, unproven=False)
    if isinstance(local, PlainSteps):
        return replace(round, local=replace(local, batch=Everyone()))
    return round


def steps_of(round: Round, records: int) -> tuple[float, int, int]:
    """What everybody knows of local training: its learning rate, how many steps a client takes, and on how many records each."""
    local: Any = round.local
    if isinstance(local, Sgd):
        batch = min(local.batch_size, records)
        steps = local.steps or (local.epochs or 1) * -(-records // batch)
        return local.lr, steps, batch
    if isinstance(local, DpSgd | PlainSteps):
        return float(getattr(local.optimizer, "lr", 1.0)), local.steps, records
    return 1.0, 1, records
