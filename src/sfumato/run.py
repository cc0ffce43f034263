"""From a request to a run folder, and from a run folder to a model: what the command line does, for Python too."""

from __future__ import annotations

import json
import math
import os
import platform
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save
from torch import nn

from sfumato.account import accountant
from sfumato.account.event import NonPrivate, Unit
from sfumato.calibration import noise_and_clip
from sfumato.engine.checkpoint import Checkpoint, make_folder, write_atomically
from sfumato.engine.simulate import Progress, Simulation, simulate
from sfumato.errors import BadValue, BudgetExceeded, DataError
from sfumato.guarantee import Guarantee
from sfumato.objective import evaluate
from sfumato.personal_scores import PersonalScores
from sfumato.prepare import Prepared, model_of
from sfumato.request import Request
from sfumato.version import __version__

SCHEMA = 1


@dataclass(frozen=True)
class Line:
    """One line of metrics.jsonl: released values only."""

    round: int
    epsilon: float | None
    accuracy: float | None
    metrics: dict[str, float | None]

    def to_json(self) -> str:
        """As it is written."""
        return json.dumps(asdict(self))


class Run:
    """A run in its folder. Iterating trains, and yields one line per round; every file is whole at any moment."""

    def __init__(self, prepared: Prepared, folder: Path, *, resume: bool = False) -> None:
        request = prepared.request
        self.prepared, self.folder = prepared, folder
        self.delta = request.chosen_delta
        with nullcontext() if resume else _new(folder):
            if not resume:  # before all else, so that a run can be resumed wherever it is killed
                write_atomically(folder / "run.toml", request.to_toml())
            self.simulation: Simulation = simulate(
                prepared.round,
                prepared.population,
                prepared.module,
                prepared.objective,
                rounds=request.rounds,
                seed=request.seed,
                folder=folder,
                resume=resume,
                budget=None if request.epsilon is None else (request.epsilon, self.delta),
                device=request.device,
                diagnostics=request.diagnostics,
                description=request.to_toml(),
                shared_ledger=request.ledger or None,
                force_ledger=request.force_ledger,
            )
        self.lines = _read_lines(folder, self.simulation.start.round) if resume else []
        self._epsilons = self._epsilon_table()
        self._scores = PersonalScores(prepared.population, prepared.objective)
        self.seconds = 0.0  # of this process: how long each round took tells of its cohort, and is not written down
        write_atomically(folder / "run.toml", request.to_toml(self.resolved()))

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
        with (self.folder / "metrics.jsonl").open("a") as file:
            file.write(line.to_json() + "\n")
            file.flush()
            os.fsync(file.fileno())
        if progress.diagnostics is not None:
            _write_diagnostics(self.folder, progress, self._personal(progress) if due else {})
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
        """Let go of the ledgers; what they hold is on disk."""
        self.simulation.spending.close()

    def summary(self, rounds: int, stopped: str, metrics: dict[str, float | None]) -> dict[str, Any]:
        """run.json."""
        request, proof = self.prepared.request, self.simulation.derivation.primary
        noise_multiplier, clip = noise_and_clip(self.prepared.round)
        world, server = self.guarantee(), self.guarantee(server=True)
        return {
            "schema": SCHEMA,
            "recipe": request.recipe,
            "data": self.prepared.population.name,
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
                "dp-accounting": version("dp-accounting"),
                "python": platform.python_version(),
            },
            "threads": torch.get_num_threads(),
        }


@contextmanager
def _new(folder: Path) -> Iterator[None]:
    """A new run gets a folder of its own, and a run that is refused leaves none behind."""
    make_folder(folder.parent)
    try:
        folder.mkdir()
        made = True
    except FileExistsError:
        made = False
    if not made and (not folder.is_dir() or any(folder.iterdir())):
        raise BadValue(f"{folder} is there already, and is never overwritten. Give another folder, or resume the run.")
    try:
        yield
    except Exception:  # after Ctrl-C it stays, and the run can be resumed
        if made:  # by nobody else
            shutil.rmtree(folder)
        else:
            (folder / "run.toml").unlink(missing_ok=True)
        raise


def _read_lines(folder: Path, round: int) -> list[Line]:
    """The whole lines of metrics.jsonl up to the checkpoint's round; a torn last line is dropped from the file."""
    path = folder / "metrics.jsonl"
    if not path.exists():
        return []
    lines = []
    for text in path.read_text().splitlines():
        try:
            line = Line(**json.loads(text))
        except (json.JSONDecodeError, TypeError):
            break
        if line.round > round:
            break
        lines.append(line)
    write_atomically(path, "".join(line.to_json() + "\n" for line in lines))
    return lines


def _write_diagnostics(folder: Path, progress: Progress, personal: dict[str, Any]) -> None:
    private = folder / "diagnostics-not-private"
    private.mkdir(mode=0o700, exist_ok=True)
    with (private / "rounds.jsonl").open("a") as file:
        file.write(json.dumps({"round": progress.round, **(progress.diagnostics or {}), **personal}) + "\n")


def load(folder: str | Path) -> nn.Module:
    """The model of a run, as an ordinary module; `module.guarantee` is what was proven, `module.run` is run.json."""
    folder = Path(folder)
    summary = read_summary(folder)
    module = model_of(Request.from_toml(folder / "run.toml"), tuple(summary["input_shape"]), summary["outputs"])
    try:
        module.load_state_dict(load_file(folder / "params.safetensors"))
    except Exception as error:
        raise DataError(f"{folder}/params.safetensors does not fit the model of the run: {error}") from error
    module.guarantee = summary["guarantee"]
    module.run = summary  # type: ignore[assignment]
    return module.eval()


def read_summary(folder: Path) -> dict[str, Any]:
    """run.json of a finished run."""
    path = folder / "run.json"
    if not path.exists():
        hint = f" It was not finished: sfumato train --resume {folder}" if (folder / "run.toml").exists() else ""
        raise DataError(f"{folder} holds no finished run.{hint}")
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except ValueError:
        raise DataError(f"{path} is not JSON, so the run cannot be read. Restore the file, or train again.") from None
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        raise DataError(f"{path} was written by another version of Sfumato ; its schema is not {SCHEMA}.")
    return found
