"""Run a Round over a Population on this machine: a generator, so that the loop belongs to the user."""

from __future__ import annotations

import copy
import math
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from sfumato.data.population import Population, Records, require_population
from sfumato.data.records import described
from sfumato.derive import Derivation
from sfumato.engine.checkpoint import FILES, Checkpoint, make_folder, root_key
from sfumato.engine.clients import Clients, Job, message_context
from sfumato.engine.cohort import Cohort
from sfumato.engine.identity import Inputs, attempt_of
from sfumato.engine.keys import Keys
from sfumato.engine.plan import Plan, check_memory, choose, made_up
from sfumato.engine.simulation import Learn, Simulation
from sfumato.engine.slots import Slots, gathers
from sfumato.engine.workers import Factory, Here, asked_shards
from sfumato.errors import BadValue, DataError, LedgerError
from sfumato.facts import digest
from sfumato.guarantee import check_delta
from sfumato.key import Key
from sfumato.ledger.ledger import Budget, Ledger
from sfumato.ledger.spending import Spending, open_shared
from sfumato.models import check_loss_keeps_nothing, check_module, training_mode
from sfumato.objective import Objective, check_loss, check_outputs
from sfumato.round import Round
from sfumato.several_inputs import inputs_of
from sfumato.update import Layout
from sfumato.version import __version__


def simulate(
    round: Round,
    population: Population,
    module: nn.Module,
    objective: Objective,
    *,
    rounds: int,
    seed: int | None = None,
    folder: str | Path | None = None,
    resume: bool = False,
    budget: tuple[float, float] | None = None,
    own_budgets: Sequence[Budget] = (),
    plan: Plan | None = None,
    device: str = "cpu",
    diagnostics: bool = False,
    description: str = "",
    shared_ledger: str | Path | None = None,
    force_ledger: bool = False,
    cohort: Factory = Here,
    checkpoint_seconds: float = 0.0,
    step: str = "",
    ledger: Ledger | None = None,
    learn: Learn | None = None,
) -> Simulation:
    """Check everything, then give back the run. `sfumato.simulate` says what the arguments mean, and writes what was found.

    `own_budgets` are those of some clients: the run stops before the round that would pass one. `description` is whatever
    else makes a run another one. A run that goes on finds its `shared_ledger` by itself. `checkpoint_seconds` is the least time
    between two checkpoints; whoever breaks off calls `store()`.

    A `step` is one round ahead of the first: the name of what the run in this folder does before it trains. Its keys and its
    checkpoint are its own; what it costs stands in the run's ledgers, and within the run's budget. `ledger` is the run's own,
    if it is open already. `learn` stands in for the optimizer's method of that name, and keeps its own state: it is given
    what was released, so it is free, and a run with it has no folder to go on from.
    """
    population = require_population(population, "simulate")
    assert learn is None or folder is None, "its state is in no checkpoint"
    if isinstance(rounds, bool) or not isinstance(rounds, int) or rounds < 1:
        raise BadValue(f"rounds={rounds}: at least one round, as a whole number.")
    if budget is not None:
        check_delta(budget[1])
    job, derivation = job_of(round, population, module, objective, device)
    described = digest(description, *_what_runs(job, population), device, __version__, seed is not None)
    path = None if folder is None else Path(folder)
    place = path and path / step
    found = None if place is None else _stored(place, described, resume or ledger is not None)
    root = Key.from_seed(seed).child("root") if seed is not None else root_key(path, lambda: os.urandom(32))
    ledger = ledger or open_own(path, population)
    _check_whole(ledger, found, ahead=bool(step))
    given = None if shared_ledger is None else Path(shared_ledger)
    name, root = root.child("name").digest, root.child("step", called=step) if step else root
    shared = open_shared(ledger, given, name, population, derivation, seed is not None, force_ledger)
    start = found or _first(job, population, described, plan, asked_shards(cohort))
    if found is None and place is not None:
        start.write(place)
    people = Cohort(Clients(job, population, start.plan, diagnostics), cohort)
    inputs = Inputs.of(root, population, start.plan, people.workers.kernels(), seed is not None)
    attempt = attempt_of(ledger, start, inputs.replay, ahead=bool(step))
    start = replace(start, attempt=attempt).to(device)
    limits = (*(() if budget is None else (Budget(*budget, derivation.primary.unit),)), *own_budgets)
    spending = Spending(
        ledger, shared, derivation, name, inputs.replay, seed is not None, limits, bool(step), learn is not None
    )
    # Data that may have changed get new noise when rounds are computed again, which is paid for: so none ever are. Nor on a GPU,
    # nor with exact noise, which promises something of the last bit: no check can tell that another machine gives the same.
    again = population.fingerprint is not None and not job.slots.alone and device == "cpu"
    seconds = checkpoint_seconds if again else 0.0
    facts = (rounds, root, place, start, diagnostics, inputs.data, people, seconds, learn)
    return Simulation(job, derivation, population, spending, *facts)


