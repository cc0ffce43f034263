"""Run a Round over a Population on this machine: a generator, so that the loop belongs to the user.

Each round goes in the order of the ledger: reserve, compute, checkpoint, settle, show. With a folder, a run that was
killed at any moment goes on to the same result, within the same budget.
"""

from __future__ import annotations

import copy
import hashlib
import hmac
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from sfumato.account import accountant
from sfumato.account.event import Event, Nothing, Repeated, Unit
from sfumato.account.individual import for_client
from sfumato.account.ledger import Ledger
from sfumato.claim import text
from sfumato.data.population import Population, Records, require_population
from sfumato.derive import Derivation
from sfumato.engine.checkpoint import Checkpoint, make_folder, root_key
from sfumato.engine.cohort import Cohort, Job, Memory, Total
from sfumato.engine.plan import Plan, choose, made_up
from sfumato.engine.slots import Opening, Slots
from sfumato.engine.spending import Spending, open_shared
from sfumato.errors import BadValue, DataError, LedgerError
from sfumato.guarantee import Guarantee, check_delta, guarantee
from sfumato.key import Key
from sfumato.models import check_module
from sfumato.objective import Objective, check_loss
from sfumato.optimizer import reported
from sfumato.round import Round, Unproven
from sfumato.update import Layout
from sfumato.version import __version__

WORLD = "everyone who sees the model"
SERVER = "the server"
_NOT_DURABLE = "the ledger is in memory: what was spent is forgotten when this process ends"
_SEEDED = "simulation: holds for whoever does not know the seed"


@dataclass(frozen=True)
class Progress:
    """What is known after a round: released values only, but for `diagnostics`, which are not private.

    `params` are those that the optimizer reports: the average, if it averages its iterates.
    """

    round: int
    rounds: int
    params: torch.Tensor
    seconds: float
    derivation: Derivation
    run: Simulation
    diagnostics: dict[str, object] | None = None
    memory: Memory = field(default_factory=dict, repr=False)

    @property
    def module(self) -> nn.Module:
        """An ordinary module with the parameters of this round."""
        return self._with(self.params)

    def personal_module(self, client: int) -> nn.Module:
        """A client's own model, which never leaves it; the global one if it keeps none."""
        return self._with(self.memory.get(client, self.params))

    def _with(self, row: torch.Tensor) -> nn.Module:
        module = copy.deepcopy(self.run.job.module).cpu()
        self.run.job.slots.layout.write(row.cpu(), module)
        return module

    def epsilon(self, delta: float) -> float | None:
        """What has been spent against everyone who sees the model; None where nothing is proven."""
        return self.run.guarantee(delta).epsilon

    def guarantee(
        self, delta: float, unit: Unit | None = None, server: bool = False, client: int | None = None
    ) -> Guarantee:
        """What has been spent, as a sentence; on the records of one client, if one is named."""
        return self.run.guarantee(delta, unit, server, client)


