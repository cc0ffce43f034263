"""What a run says of itself: run.json at its end, and [resolved] in its run.toml from the start."""

from __future__ import annotations

import platform
from dataclasses import asdict
from typing import Any

import torch

from sfumato import recipes
from sfumato.account import accountant
from sfumato.account.event import Nothing, Unit
from sfumato.budget.told import told
from sfumato.calibration import noise_and_clip
from sfumato.derive import pieces
from sfumato.engine.simulation import Simulation
from sfumato.pieces.mean import Divide
from sfumato.pieces.protocol import Aggregate
from sfumato.round import Round
from sfumato.run.prepare import Prepared
from sfumato.run.read_round import round_text
from sfumato.run.request import Request
from sfumato.run.schema import SCHEMA
from sfumato.several_inputs import own_module
from sfumato.version import __version__


def resolved(prepared: Prepared, simulation: Simulation) -> dict[str, Any]:
    """What was computed from the request."""
    derivation, proof = simulation.derivation, simulation.derivation.primary
    noise_multiplier, clip = noise_and_clip(prepared.round)
    return {
        "population": derivation.population,
        "dimension": derivation.dimension,
        "delta": prepared.request.chosen_delta,
        "noise_multiplier": noise_multiplier,
        "clip": clip,
        "stddev": proof.stddev,
        "sensitivity": proof.sensitivity,
        "divisor": _divisor(prepared.round),
        "relation": str(proof.relation),
        "engine": f"{simulation.start.plan}",
        "round": planned_round(prepared),
        **basis_noise(prepared),
    }


def basis_noise(prepared: Prepared) -> dict[str, float]:
    """The noise of a basis that is learnt within the run, over its sensitivity; the run keeps it when it goes on."""
    return {} if prepared.basis is None else {"basis_noise_multiplier": prepared.basis.noise}


def _basis(prepared: Prepared, delta: float) -> dict[str, Any] | None:
    """What run.json says of it: what it cost by itself, which is counted in every epsilon of the run, and why."""
    basis = prepared.basis
    if basis is None:
        return None
    return {
        "dimension": basis.word.dimension,
        "whiten": basis.word.whiten,
        "above_noise": None if basis.learnt is None else basis.learnt.above,
        **basis_noise(prepared),
        "stddev": basis.proof.stddev,
        "sensitivity": basis.proof.sensitivity,
        "epsilon_alone": accountant("auto").epsilon(basis.event, delta),
        "derivation": [asdict(step) for step in basis.proof.steps],
    }


def _options(request: Request) -> dict[str, Any]:
    """Every option of the recipe, with the default of this version where none was given."""
    known = recipes.find(request.recipe).options
    return {**{name: option.default for name, option in known.items()}, **request.options}


def _divisor(round: Round) -> float | None:
    """The public constant that the sum is divided by, before the noise or after it."""
    before = round.aggregate.divisor if isinstance(round.aggregate, Aggregate) else None
    return next((piece.over for piece in round.server if isinstance(piece, Divide)), before)


def planned_round(prepared: Prepared) -> str | None:
    """The round, where clients have settings of their own in it: a run that goes on keeps it whole."""
    named = any(piece.named for _, piece in pieces(prepared.round))
    return round_text(prepared.round, prepared.public) if named else None


def summary(
    prepared: Prepared,
    simulation: Simulation,
    rounds: int,
    stopped: str,
    metrics: dict[str, float | None],
    votes: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """run.json after so many rounds."""
    request, proof, delta = prepared.request, simulation.derivation.primary, prepared.request.chosen_delta
    noise_multiplier, clip = noise_and_clip(prepared.round)
    guarantees = {
        unit: {view: simulation.guarantee(delta, unit, view == "server") for view in ("world", "server")}
        for unit in Unit
    }
    lines = []
    if prepared.budgets is not None:
        spent = simulation.ledger.spent(proof.unit)
        event = Nothing() if spent is None else spent.world
        lines = told(prepared.budgets, prepared.round, prepared.population.size, event, simulation.ledger.price)
    world, server = guarantees[proof.unit]["world"], guarantees[proof.unit]["server"]
    return {
        "schema": SCHEMA,
        "recipe": request.recipe if request.pieces is None else None,
        "options": None if request.pieces is not None else _options(request),
        "unnamed": request.unnamed,
        "data": prepared.population.name,
        "public": request.data.public,
        "features": request.data.features,
        "counts": dict(prepared.counts),
        "model": request.model.name or type(own_module(prepared.module)).__name__,
        "input_shape": list(prepared.input_shape),
        "outputs": prepared.outputs,
        "population": prepared.population.size,
        "rounds": rounds,
        "epsilon": world.epsilon,
        "epsilon_server": server.epsilon,
        "delta": delta,
        "accountant": world.accountant,
        "unit": str(proof.unit),
        "relation": str(proof.relation),
        "noise_multiplier": noise_multiplier,
        "stddev": proof.stddev,
        "sensitivity": proof.sensitivity,
        "clip": clip,
        "accuracy": metrics.get(prepared.objective.primary),
        "primary": prepared.objective.primary,
        "metrics": metrics,
        "guarantee": str(world),
        "guarantee_server": str(server),
        "assumptions": list(world.assumptions),
        "guarantees": {
            str(unit): {view: found.to_json() for view, found in views.items()} for unit, views in guarantees.items()
        },
        "ledger_head": simulation.ledger.head,
        "ledger_basis": None if simulation.ledger.basis is None else simulation.ledger.basis.words,
        "nonprivate": prepared.round.nonprivate,
        "unproven": simulation.unproven(delta),
        "stopped": stopped,
        "budgets": lines,
        "votes": votes,
        "derivation": [asdict(step) for step in proof.steps],
        "basis": _basis(prepared, delta),
        "seed": request.seed,
        "engine": asdict(simulation.start.plan),
        "versions": {"sfumato": __version__, "torch": torch.__version__, "python": platform.python_version()},
        "threads": torch.get_num_threads(),
    }
