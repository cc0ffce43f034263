"""One kind of run, from the command line and from Python: its loop, and the folder that it leaves."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import nn

from sfumato.account.event import NonPrivate, Unit
from sfumato.calibration import noise_and_clip
from sfumato.derive import Derivation
from sfumato.engine.checkpoint import LEDGER, Checkpoint, remove_private, write_atomically
from sfumato.engine.plan import Plan
from sfumato.engine.simulate import job_of, open_own, simulate
from sfumato.engine.simulation import Progress, Simulation
from sfumato.engine.workers import Factory, Here
from sfumato.errors import BadValue, BudgetExceeded, LedgerError
from sfumato.guarantee import Guarantee, check_delta
from sfumato.ledger.basis import Counted
from sfumato.ledger.file import is_empty
from sfumato.ledger.ledger import Budget, Ledger
from sfumato.ledger.spending import planned_counts
from sfumato.objective import evaluate
from sfumato.run.basis import FILE, STEP, Basis
from sfumato.run.clients import clients_of
from sfumato.run.folder import (
    Line,
    even_times,
    last_round,
    locked_folder,
    read_lines,
    released_files,
    write_diagnostics,
)
from sfumato.run.lock import Lock
from sfumato.run.personal_scores import PersonalScores
from sfumato.run.prepare import Prepared, model_of
from sfumato.run.releases import remove_releases, write_release
from sfumato.run.request import ModelRequest
from sfumato.run.request import resolved as read_resolved
from sfumato.run.summary import basis_noise, planned_round, resolved, summary
from sfumato.several_inputs import own_module
from sfumato.voting.told import told


class Run:
    """A run that is ready to start. Iterating trains, and yields what is known after each round.

    With a folder, each round's line is on disk before it is shown, and the end writes parameters, run.json and the page;
    every file is whole at any moment. Without one, nothing is written. A run that is not `repeatable` has fresh noise whatever
    the request's seed, which then decides the data, their split and the first model only.
    """

    def __init__(
        self,
        prepared: Prepared,
        folder: Path | None,
        *,
        resume: bool = False,
        plan: Plan | None = None,
        page: Callable[[Path], object] | None = None,
        cohort: Factory = Here,
        repeatable: bool = True,
    ) -> None:
        self.prepared, self.folder, self._resumed = prepared, folder, resume
        self._seed = prepared.request.seed if repeatable else None
        self.lines: list[Line] = []
        self.seconds = 0.0  # of this process: how long each round took tells of its cohort, and is not written down
        self._plan, self._page, self._cohort = plan, page, cohort
        self._lock = None if folder is None else locked_folder(folder, resume)
        self._ledger: Ledger | None = None  # of a run that has begun with a basis
        try:
            if folder is None:
                self.simulation = self._simulation(resume)
            else:
                self._begin(folder, resume)
        except BaseException as error:
            paid = self._ledger is not None and self._ledger.count > 0
            if not (resume or paid) and isinstance(error, Exception) and self._lock is not None:
                self._lock.forget_run()  # refused; after Ctrl-C it stays, and can be resumed
            self.close()
            raise

    def _begin(self, folder: Path, resume: bool) -> None:
        request = self.prepared.request
        check_delta(self.delta)
        if not resume:  # before all else, so that a run can be resumed wherever it is killed
            noise, _ = noise_and_clip(self.prepared.round)
            first = {"noise_multiplier": noise, "round": planned_round(self.prepared), **basis_noise(self.prepared)}
            write_atomically(folder / "run.toml", request.to_toml(first))
        elif "population" in read_resolved(folder / "run.toml") and is_empty(folder / LEDGER):  # it had one by then
            raise LedgerError(
                f"{folder / LEDGER} is gone, so what was spent is not known. Restore it, or start a new run in another folder."
            )
        self.simulation = self._simulation(resume)
        done, shown = self.simulation.start.round, last_round(folder)
        if shown > self.ledger.rounds:
            raise LedgerError(
                f"{self.ledger.path} holds {self.ledger.rounds} rounds, and {shown} were shown, so what was spent is not known. "
                "Restore the ledger, or start a new run in another folder."
            )
        if done > request.rounds:
            raise BadValue(f"rounds={request.rounds}: {folder} has {done} rounds behind it. Ask for more than these.")
        if done < request.rounds:  # what an earlier end wrote is about to be untrue
            for name in ("run.json", "report.html", "params.safetensors"):
                (folder / name).unlink(missing_ok=True)
        self.lines = read_lines(folder, done) if resume else []
        remove_releases(folder, after=done)
        self._scores = PersonalScores(self.prepared.population, self.prepared.objective)
        write_atomically(folder / "run.toml", request.to_toml(resolved(self.prepared, self.simulation)))

    def _simulation(self, resume: bool) -> Simulation:
        basis = self.prepared.basis
        if basis is not None and basis.learnt is None:
            self._learn(basis, resume)
        prepared, request = self.prepared, self.prepared.request
        simulation = simulate(
            prepared.round,
            prepared.population,
            prepared.module,
            prepared.objective,
            rounds=request.rounds,
            resume=resume,
            own_budgets=self._own_budgets,
            plan=self._plan,
            device=request.device,
            diagnostics=request.diagnostics,
            cohort=self._cohort,
            checkpoint_every=request.checkpoint_every,
            ledger=self._ledger,
            most_rounds=request.most_rounds,
            restarts=request.restarts,
            **self._same,
        )
        if self.prepared.basis is not None and (problem := _problem(self.prepared.basis, simulation)):
            simulation.cohort.close()
            raise LedgerError(problem)
        return simulation

    @property
    def _same(self) -> dict[str, Any]:
        """What training has in common with the step before it."""
        request = self.prepared.request
        return {
            "seed": self._seed,
            "folder": self.folder,
            "budget": None if request.epsilon is None else (request.epsilon, self.delta),
            "description": request.description,
            "shared_ledger": request.ledger or None,
            "force_ledger": request.force_ledger,
            "adaptive": request.adaptive,
            "order": self.prepared.order,
            "delta": self.delta,
        }

    def _learn(self, basis: Basis, resume: bool) -> None:
        """Pay for the basis, unless that was done before, and keep it; all that could be refused of training is, before."""
        prepared, request = self.prepared, self.prepared.request
        given = prepared.population, prepared.module, prepared.objective, request.device
        _, derivation = job_of(prepared.round, *given)

        def trained(rounds: int) -> Counted:
            return planned_counts(derivation, rounds, request.restarts, request.checkpoint_every)

        most = max(request.rounds, request.most_rounds)
        population = clients_of(prepared.request, basis.source)
        module = model_of(ModelRequest("logistic"), basis.shape, prepared.outputs)  # which nobody trains
        self._ledger = open_own(self.folder, population)
        step = simulate(
            basis.round, population, module, prepared.objective, rounds=1, resume=resume, step=STEP,
            ledger=self._ledger, trained=trained, most_rounds=most, **self._same,
        )  # fmt: skip
        # if it was drawn before, it is kept where the step was left
        state = next((progress.state for progress in step), step.start.state)
        basis = basis.learn(state["release"])
        if self.folder is not None and basis.learnt is not None:
            write_atomically(self.folder / FILE, basis.learnt.to_bytes())
        self.prepared = prepared.with_basis(basis)

    @property
    def _own_budgets(self) -> tuple[Budget, ...]:
        budgets, round = self.prepared.budgets, self.prepared.round
        return () if budgets is None else budgets.lines(round.unit, self.prepared.population.size)

    def __repr__(self) -> str:
        where = "in memory" if self.folder is None else f"in {self.folder}"
        done = self.lines[-1].round if self.lines else self.start.round
        return f"Run({self.prepared.population!r}, round {done} of {self.prepared.request.rounds}, {where})"

    @property
    def delta(self) -> float:
        return self.prepared.request.chosen_delta

    @property
    def ledger(self) -> Ledger:
        return self.simulation.ledger

    @property
    def derivation(self) -> Derivation:
        return self.simulation.derivation

    @property
    def start(self) -> Checkpoint:
        return self.simulation.start

    def guarantee(
        self, delta: float | None = None, unit: Unit | None = None, server: bool = False, client: int | None = None
    ) -> Guarantee:
        """What was spent, as a sentence; on one client, if it is named; at the run's delta, if no other is given."""
        return self.simulation.guarantee(self.delta if delta is None else delta, unit, server, client)

    def epsilon(self, progress: Progress) -> float | None:
        """What the ledger says; priced when it is shown."""
        return None if isinstance(self.derivation.primary.world, NonPrivate) else progress.epsilon(self.delta)

    def __iter__(self) -> Iterator[Progress]:
        try:
            yield from self.simulation if self.folder is None else self._train(self.folder)
        finally:
            self._store()

    def _train(self, folder: Path) -> Iterator[Progress]:
        start, rounds = self.start, self.prepared.request.rounds
        if start.round > (self.lines[-1].round if self.lines else 0):  # killed after the checkpoint, before the line
            shown = self.simulation.reported(start)
            now = Progress(
                round=start.round,
                rounds=rounds,
                params=shown,
                seconds=0.0,
                derivation=self.derivation,
                run=self.simulation,
                diagnostics=None,
                memory=start.memory,
            )
            self._write(now, folder)
            yield now
        try:
            for progress in self.simulation:
                self._write(progress, folder)
                yield progress
        except BudgetExceeded as error:
            self.finish(str(error))
            raise
        self.finish(self.simulation.stopped)

    def _write(self, progress: Progress, folder: Path) -> None:
        """A line of metrics.jsonl; of the diagnostics too, if they were asked for."""
        request = self.prepared.request
        due = progress.round % request.evaluate_every == 0 or progress.round == request.rounds
        if request.keep_releases:  # before its line, so that every line has its release
            write_release(folder, progress.round, progress.params)
        metrics = self._measured(progress.module) if due else {}
        epsilon = self.epsilon(progress) if due else None
        line = Line(
            round=progress.round,
            epsilon=epsilon,
            accuracy=metrics.get(self.prepared.objective.primary),
            metrics=metrics,
        )
        self.seconds += progress.seconds
        self.lines.append(line)
        line.append(folder, wait=due)
        if progress.diagnostics is not None:
            facts = {"round": progress.round, **progress.diagnostics}
            if due and (scores := self._scores(progress)).values:
                facts["personal"] = scores.summary()
            write_diagnostics(folder, facts)

    def _measured(self, module: nn.Module) -> dict[str, float | None]:
        """Metrics on the public test data; None where a number is not finite, which JSON cannot say."""
        if self.prepared.test is None:
            return {}
        found = evaluate(module, self.prepared.test.records, self.prepared.objective)
        return {name: value if math.isfinite(value) else None for name, value in found.items()}

    def finish(self, stopped: str = "") -> None:
        """Write parameters, run.json and the page of what has been trained so far; `stopped` says why there is no more."""
        if self.folder is None:
            raise BadValue("this run has no folder, so there is nothing to write. Give simulate a folder.")
        if self._lock is not None and self._lock.is_released:
            # the loop was left, so somebody may have gone on with the run
            self._lock = Lock(self.folder)
            try:
                self._check_last()
                self._write_end(self.folder, stopped)
            finally:
                self._lock.release()
        else:
            self._write_end(self.folder, stopped)

    def _check_last(self) -> None:
        """Refuse to write the end of a run that was resumed elsewhere meanwhile."""
        assert self.folder is not None, "it has one"
        stored = Checkpoint.read(self.folder)
        if stored is not None and stored.round > self.simulation.now.round:
            raise BadValue(
                f"{self.folder} has {stored.round} rounds behind it, and this run has {self.simulation.now.round}: it was resumed "
                "elsewhere. Finish it there."
            )

    def _write_end(self, folder: Path, stopped: str) -> None:
        self.simulation.store()
        last = self.simulation.now
        module = copy.deepcopy(self.prepared.module)
        self.simulation.job.slots.layout.write(self.simulation.reported(last), module)
        state = {name: value.detach().clone().contiguous() for name, value in own_module(module).state_dict().items()}
        write_atomically(folder / "params.safetensors", save(state))
        evaluated = bool(self.lines) and bool(self.lines[-1].metrics)
        metrics = self.lines[-1].metrics if evaluated else self._measured(module)
        votes = told(self.prepared.round, last.state, module, self.derivation.primary.stddev)
        found = summary(self.prepared, self.simulation, last.round, stopped, metrics, votes)
        write_atomically(folder / "run.json", json.dumps(found, indent=2) + "\n")
        if not self.prepared.request.keep_personal:
            remove_private(folder)
        if self._page is not None:
            self._page(folder)
        even_times(released_files(folder))

    def forget(self) -> None:
        """Close it, and remove its folder if it is new and nothing was reserved: then the run can be asked for again."""
        new = not self._resumed and self.ledger.count == 0
        self.close()
        if new and self._lock is not None:
            self._lock.forget_run()

    def close(self) -> None:
        """Let go of what computes, and of the folder."""
        if hasattr(self, "simulation"):
            try:
                self._store()
            finally:
                self.simulation.cohort.close()
        self._release()

    def _store(self) -> None:
        """Write what waits to be written, and let go of the folder, whether or not it could be."""
        try:
            self.simulation.store()
        finally:
            self._release()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()


def _problem(basis: Basis, simulation: Simulation) -> str:
    """Why the ledger does not hold what the basis is said to cost; nothing, if it does."""
    path = simulation.ledger.path
    steps = [entry for entry in simulation.ledger.entries() if entry.round < 0]
    if not steps:
        return (
            f"{path} does not hold what the basis of this run has cost, so what was spent is not known. Restore the ledger, or "
            "start a new run in another folder."
        )
    held = [entry.costs[basis.round.unit].world for entry in steps]
    if other := next((event for event in held if event != basis.event), None):
        return (
            f"basis_noise_multiplier={basis.noise}: {path} holds a basis with {other.words()}, which is what was drawn. Put the "
            "number in run.toml back to what it was."
        )
    return ""
