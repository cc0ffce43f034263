"""What a block of clients does: load, train, clip, add. A job can be pickled, so that any worker can do it."""

from __future__ import annotations

import copy
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import torch
from torch import nn

from sfumato.data.faults import Faults, out_of_memory
from sfumato.data.population import Population, PublicData, Records
from sfumato.data.records import described
from sfumato.engine.keys import Keys, client_key, lasting_key
from sfumato.engine.plan import Plan
from sfumato.engine.slots import Opening, Slots
from sfumato.errors import CodeFailed, DataError, SfumatoError
from sfumato.key import Key
from sfumato.local.task import Task
from sfumato.objective import check_labels
from sfumato.pieces.context import MessageContext

if TYPE_CHECKING:
    from sfumato.objective import Objective

Memory = dict[int, dict[str, torch.Tensor]]  # named rows of each client
START, CONTROL = "start", "control"  # where it begins, and its control variate


@dataclass(frozen=True)
class Job:
    """What every client of a run shares: public facts and the model."""

    slots: Slots
    module: nn.Module
    objective: Objective
    example: Records  # shapes and types only

    def with_params(self, row: torch.Tensor) -> nn.Module:
        """A copy of the model with these parameters."""
        module = copy.deepcopy(self.module)
        self.slots.layout.write(row, module)
        return module


def message_context(
    job: Job, params: torch.Tensor, keys: Keys, number: int, senders: tuple[int, ...] | None
) -> MessageContext:
    """The surroundings of an aggregate that sees messages; its claim is filled in where it is run."""
    slots, key = job.slots, keys.aggregate(number)
    return MessageContext(
        round=number,
        layout=slots.layout,
        claim=slots.proof.before[0],
        params=params,
        objective=job.objective,
        module=job.with_params,
        key=key,
        clients=senders,
    )


@dataclass(frozen=True)
class Total:
    """What the server's half gets of some clients: the sum of their weighted messages, and the sum of the weights.

    Where the aggregate sees messages, `rows` are the messages themselves, and `senders` who sent them, if the channel shows it.
    """

    rows: torch.Tensor
    weight: float
    senders: tuple[int, ...] | None = None
    norms: tuple[float, ...] = ()  # of the rows before the client slot: a diagnostic, not private


@dataclass(frozen=True)
class Start:
    """Where a round begins, for some of its clients."""

    params: torch.Tensor
    opening: Opening
    clients: Key  # the root of the clients' own keys
    memory: Memory = field(default_factory=dict)
    lasting: Key | None = None  # the same for the keys that stay; None: nobody needs them
    attempt: int = 0  # the how many-th time that this round is begun
    reserved: int = 0  # rounds that the run has paid for so far, this one among them
    since: int = 0  # the round at which the run was started or resumed: what lasts for several rounds is as old

    def only(self, ids: Sequence[int]) -> Start:
        """The same, with nobody else's memory."""
        own = {client: self.memory[client] for client in ids if client in self.memory} if self.memory else {}
        return replace(self, memory=own)

    def rows(self, ids: Sequence[int]) -> torch.Tensor:
        if not any(START in rows for rows in self.memory.values()):
            return self.params.expand(len(ids), -1)
        return torch.stack([self.memory.get(client, {}).get(START, self.params) for client in ids])

    def controls(self, ids: Sequence[int]) -> torch.Tensor:
        """What clients remember of their messages; nothing at first."""
        nothing = torch.zeros_like(self.params)
        return torch.stack([self.memory.get(client, {}).get(CONTROL, nothing) for client in ids])


@dataclass(frozen=True)
class Block:
    """What a block of clients gives: a sum that leaves them, or where somebody must see them the messages and the clients'
    numbers of records; and what stays with the clients: their own trained models, or control variates.
    """

    total: Total
    stays: Memory
    sizes: torch.Tensor


_COPIES = threading.local()
_FAILED = "local training failed: {}. Fix the client's data or the model, or leave the client out."
_NOT_PRIVATE = "Not private: this message depends on a client's records, so keep it to the operator of this run."


def _own_copy(module: nn.Module) -> nn.Module:
    """This worker's own copy of a module, for as long as somebody holds the module."""
    copies: WeakKeyDictionary[nn.Module, nn.Module] = vars(_COPIES).setdefault("of", WeakKeyDictionary())
    if module not in copies:
        copies[module] = copy.deepcopy(module)
    return copies[module]


