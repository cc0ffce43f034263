"""From a request to a run in its folder: what the command line does, for Python too."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import nn

from sfumato.account import accountant
from sfumato.account.event import NonPrivate, Unit
from sfumato.calibration import noise_and_clip
from sfumato.engine.checkpoint import Checkpoint, write_atomically
from sfumato.engine.simulate import simulate
from sfumato.engine.simulation import Progress, Simulation
from sfumato.errors import BudgetExceeded
from sfumato.guarantee import Guarantee
from sfumato.objective import evaluate
from sfumato.report.read import SCHEMA
from sfumato.run.folder import Line, locked_folder, read_lines, write_diagnostics
from sfumato.run.personal_scores import PersonalScores
from sfumato.run.prepare import Prepared
from sfumato.version import __version__


class Run:
    """A run in its folder. Iterating trains, and yields one line per round; every file is whole at any moment."""

    def __init__(self, prepared: Prepared, folder: Path, *, resume: bool = False) -> None:
        request = prepared.request
        self.prepared, self.folder = prepared, folder
        self.delta = request.chosen_delta
        self.seconds = 0.0  # of this process: how long each round took tells of its cohort, and is not written down
        self._lock = locked_folder(folder, resume)
        try:
            if not resume:  # before all else, so that a run can be resumed wherever it is killed
                write_atomically(folder / "run.toml", request.to_toml())
            self.simulation = self._simulation(resume)
            if self.simulation.start.round < request.rounds:  # what an earlier end wrote is about to be untrue
                (folder / "run.json").unlink(missing_ok=True)
            self.lines = read_lines(folder, self.simulation.start.round) if resume else []
            self._epsilons = self._epsilon_table()
            self._scores = PersonalScores(prepared.population, prepared.objective)
            write_atomically(folder / "run.toml", request.to_toml(self.resolved()))
        except BaseException as error:
            if not resume and isinstance(error, Exception):  # refused; after Ctrl-C it stays, and can be resumed
                self._lock.forget_run()
            self.close()
            raise

    def _simulation(self, resume: bool) -> Simulation:
        prepared, request = self.prepared, self.prepared.request
        return simulate(
            prepared.round,
            prepared.population,
            prepared.module,
            prepared.objective,
            rounds=request.rounds,
            seed=request.seed,
            folder=self.folder,
            resume=resume,
            budget=None if request.epsilon is None else (request.epsilon, self.delta),
            device=request.device,
            diagnostics=request.diagnostics,
            description=request.to_toml(),
            shared_ledger=request.ledger or None,
            force_ledger=request.force_ledger,
        )

    def resolved(self) -> dict[str, Any]:
        """What was computed from the request."""
        derivation, proof = self.simulation.derivation, self.simulation.derivation.primary
        noise_multiplier, clip = noise_and_clip(self.prepared.round)
        return {
            "population": derivation.population,
            "dimension": derivation.dimension,
            "delta": self.delta,
            "noise_multiplier": noise_multiplier,
            "clip": clip,
            "stddev": proof.stddev,
            "sensitivity": proof.sensitivity,
            "divisor": getattr(self.prepared.round.aggregate, "over", None),
            "relation": str(proof.relation),
            "engine": f"{self.simulation.start.plan}",
        }

    def _epsilon_table(self) -> dict[int, float | None]:
        """Epsilon after each round, if every round goes as planned; in one pass."""
        world = self.simulation.derivation.primary.world
        rounds = self.prepared.request.rounds
        if isinstance(world, NonPrivate):
            return {}
        every = self.prepared.request.evaluate_every
        shown = sorted({*range(every, rounds + 1, every), rounds})
        found = accountant("auto").epsilons(world, shown, self.delta)
        return dict(zip(shown, found, strict=True))

    def epsilon(self, progress: Progress) -> float | None:
        """What the ledger says; the table serves while every round was reserved once."""
        if isinstance(self.simulation.derivation.primary.world, NonPrivate):
            return None
        if self.simulation.ledger.count == progress.round and progress.round in self._epsilons:
            return self._epsilons[progress.round]
        return progress.epsilon(self.delta)

    def __iter__(self) -> Iterator[Line]:
        try:
            yield from self._train()
        finally:
            self._lock.release()

    def _train(self) -> Iterator[Line]:
        stopped = None
        start = self.simulation.start
        if start.round > (self.lines[-1].round if self.lines else 0):  # killed after the checkpoint, before the line
            now = Progress(
                start.round,
                self.prepared.request.rounds,
                self.simulation.reported(start),
                0.0,
                self.simulation.derivation,
                self.simulation,
            )
            yield self._line(now)
        try:
            for progress in self.simulation:
                yield self._line(progress)
        except BudgetExceeded as error:
            stopped = error
        self.finish(str(stopped) if stopped else "")
        if stopped:
            raise stopped

    def _line(self, progress: Progress) -> Line:
        request = self.prepared.request
        due = progress.round % request.evaluate_every == 0 or progress.round == request.rounds
        metrics = self._measured(progress.module) if due else {}
        epsilon = self.epsilon(progress) if due else None
        line = Line(progress.round, epsilon, metrics.get(self.prepared.objective.primary), metrics)
        self.seconds += progress.seconds
        self.lines.append(line)
        line.append(self.folder)
        if progress.diagnostics is not None:
            personal = self._personal(progress) if due else {}
            write_diagnostics(self.folder, {"round": progress.round, **progress.diagnostics, **personal})
        return line

    def _measured(self, module: nn.Module) -> dict[str, float | None]:
        """Metrics on the public test data; None where a number is not finite, which JSON cannot say."""
        if self.prepared.test is None:
            return {}
        found = evaluate(module, self.prepared.test.records, self.prepared.objective)
        return {name: value if math.isfinite(value) else None for name, value in found.items()}

    def _personal(self, progress: Progress) -> dict[str, Any]:
        """How clients' own models do on their own test parts: not private, as those records are not paid for."""
        scores = self._scores(progress)
        return {"personal": scores.summary()} if scores.values else {}

    def guarantee(self, unit: Unit | None = None, server: bool = False, client: int | None = None) -> Guarantee:
        """What was spent, as a sentence; on one client, if it is named."""
        return self.simulation.guarantee(self.delta, unit, server, client)

    def finish(self, stopped: str = "") -> None:
        """Write the parameters and run.json."""
        last = Checkpoint.read(self.folder)
        assert last is not None, "a run in a folder has a checkpoint"
        module = self.prepared.module
        self.simulation.job.slots.layout.write(self.simulation.reported(last), module)
        state = {name: value.detach().clone().contiguous() for name, value in module.state_dict().items()}
        write_atomically(self.folder / "params.safetensors", save(state))
        evaluated = bool(self.lines) and bool(self.lines[-1].metrics)
        metrics = self.lines[-1].metrics if evaluated else self._measured(module)
        summary = self.summary(last.round, stopped, metrics)
        write_atomically(self.folder / "run.json", json.dumps(summary, indent=2) + "\n")

    def close(self) -> None:
        """Let go of the ledgers and of the folder; what they hold is on disk."""
        if hasattr(self, "simulation"):
            self.simulation.spending.close()
        self._lock.release()

    def summary(self, rounds: int, stopped: str, metrics: dict[str, float | None]) -> dict[str, Any]:
        """run.json."""
        request, proof = self.prepared.request, self.simulation.derivation.primary
        noise_multiplier, clip = noise_and_clip(self.prepared.round)
        world, server = self.guarantee(), self.guarantee(server=True)
        return {
            "schema": SCHEMA,
            "recipe": request.recipe,
            "data": self.prepared.population.name,
            "counts": dict(self.prepared.counts),
            "model": request.model.name,
            "input_shape": list(self.prepared.input_shape),
            "outputs": self.prepared.outputs,
            "population": self.prepared.population.size,
            "rounds": rounds,
            "epsilon": world.epsilon,
            "epsilon_server": server.epsilon,
            "delta": self.delta,
            "accountant": world.accountant,
            "unit": str(proof.unit),
            "relation": str(proof.relation),
            "noise_multiplier": noise_multiplier,
            "stddev": proof.stddev,
            "sensitivity": proof.sensitivity,
            "clip": clip,
            "accuracy": metrics.get(self.prepared.objective.primary),
            "metrics": metrics,
            "guarantee": str(world),
            "guarantee_server": str(server),
            "guarantees": {str(unit): str(self.guarantee(unit)) for unit in Unit},
            "unproven": self.simulation.unproven(self.delta),
            "stopped": stopped,
            "derivation": [asdict(step) for step in proof.steps],
            "seconds": self.seconds,
            "seed": request.seed,
            "engine": asdict(self.simulation.start.plan),
            "versions": {
                "sfumato": __version__,
                "torch": torch.__version__,
                "python": platform.python_version(),
            },
            "threads": torch.get_num_threads(),
        }
