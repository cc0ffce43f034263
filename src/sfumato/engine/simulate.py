"""Run a Round over a Population on this machine: a generator, so that the loop belongs to the user."""

from __future__ import annotations

import copy
import math
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import nn

from sfumato.claim import text
from sfumato.data.population import Population, Records, require_population
from sfumato.data.records import described
from sfumato.derive import Derivation
from sfumato.digest import digest
from sfumato.engine.checkpoint import FILES, LEDGER, Checkpoint, make_folder
from sfumato.engine.clients import Clients, Job, message_context
from sfumato.engine.cohort import Cohort
from sfumato.engine.keys import Keys, Randomness
from sfumato.engine.plan import Plan, check_memory, choose, made_up
from sfumato.engine.simulation import INTERRUPTED, RESUMED, Learn, Simulation
from sfumato.engine.slots import Slots, gathers
from sfumato.engine.workers import Factory, Here, asked_shards
from sfumato.errors import BadValue, DataError, LedgerError
from sfumato.guarantee import check_delta, default_delta
from sfumato.key import Key
from sfumato.ledger.basis import AdaptiveBasis, Counted, PlanBasis, adaptive_for, together
from sfumato.ledger.ledger import Budget, Ledger
from sfumato.ledger.spending import Spending, affordable, basis_for, open_shared, planned_counts
from sfumato.models import check_loss_keeps_nothing, check_module, training_mode
from sfumato.objective import Objective, check_loss, check_outputs
from sfumato.round import Round
from sfumato.several_inputs import inputs_of
from sfumato.update import Layout
from sfumato.version import __version__

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # of a function or an object, in its repr


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
    checkpoint_every: int = 1,
    step: str = "",
    ledger: Ledger | None = None,
    learn: Learn | None = None,
    adaptive: bool = False,
    order: float | None = None,
    most_rounds: int = 0,
    restarts: int = 0,
    delta: float | None = None,
    trained: Callable[[int], Counted] | None = None,
) -> Simulation:
    """Check everything, then give back the run. `sfumato.simulate` says what the arguments mean, and writes what was found.

    The run is a plan, of `most_rounds` where these are more than `rounds`, and of so many `restarts`. Or it is `adaptive`, as all
    that shares a ledger is by default, at an `order` that suits it at `delta` (by default the budget's). `trained` is what the
    rounds after a step cost, by their number: they are in the same plan. As long as nothing was released, an interrupted run
    states its plan again, with what was interrupted in it.

    `own_budgets` are those of some clients: the run stops before the round that would pass one. `description` is whatever
    else makes a run another one. A resumed run finds its `shared_ledger` by itself. `checkpoint_every` is the number of rounds from
    one checkpoint to the next, and so the most that an interruption makes the run begin, and count, again.

    A `step` is one round ahead of the first: the name of what the run in this folder does before it trains. Its keys and its
    checkpoint are its own; what it costs is in the run's ledgers, and within the run's budget. `ledger` is the run's own,
    if it is open already. `learn` stands in for the optimizer's method of that name, and keeps its own state: it is given
    what was released, so it is post-processing, and a run with it has no folder to resume from.
    """
    population = require_population(population, "simulate")
    assert learn is None or folder is None, "its state is in no checkpoint"
    for name, value in (("rounds", rounds), ("checkpoint_every", checkpoint_every)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise BadValue(f"{name}={value}: at least 1, as a whole number.")
    if budget is not None:
        check_delta(budget[1])
    job, derivation = job_of(round, population, module, objective, device)
    of = name_of(job, population)
    path = None if folder is None else Path(folder)
    found = None if path is None else _stored(path, step, of, resume or ledger is not None, rounds)
    ledger = ledger or open_own(path, population)
    _check_whole(ledger, found, ahead=bool(step))
    run = ledger.fact("run") or os.urandom(16).hex()
    ledger.set_fact("run", run)
    shared = open_shared(
        ledger,
        None if shared_ledger is None else Path(shared_ledger),
        run,
        population,
        derivation,
        seed is not None,
        force_ledger,
    )
    start = found or _first(job, population, of, plan, asked_shards(cohort))
    if found is None and path is not None:
        start.write(path, ledger, run, step=step)
    interrupted = max(0, _held(ledger, bool(step)) - start.round) if seed is None else 0
    if found is not None and found.round < rounds:
        ledger.set_fact(RESUMED, str(found.round))
    if interrupted:
        ledger.set_fact(INTERRUPTED, "yes")
    people = Cohort(Clients(job=job, population=population, plan=start.plan, diagnostics=diagnostics), cohort)
    limits = tuple(own_budgets)
    if budget is not None:
        limits = (Budget(epsilon=budget[0], delta=budget[1], unit=derivation.primary.unit), *own_budgets)

    most = max(rounds, most_rounds)
    again = ledger.happened if interrupted and ledger.is_open_plan else []

    def planned(count: int) -> Counted:
        if trained is not None:
            return together(again, [*planned_counts(derivation, rounds), *trained(count)])
        return together(again, planned_counts(derivation, count, restarts, checkpoint_every))

    def a_plan() -> PlanBasis:
        return PlanBasis(tuple(planned(affordable(planned, most, derivation.primary.unit, limits))))

    def by_order() -> AdaptiveBasis:
        at = delta or (default_delta(None) if budget is None else budget[1])
        return AdaptiveBasis(order) if order else adaptive_for(planned(most), derivation.primary.unit, at)

    if again:
        ledger.restate(a_plan())  # else it is exceeded, and the guarantee says so
    spending = Spending(
        own=ledger,
        shared=shared,
        derivation=derivation,
        run=run,
        seeded=seed is not None,
        limits=limits,
        ahead=bool(step),
        since=start.round if seed is None else 0,
        attempt=interrupted,
        once=learn is not None,
        basis=basis_for(ledger, shared, a_plan, by_order if adaptive or shared is not None else None),
    )
    return Simulation(
        job=job,
        derivation=derivation,
        population=population,
        spending=spending,
        rounds=rounds,
        randomness=Randomness() if seed is None else Randomness.seeded(seed, _seeded_name(job, of, description, step)),
        folder=path,
        step=step,
        start=start.to(device),
        diagnostics=diagnostics,
        cohort=people,
        checkpoint_every=checkpoint_every,
        learn=learn,
    )


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
    job = Job(slots=Slots(round, derivation.primary, layout), module=module, objective=objective, example=example)
    job.slots.check(message_context(job, layout.row(module), Keys.of(Key.from_seed(0)), 0, (0, 1)))
    return job, derivation


def name_of(job: Job, population: Population) -> str:
    """What a resumed run must have in common with what was begun: its written Round, its model's shape, its population.

    The code of a user's functions is no part of it: a loss that was edited is not noticed.
    """
    people = (population.name, population.size, population.identity)
    layout = [(name, list(shape)) for name, shape in zip(job.slots.layout.names, job.slots.layout.shapes, strict=True)]
    return digest(_ADDRESS.sub("", text(job.slots.round)), layout, *people)


def _seeded_name(job: Job, of: str, description: str, step: str) -> str:
    """What decides which numbers a seed gives: runs that differ in anything that can be written draw others."""
    weights = {name: value.cpu() for name, value in job.module.state_dict().items()}
    return digest(of, description, step, job.objective.name, weights, __version__)


def _stored(folder: Path, step: str, of: str, resume: bool, rounds: int) -> Checkpoint | None:
    """Where the run was left, if it was. Its folder is made if it is not there, and holds no other run."""
    make_folder(folder)
    if not resume and any((folder / name).exists() for name in FILES):
        raise BadValue(f"{folder} already holds a run. Give another folder, or resume=True to continue it.")
    found = Checkpoint.read(folder, step)
    if found is not None and found.of and found.of != of:
        raise BadValue(
            f"{folder} holds another run: its written Round, its model's parameters or its population differ. Give another folder."
        )
    if found is not None and found.forgotten and found.round < rounds:
        raise BadValue(
            f"{folder}: what its clients kept for themselves was removed when the run ended, so it cannot be trained further. "
            "Start a run with --keep-personal for that."
        )
    return found


def open_own(folder: Path | None, population: Population) -> Ledger:
    """The ledger of the run in a folder; one in memory, if there is none."""
    return Ledger(None if folder is None else folder / LEDGER, population.name, population.identity)


def _held(ledger: Ledger, ahead: bool) -> int:
    """How many reservations a ledger has of rounds, or of the step ahead of them."""
    return ledger.count - ledger.rounds if ahead else ledger.rounds


def _check_whole(ledger: Ledger, found: Checkpoint | None, ahead: bool) -> None:
    """Refuse to go on where what was spent is not known: on rounds, or on the step ahead of them."""
    held = _held(ledger, ahead)
    if found is None and held:
        raise LedgerError(
            f"{ledger.path} holds rounds, but their checkpoint is gone. Restore it, or start a run in another folder."
        )
    if found is not None and held < found.round:
        raise LedgerError(
            f"{ledger.path} holds {held} rounds and the checkpoint {found.round}, so what was spent is not known. "
            "Restore the ledger, or start a new run in another folder."
        )


def _first(job: Job, population: Population, of: str, plan: Plan | None, shards: int) -> Checkpoint:
    slots, params = job.slots, job.slots.layout.row(job.module)
    plan = plan or choose(slots, job.module, job.objective, job.example, population.size, shards)
    if slots.alone and plan.path != "loop":
        raise BadValue(
            f"{plan}: with exact noise a client's row may not depend on who is computed beside it, not even in its last bit. Use a "
            "plan with path='loop', or leave it out."
        )
    state = slots.round.optimizer.start(params)
    return Checkpoint(round=0, of=of, plan=plan, params=params, state=state, kept=slots.start())


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