@dataclass(frozen=True)
class Simulation:
    """A run that is ready to start: everything that could be refused has been checked."""

    job: Job
    derivation: Derivation
    population: Population
    spending: Spending
    rounds: int
    root: Key
    folder: Path | None
    start: Checkpoint
    diagnostics: bool
    data: str  # names the data in the key: other data, other noise
    begun: list[bool] = field(default_factory=list, repr=False, compare=False)

    @property
    def ledger(self) -> Ledger:
        """The run's own ledger."""
        return self.spending.own

    def guarantee(
        self, delta: float, unit: Unit | None = None, server: bool = False, client: int | None = None
    ) -> Guarantee:
        """What the ledger says was spent on `unit`, against everyone who sees the model or against the server.

        Without `client` it holds for all of them; with one, for that client alone, where clients have settings of their own.
        """
        unit = unit or self.derivation.primary.unit
        if client is not None and not 0 <= client < self.population.size:
            raise BadValue(f"client={client}: the population has clients 0 to {self.population.size - 1}.")
        proof = self.derivation.units.get(unit)
        view = SERVER if server else WORLD
        if (claim := self.unproven(delta)) is not None:
            said = (
                f"; {claim['paper']} claims epsilon {claim['claimed_epsilon']:.4g}" if claim["claimed_epsilon"] else ""
            )
            why = f"its privacy could not be proven{said}; what fails: {claim['step'].removeprefix('not proven: ')}"
            return Guarantee(None, delta, unit, self.derivation.primary.relation, view, "", "", (), why)
        if proof is None:
            refusal = self.derivation.refused.get(unit)
            why = refusal.reason if refusal else getattr(self.derivation.primary.world, "reason", "")
            return Guarantee(None, delta, unit, self.derivation.primary.relation, view, "", "", (), why)
        spent = self.ledger.spent(unit)
        if spent is None and self.ledger.count:
            why = f"the ledger holds rounds for which nothing is proven for one {unit}"
            return Guarantee(None, delta, unit, proof.relation, view, "", "", (), why)
        event: Event | None = Nothing() if spent is None else spent.server if server else spent.world
        relation = proof.relation if spent is None else spent.relation
        seeded = self.spending.seeded or self.ledger.seeded
        extra = (*((_SEEDED,) if seeded else ()), *(() if self.ledger.durable else (_NOT_DURABLE,)))
        found = guarantee(
            event if event is None or client is None else for_client(event, client),
            delta,
            unit=unit,
            relation=relation,
            view=view,
            assumptions=(*proof.assumptions, *extra),
        )
        return found if client is None else replace(found, client=client)

    def unproven(self, delta: float) -> dict[str, Any] | None:
        """What a paper claims for a round that could not be proven, and the step that fails; None for any other round."""
        round = self.job.slots.round
        if not round.unproven:
            return None
        claim = round.unproven if isinstance(round.unproven, Unproven) else Unproven()
        claimed = None
        if claim.claimed is not None and self.ledger.count:
            claimed = accountant("auto").epsilon(Repeated(claim.claimed, self.ledger.count), delta)
        failed = (step.states for step in self.derivation.primary.steps if step.states.startswith("not proven"))
        return {"claimed_epsilon": claimed, "paper": claim.paper, "step": claim.step or next(failed, "")}

    def __iter__(self) -> Iterator[Progress]:
        if self.begun:
            raise BadValue(
                "this run has begun already, and its noise is drawn once only. Call simulate again for another run."
            )
        self.begun.append(True)
        cohort = Cohort(self.job, self.population, self.start.plan, self.diagnostics)
        try:
            yield from self._rounds(cohort)
        finally:
            cohort.close()

    def _rounds(self, cohort: Cohort) -> Iterator[Progress]:
        now = self.start
        affordable = self.spending.affords(self.rounds - now.round)
        for number in range(now.round, self.rounds):
            started = time.perf_counter()
            key = self._key(now.attempt)
            name = key.child("round", number=number).digest
            if not affordable:
                self.spending.check(number, name)
            reservations = self.spending.reserve(number, now.attempt, name)
            ids = self.job.slots.round.sample.draw(self.population.size, key.child("cohort", round=number))
            opening = cohort.open(now.params, number, key, now.kept)
            total = cohort.total(now.params, ids.tolist(), opening, now.memory)
            now = self._serve(now, total, opening)
            if self.folder is not None:
                now.write(self.folder)
            self.spending.settle(reservations)
            seconds = time.perf_counter() - started
            notes = {"cohort": len(ids), "norms": total.norms} if self.diagnostics else None
            shown = self.reported(now)
            yield Progress(now.round, self.rounds, shown, seconds, self.derivation, self, notes, now.memory)

    def reported(self, at: Checkpoint) -> torch.Tensor:
        """The parameters to show and to keep, where training goes on from the checkpoint's own."""
        return reported(self.job.slots.round.optimizer, at.params, at.state)

    def _key(self, attempt: int) -> Key:
        return self.root.child("run", description=self.start.description, attempt=attempt, data=self.data)

    def _serve(self, now: Checkpoint, total: Total, opening: Opening) -> Checkpoint:
        """The server's half: divide, noise, process, step."""
        value, kept = self.job.slots.release(total.rows, total.weight, opening)
        number = opening.number
        params, state = self.job.slots.round.optimizer.step(now.params, now.state, value)
        if not bool(params.isfinite().all()):
            raise DataError(
                f"round {number + 1}: the parameters are no longer finite. Lower the learning rates; without a Clip, one client's "
                "broken row is enough."
            )
        personal = self.job.slots.round.personal
        own = {client: personal.keep(now.params + row, params, client) for client, row in total.trained.items()}
        return replace(now, round=number + 1, params=params, state=state, memory={**now.memory, **own}, kept=kept)


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
) -> Simulation:
    """Check everything, then give back the run: `for progress in simulate(...)`.

    The randomness comes from a fresh secret of the system, kept in `folder` if there is one; `seed` replaces it, for
    simulations only. `budget` is (epsilon, delta): the run stops before the round that would pass it. `shared_ledger` adds
    the run to those before it on the same population; it takes seeded and non-private runs only if forced.
    """
    population = require_population(population, "simulate")
    if isinstance(rounds, bool) or not isinstance(rounds, int) or rounds < 1:
        raise BadValue(f"rounds={rounds}: at least one round, as a whole number.")
    if budget is not None:
        check_delta(budget[1])
    check_device(device)
    module = copy.deepcopy(module).to(device)
    layout = Layout.of(module)
    example = _example(population, device)
    check_module(module, made_up(example, 4, 1).x)
    _check_loss(module, objective, example)
    if hasattr(round.local, "check"):
        round.local.check(module, objective.loss, made_up(example, 4, 0))
    derivation = round.derive(population=population.size, dimension=layout.dimension)
    job = Job(Slots(round, derivation.primary, layout), module.train(), objective, example)
    params = layout.row(module)
    described = _digest(
        description,
        text(round),
        population.name,
        population.size,
        layout,
        _state_bytes(module),
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
        plan = plan or choose(round, module, layout, objective, example)
        found = Checkpoint(0, 0, described, plan, params, round.optimizer.start(params), {}, job.slots.start())
        if path is not None:
            found.write(path)
    if shared is not None and shared.count_of(run := root.child("name").digest) < ledger.count:
        raise LedgerError(
            f"{shared.path} does not hold the {ledger.count} rounds that this run ({run[:8]}) has behind it: it began without that "
            "ledger. Start a new run with --ledger."
        )
    inputs = _inputs(root, population, found.plan)
    attempt = _attempt(ledger, found, inputs)
    start = replace(found, attempt=attempt, params=found.params.to(device))
    spending = Spending(ledger, shared, derivation, root.child("name").digest, inputs, seed is not None, budget)
    data = _mac(root, population.fingerprint) if population.fingerprint else "unknown"
    return Simulation(job, derivation, population, spending, rounds, root, path, start, diagnostics, data)


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


def _digest(*facts: object) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for fact in facts:
        digest.update(fact if isinstance(fact, bytes) else repr(fact).encode())
        digest.update(b"\0")
    return digest.hexdigest()


def _inputs(root: Key, population: Population, plan: Plan) -> str:
    """A name for everything that a replay must have in common, keyed so that it does not reveal the data."""
    fingerprint = population.fingerprint or os.urandom(16).hex()  # unknown data may have changed
    return _mac(root, f"{fingerprint} {plan} {torch.__version__} {torch.get_num_threads()}")


def _mac(root: Key, facts: str) -> str:
    return hmac.new(root.child("inputs").stream(32), facts.encode(), hashlib.sha256).hexdigest()


def _state_bytes(module: nn.Module) -> bytes:
    """A digest of everything in the module: parameters, frozen ones too, and buffers."""
    digest = hashlib.blake2b(type(module).__qualname__.encode(), digest_size=16)
    for name, value in sorted(module.state_dict().items()):
        digest.update(name.encode())
        digest.update(
            value.detach().cpu().contiguous().numpy().tobytes()
            if isinstance(value, torch.Tensor)
            else repr(value).encode()
        )
    return digest.digest()


def _attempt(ledger: Ledger, found: Checkpoint, inputs: str) -> int:
    """The attempt to go on with: a new one if noise was drawn after the checkpoint for inputs that may have been others."""
    later = ledger.after(found.round)
    if any(entry_inputs != inputs for _, entry_inputs in later):
        return max(attempt for attempt, _ in later) + 1
    return max([found.attempt, *(attempt for attempt, _ in later)])