@dataclass(frozen=True)
class Clients:
    """The clients of a run, and how they are computed.

    With `faults`, which are those of a single client, the client replies whatever its records are: what they spoil counts as
    zero. Without, an error ends the run and names the client to its operator; that is not private, and says so.
    """

    job: Job
    population: Population
    plan: Plan
    diagnostics: bool = False
    faults: Faults | None = None

    def __call__(self, asked: tuple[Start, list[int]]) -> Block:
        """Train a block, and add what it sends. A worker among others takes one core."""
        try:
            return self._block(asked)
        except DataError as error:
            if self.faults is None and _NOT_PRIVATE not in str(error):
                error.args = (f"{error} {_NOT_PRIVATE}",)
            raise

    def _block(self, asked: tuple[Start, list[int]]) -> Block:
        if self.plan.workers > 1 and torch.get_num_threads() > 1:
            torch.set_num_threads(1)
        start, ids = asked
        opening = start.opening
        records = [self._load(client) for client in ids]
        keys = [client_key(start.clients, client, opening.number) for client in ids]
        task, control = self._task(start, ids, records, keys), self.job.slots.control
        if control is not None:
            shared = self.job.slots.shared_control(opening)
            task = replace(task, corrections=control.correction(start.controls(ids), shared))
        rows, failed = self._rows(task, ids)
        sizes = torch.tensor([one.count for one in records], device=rows.device)
        norms = tuple(rows.norm(dim=1).tolist()) if self.diagnostics else ()
        messages = self.job.slots.messages(rows, sizes, keys, opening, ids, failed)
        stays = self._stays(start, ids, rows, messages)
        total, weight = (messages, 0.0) if self.job.slots.gathers else self.job.slots.weighted_sum(messages, sizes)
        senders = tuple(ids) if self.job.slots.gathers else None
        return Block(Total(rows=total, weight=weight, senders=senders, norms=norms), stays, sizes)

    def _stays(self, start: Start, ids: list[int], rows: torch.Tensor, messages: torch.Tensor) -> Memory:
        """What each client keeps for itself: its own model, until it has seen the new global one, or a control variate."""
        slots = self.job.slots
        if slots.control is None:
            keeps = slots.round.personal is not None
            return {client: {START: start.params + row} for client, row in zip(ids, rows, strict=True)} if keeps else {}
        shared, length = slots.shared_control(start.opening), slots.control_length(start.opening.number)
        own = slots.control.remember(start.controls(ids), shared, messages, length)
        return {client: {CONTROL: row.clone()} for client, row in zip(ids, own, strict=True)}

    def train_on(self, params: torch.Tensor, opening: Opening, data: PublicData) -> torch.Tensor:
        """The row that local training gives on public data."""
        start = Start(params, opening, opening.key)
        key = opening.key.child("public")
        return self._train(self._task(start, [-1], [self._moved(data.records)], [key]), [-1])[0]

    def _task(self, start: Start, ids: list[int], clients: list[Records], keys: list[Key]) -> Task:
        forward, layout = self.plan.forward(_own_copy(self.job.module)), self.job.slots.layout
        loss, starts, number = self.job.objective.loss, start.rows(ids), start.opening.number
        lasting = [lasting_key(start.lasting or start.clients, client) for client in ids]
        task = Task(
            forward=forward,
            layout=layout,
            loss=loss,
            params=start.params,
            starts=starts,
            clients=clients,
            keys=keys,
            round=number,
            ids=ids,
        )
        return replace(task, lasting=lasting, shared=start.opening.local, faults=self.faults)

    def _load(self, client: int) -> Records:
        records = self.population.client(client).train
        example = self.job.example
        if records.inputs != example.inputs:
            raise DataError(
                f"client {client}: its inputs are {described(records)}, but other clients' are {described(example)}. Mend the "
                "client's data, or leave the client out."
            )
        for name, found, wanted in (("inputs", records.x, example.x), ("targets", records.y, example.y)):
            if found.shape[1:] != wanted.shape[1:] or found.dtype != wanted.dtype:
                raise DataError(
                    f"client {client}: {name} have shape {tuple(found.shape[1:])} and type {found.dtype}, but other clients' have "
                    f"{tuple(wanted.shape[1:])} and {wanted.dtype}. Mend the client's data, or leave the client out."
                )
        return self._moved(records)

    def _moved(self, records: Records) -> Records:
        """The records where the model is."""
        device = self.job.example.x.device
        return Records(records.x.to(device), records.y.to(device))

    def _rows(self, task: Task, ids: list[int]) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The rows; with `faults`, a zero row in place of one that records have spoiled, and that it is such a row.

        Where training leaves out single records by itself, what it still raises is not one record's, and its rows are private
        already: neither becomes zero as a whole.
        """
        if self.faults is None:
            return self._train(task, ids), None
        apart = self.job.slots.round.local.records_apart
        try:
            if not self.faults.whole:
                rows = self._train(task, ids)
                if apart or bool(rows.isfinite().all()):
                    return rows, None
                self.faults.whole = "its update is not finite"
        except Exception as error:
            if apart or out_of_memory(error):
                raise
            self.faults.raised = error.__cause__ if isinstance(error.__cause__, Exception) else error
            self.faults.whole = f"training raised {type(self.faults.raised).__name__}"
        zero = task.params.new_zeros(len(ids), self.job.slots.length)
        return zero, torch.ones(len(ids), dtype=torch.bool, device=zero.device)

    def _train(self, task: Task, ids: list[int]) -> torch.Tensor:
        local = self.job.slots.round.local
        try:
            rows = local.train(task)
        except SfumatoError:
            raise
        except Exception as error:
            if len(ids) == 1:
                check_labels(self.job.objective, task.clients[0].y, f"client {ids[0]}")
                raise CodeFailed(f"client {ids[0]}: {_FAILED.format(type(error).__name__)}") from error
            for place, client in enumerate(ids):  # find out whose data it was
                self._train(task.only(place), [client])
            raise CodeFailed(f"clients {ids[0]} to {ids[-1]}: {_FAILED.format(type(error).__name__)}") from error
        if rows.shape != (len(ids), self.job.slots.length):
            raise DataError(
                f"local training returned rows of shape {tuple(rows.shape)}, not {(len(ids), self.job.slots.length)}: one row for "
                "each client, as long as message_length(layout) says."
            )
        return rows if local.fresh_rows else rows.clone()