def job_of(
    round: Round, population: Population, module: nn.Module, objective: Objective, device: str
) -> tuple[Job, Derivation]:
    """What every client shares, tried on made-up records, and what a round of it costs; refuses what does not fit together."""
    _check_device(device)
    layout = Layout.of(module)
    check_memory(layout, math.ceil(round.sample.expected(population.size)) if gathers(round) else 0)
    module = training_mode(copy.deepcopy(module).to(device))
    example = _example(population, device)
    if inputs_of(module) != example.inputs:
        raise DataError(
            f"clients' records are {described(example)}, but the model takes {inputs_of(module) or 'one tensor'}, as the test data "
            "have it. Give both the same inputs, and the module itself to sfumato.simulate."
        )
    check_module(module, made_up(example, 4, 1).x)
    with torch.no_grad():
        outputs = copy.deepcopy(module).eval()(example.x)
    if not isinstance(outputs, torch.Tensor):
        raise BadValue(
            f"the model answers with a {type(outputs).__name__}. Let forward return one tensor, with a row for each record; if it "
            "has logits, give its inputs by name, as in x={'input_ids': ...}."
        )
    check_outputs(objective, outputs)
    check_loss(objective, outputs, example.y)
    check_loss_keeps_nothing(objective.loss, outputs, example.y)
    round.local.check(module, objective.loss, made_up(example, 4, 0))
    length = round.local.message_length(layout)
    round.optimizer.check(module, objective, length)
    derivation = round.derive(population=population.size, dimension=length)
    job = Job(Slots(round, derivation.primary, layout), module, objective, example)
    job.slots.check(message_context(job, layout.row(module), Keys.of(Key.from_seed(0)), 0, (0, 1)))
    return job, derivation


def _what_runs(job: Job, population: Population) -> tuple[object, ...]:
    """Everything that can change a round's result, but for the clients' data."""
    people = (population.name, population.size, population.identity)
    return job.slots.round, *people, job.slots.layout, job.module, job.objective.name, job.objective.loss


def _stored(folder: Path, described: str, resume: bool) -> Checkpoint | None:
    """Where the run was left, if it was. Its folder is made if it is not there, and holds no other run."""
    make_folder(folder)
    if not resume and any((folder / name).exists() for name in FILES):
        raise BadValue(f"{folder} already holds a run. Give another folder, or resume=True to go on with it.")
    found = Checkpoint.read(folder)
    if found is not None and found.description != described:
        raise BadValue(
            f"{folder} holds another run: its round, model, loss, population or version differs. Give another folder."
        )
    return found


def open_own(folder: Path | None, population: Population) -> Ledger:
    """The ledger of the run in a folder; one in memory, if there is none."""
    return Ledger(None if folder is None else folder / "ledger.sqlite", population.name, population.identity)


def _check_whole(ledger: Ledger, found: Checkpoint | None, ahead: bool) -> None:
    """Refuse to go on where what was spent is not known: on rounds, or on the step ahead of them."""
    held = ledger.count - ledger.rounds if ahead else ledger.rounds
    if found is None and held:
        raise LedgerError(
            f"{ledger.path} holds rounds, but their checkpoint is gone. Restore it, or start a run in another folder."
        )
    if found is not None and held < found.round:
        raise LedgerError(
            f"{ledger.path} holds {held} rounds and the checkpoint {found.round}, so what was spent is not known. "
            "Restore the ledger, or start a new run in another folder."
        )


def _first(job: Job, population: Population, described: str, plan: Plan | None, shards: int) -> Checkpoint:
    slots, params = job.slots, job.slots.layout.row(job.module)
    plan = plan or choose(slots, job.module, job.objective, job.example, population.size, shards)
    if slots.alone and plan.path != "loop":
        raise BadValue(
            f"{plan}: with exact noise a client's row may not depend on who is computed beside it, not even in its last bit. Use a "
            "plan with path='loop', or leave it out."
        )
    return Checkpoint(0, 0, described, plan, params, slots.round.optimizer.start(params), {}, slots.start())


def _check_device(device: str) -> None:
    """Refuse a device that is not there, or that has no float64, in which norms are taken and sums are made."""
    if not re.fullmatch(r"cpu|(cuda|xpu|mps)(:\d+)?", device):
        raise BadValue(f"device={device!r}: there is no such device. Use cpu, cuda or xpu.")
    kind, _, number = device.partition(":")
    if kind == "cpu":
        return
    if kind == "mps":
        raise BadValue(f"device={device!r}: norms are taken in float64, which mps does not have. Use cpu.")
    found = torch.get_device_module(kind).device_count()
    if int(number or 0) >= found:
        raise BadValue(
            f"device={device!r}: torch finds {found or 'no'} {kind.upper()} devices on this machine. Use cpu."
        )
    try:
        torch.zeros(1, dtype=torch.float64, device=device)
    except Exception as error:  # an XPU may lack it, and a driver may be broken
        raise BadValue(
            f"device={device!r}: torch makes no float64 tensor there, in which norms are taken: {error}. Use cpu."
        ) from error


def _example(population: Population, device: str) -> Records:
    """Two records' worth of the shapes and types that the clients have; values are not used. Where they are declared, no client's
    data is looked at.
    """
    if population.example is not None:
        x, y = (part.to(device) for part in population.example)
        return Records(x, y, inputs=population.example.inputs)
    for client in range(min(population.size, 1000)):
        records = population.client(client).train
        if records.count:
            x = torch.zeros((2, *records.x.shape[1:]), dtype=records.x.dtype, device=device)
            y = torch.zeros((2, *records.y.shape[1:]), dtype=records.y.dtype, device=device)
            return Records(x, y, inputs=records.inputs)
    raise DataError(f"none of the first clients of {population.name!r} has a record. Give clients with data.")
