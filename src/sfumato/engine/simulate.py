"""Run a Round over a Population on this machine: a generator, so that the loop belongs to the user."""

from __future__ import annotations

import copy
import os
import re
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from sfumato.claim import text
from sfumato.data.population import Population, Records, require_population
from sfumato.engine.checkpoint import Checkpoint, make_folder, root_key
from sfumato.engine.clients import Job
from sfumato.engine.identity import attempt_of, digest, inputs_of, mac, state_bytes
from sfumato.engine.plan import Plan, check_memory, choose, made_up
from sfumato.engine.simulation import Simulation
from sfumato.engine.slots import Slots
from sfumato.errors import BadValue, DataError, LedgerError
from sfumato.guarantee import check_delta
from sfumato.key import Key
from sfumato.ledger.ledger import Ledger
from sfumato.ledger.spending import Spending, open_shared
from sfumato.models import check_module
from sfumato.objective import Objective, check_loss
from sfumato.round import Round
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
    plan: Plan | None = None,
    device: str = "cpu",
    diagnostics: bool = False,
    description: str = "",
    shared_ledger: str | Path | None = None,
    force_ledger: bool = False,
    executor: Executor | None = None,
) -> Simulation:
    """Check everything, then give back the run: `for progress in simulate(...)`.

    The randomness comes from a fresh secret of the system, kept in `folder` if there is one; `seed` replaces it, for
    simulations only. `budget` is (epsilon, delta): the run stops before the round that would pass it. `shared_ledger` adds
    the run to those before it on the same population; it takes seeded and non-private runs only if forced. `executor` computes
    the clients' blocks in place of threads of this process: any of `concurrent.futures`, or one like them.
    """
    population = require_population(population, "simulate")
    if isinstance(rounds, bool) or not isinstance(rounds, int) or rounds < 1:
        raise BadValue(f"rounds={rounds}: at least one round, as a whole number.")
    if budget is not None:
        check_delta(budget[1])
    check_device(device)
    layout = Layout.of(module)
    check_memory(layout)
    module = copy.deepcopy(module).to(device)
    example = _example(population, device)
    check_module(module, made_up(example, 4, 1).x)
    _check_loss(module, objective, example)
    round.local.check(module, objective.loss, made_up(example, 4, 0))
    derivation = round.derive(population=population.size, dimension=round.local.message_length(layout))
    job = Job(Slots(round, derivation.primary, layout), module.train(), objective, example)
    job.slots.check()
    params = layout.row(module)
    described = digest(
        description,
        text(round),
        population.name,
        population.size,
        layout,
        state_bytes(module),
        objective.name,
        getattr(objective.loss, "__qualname__", repr(objective.loss)),
        device,
        __version__,
        "from a seed" if seed is not None else "from a secret",
    )
    path = None if folder is None else Path(folder)
    found = None if path is None else Checkpoint.read(path)
    if path is not None:
        make_folder(path)
        if not resume and any(
            (path / name).exists() for name in ("checkpoint.safetensors", "ledger.sqlite", "secret.key")
        ):
            raise BadValue(f"{path} already holds a run. Give another folder, or resume=True to go on with it.")
    if found is not None and found.description != described:
        raise BadValue(f"{path} holds another run: its round, model or population differs. Give another folder.")
    root = Key.from_seed(seed).child("root") if seed is not None else root_key(path, lambda: os.urandom(32))
    ledger_path = None if shared_ledger is None else Path(shared_ledger)
    shared = open_shared(ledger_path, population.name, derivation, seed is not None, force_ledger)
    ledger = Ledger(None if path is None else path / "ledger.sqlite", population.name)
    if found is None and ledger.count:
        raise LedgerError(
            f"{ledger.path} holds rounds, but their checkpoint is gone. Restore it, or start a run in another folder."
        )
    if found is not None and ledger.count < found.round:
        raise LedgerError(
            f"{ledger.path} holds {ledger.count} rounds and the checkpoint {found.round}, so what was spent is not known. "
            "Restore the ledger, or start a new run in another folder."
        )
    if found is None:
        plan = plan or choose(round, module, layout, objective, example, population.size)
        found = Checkpoint(0, 0, described, plan, params, round.optimizer.start(params), {}, job.slots.start())
        if path is not None:
            found.write(path)
    if shared is not None and shared.count_of(run := root.child("name").digest) < ledger.count:
        raise LedgerError(
            f"{shared.path} does not hold the {ledger.count} rounds that this run ({run[:8]}) has behind it: it began without that "
            "ledger. Start a new run with --ledger."
        )
    inputs = inputs_of(root, population, found.plan)
    attempt = attempt_of(ledger, found, inputs)
    start = replace(found, attempt=attempt, params=found.params.to(device))
    spending = Spending(ledger, shared, derivation, root.child("name").digest, inputs, seed is not None, budget)
    data = mac(root, population.fingerprint) if population.fingerprint else "unknown"
    return Simulation(job, derivation, population, spending, rounds, root, path, start, diagnostics, data, executor)


def check_device(device: str) -> None:
    """Refuse a device that is not there."""
    if device != "cpu" and not re.fullmatch(r"cuda(:\d+)?", device):
        raise BadValue(f"device={device!r}: use cpu or cuda.")
    found = torch.cuda.device_count() if device != "cpu" else 0
    if device != "cpu" and int(device.partition(":")[2] or 0) >= found:
        raise BadValue(f"device={device!r}: torch finds {found or 'no'} CUDA devices on this machine. Use cpu.")


def _example(population: Population, device: str) -> Records:
    """Two records' worth of the shapes and types that the clients have; values are not used."""
    for client in range(min(population.size, 1000)):
        records = population.client(client).train
        if records.count:
            x = torch.zeros((2, *records.x.shape[1:]), dtype=records.x.dtype, device=device)
            return Records(x, torch.zeros((2, *records.y.shape[1:]), dtype=records.y.dtype, device=device))
    raise DataError(f"none of the first clients of {population.name!r} has a record. Give clients with data.")


def _check_loss(module: nn.Module, objective: Objective, example: Records) -> None:
    with torch.no_grad():
        outputs = copy.deepcopy(module).eval()(example.x)
    check_loss(objective, outputs, example.y)
