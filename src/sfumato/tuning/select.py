"""Settings chosen on clients' own records, for a price: of a secret, random number of runs only the best is shown.

Each run draws its settings at random from a public list, trains, and releases a score that its own noise pays for
(`scoring_round`); what is shown of all runs is the model, the settings and the score of the best (Papernot and Steinke 2022; the
price is that of `Selected`). How many runs there were, the others, and how long each took are never shown, nor written down.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import nn

from sfumato.account.adaptive import FittedOrder
from sfumato.account.calibrate import calibrate_noise
from sfumato.account.event import Event, GaussianEvent, Relation, Unit, compose
from sfumato.account.selected import Selected, runs
from sfumato.calibration import with_noise
from sfumato.claim import text
from sfumato.derive import Derivation, UnitDerivation
from sfumato.digest import digest
from sfumato.engine.checkpoint import write_atomically
from sfumato.engine.plan import Plan
from sfumato.engine.simulate import simulate
from sfumato.engine.simulation import Simulation
from sfumato.errors import BadValue, BudgetExceeded, NotFinite
from sfumato.exact_draws import below
from sfumato.key import Key
from sfumato.ledger.basis import AdaptiveBasis, PlanBasis
from sfumato.ledger.ledger import Budget, Ledger
from sfumato.ledger.spending import basis_for, open_shared, price_before
from sfumato.ledger.spent import Cost, Costs
from sfumato.objective import evaluate
from sfumato.round import Round
from sfumato.run.folder import Line, even_times, locked_folder
from sfumato.run.prepare import Prepared
from sfumato.run.summary import resolved, summary
from sfumato.tuning.candidates import Settings, with_settings
from sfumato.tuning.score import scoring_round
from sfumato.update import Layout

_NOISE = ("options.noise_multiplier", "options.stddev")
_SCORE = 3.0  # the score gets a third of what the whole budget could tell, so that training gets nearly all


@dataclass(frozen=True)
class Law:
    """The law of the number of runs: truncated negative binomial, geometric where `eta` is 1."""

    gamma: float
    eta: float = 1.0


@dataclass(frozen=True)
class Selection:
    """A selection that is ready to start: the candidates with their noise, how they are scored, and what it costs."""

    candidates: tuple[Prepared, ...]
    settings: tuple[Settings, ...]
    scoring: Round
    law: Law
    costs: Mapping[Unit, Cost]
    plan: Plan  # how clients are computed
    order: float | None = None  # at which an adaptive ledger begins with it

    @staticmethod
    def of(prepared: Prepared, tried: Sequence[Settings], law: Law) -> Selection:
        """The candidates, with the noise that keeps the whole selection within the budget of the request."""
        request = prepared.request
        if request.epsilon is None or request.noise_is_given:
            raise BadValue("tune --pay plans for a budget. Give --epsilon, and no --noise-multiplier.")
        if prepared.budgets is not None or prepared.basis is not None or request.secure or request.diagnostics:
            raise BadValue(
                "tune --pay: with --budgets, private-pca, --secure or --diagnostics nothing is built for it. Leave these out, or "
                "use --proxy."
            )
        if any(key in _NOISE for settings in tried for key in settings):
            raise BadValue(
                "tune --pay finds the noise that the whole selection needs. Leave --noise-multiplier, or what varies it, out."
            )
        plain = with_settings(prepared, tried[0]).round
        records = request.units // request.data.clients if plain.unit is Unit.RECORD else 0
        mu = 1.0 / calibrate_noise(GaussianEvent, request.epsilon, request.chosen_delta)
        scoring = scoring_round(plain, _SCORE / mu / (records or 1), records)

        def priced(round: Round) -> Mapping[Unit, Cost]:
            size = {"population": prepared.population.size}
            trained = round.derive(**size, dimension=_dimension(prepared, round))
            return costs(trained, scoring.derive(**size, dimension=1), request.rounds, law)

        def event(noise: float) -> Event:
            return priced(with_noise(plain, noise))[plain.unit].world

        by = price_before(Path(request.ledger) if request.ledger else None, False, request.chosen_delta)
        noise = calibrate_noise(event, request.epsilon, request.chosen_delta, by=by)
        order = None
        if isinstance(
            by, FittedOrder
        ):  # and once more at that order, as any later selection in the same ledger finds it
            by = by.at(event(noise))
            noise, order = calibrate_noise(event, request.epsilon, request.chosen_delta, by=by), by.order
        candidates = tuple(with_settings(prepared, settings, noise=noise) for settings in tried)
        planned = priced(with_noise(plain, noise))
        if any(one.request.rounds != request.rounds or not _alike(priced(one.round), planned) for one in candidates):
            raise BadValue(
                "tune --pay: the settings that are tried must all cost the same, and these do not. Vary learning rates, clip or "
                "momentum, and no rounds, sampling or noise."
            )
        return Selection(candidates, tuple(tried), scoring, law, planned, _plan(candidates, scoring), order)

    def run(self, folder: Path, seed: int | None = None) -> Simulation:
        """Pay, run, and leave the best in the folder as a run; what it gives back has the guarantee.

        The whole price is in the ledger before anything is computed. A process that is killed has paid it and shown nothing; there
        is nothing to go on with, since going on would tell of runs that nobody may see.
        """
        seeded = None if seed is None else Key.from_seed(seed).child("selection", of=self._name())
        name = os.urandom(16).hex() if seeded is None else seeded.child("name").digest
        lock = locked_folder(folder, resume=False)
        try:
            try:
                ledger, shared, reserved = self._reserve(folder, name, seed is not None)
            except Exception:
                lock.forget_run()  # refused, so nothing is paid
                raise
            root = Key.from_system() if seeded is None else seeded
            simulation, module, settings, score = self._best(root, seed is not None)
            simulation.spending = replace(simulation.spending, own=ledger, shared=shared)
            prepared = self.candidates[self.settings.index(settings)]
            _write(folder, prepared, simulation, module, {**self._told(), "settings": dict(settings), "score": score})
            for held, number in reserved:
                held.settle(name, number)
            even_times(folder.iterdir())  # all of them: those of the first would tell how long all runs took
        finally:
            lock.release()
        return simulation

    def _name(self) -> str:
        """What decides which numbers a seed gives: a selection with other settings draws others."""
        one = self.candidates[0]
        rounds = [text(candidate.round) for candidate in self.candidates]
        return digest(rounds, one.request.rounds, one.request.description, text(self.scoring), text(self.law))

    def _told(self) -> dict[str, Any]:
        """What is public of it beforehand."""
        event = next(iter(self.costs.values())).world
        assert isinstance(event, Selected)
        return {"candidates": [dict(settings) for settings in self.settings], "runs_on_average": event.mean}

    def _reserve(self, folder: Path, name: str, seeded: bool) -> tuple[Ledger, Ledger | None, list[tuple[Ledger, int]]]:
        prepared = self.candidates[0]
        request, population = prepared.request, prepared.population
        derivation = prepared.round.derive(population=population.size, dimension=_dimension(prepared, prepared.round))
        own = Ledger(folder / "ledger.sqlite", population.name, population.identity)
        given = Path(request.ledger) if request.ledger else None
        shared = open_shared(own, given, name, population, derivation, seeded, request.force_ledger)
        costs = Costs(self.costs)
        shares = None if self.order is None else partial(AdaptiveBasis, self.order)
        basis = basis_for(own, shared, lambda: PlanBasis(((costs, 1),)), shares)
        if shared is not None:
            basis = shared.begin(basis)  # that of whoever was first
        unit = derivation.primary.unit
        if request.epsilon is not None and unit in self.costs:
            limit = Budget(request.epsilon, request.chosen_delta, unit)
            spent = limit.spent(self.costs[unit].world, by=basis.price)
            if spent > limit.epsilon * (1 + 1e-9):
                raise BudgetExceeded(
                    f"the selection would cost epsilon {spent:.4g}, over its budget of {limit.epsilon:g} at delta {limit.delta:g}: "
                    f"another run began {request.ledger} meanwhile. Nothing was drawn: begin again."
                )
        facts: dict[str, Any] = {"run": name, "round": 0, "costs": costs, "seeded": seeded}
        facts |= {
            "name": name if seeded else None,
            "basis": basis,
        }
        return own, shared, [(held, held.reserve(**facts)) for held in (shared, own) if held is not None]

    def _best(self, root: Key, seeded: bool) -> tuple[Simulation, nn.Module, Settings, float]:
        best: tuple[tuple[float, float], tuple[Simulation, nn.Module, Settings, float]] | None = None
        for number in range(runs(self.law.eta, self.law.gamma, root.child("count"))):
            key = root.child("run", number=number)
            place = int(below(len(self.candidates), 1, key.child("settings"))[0])
            try:
                simulation, module, score = self._once(self.candidates[place], key, seeded)
            except NotFinite:  # the worst of all scores, and nothing else is said of it
                continue
            lot = float(key.child("lot").uniform(1)[0])
            if best is None or (score, lot) > best[0]:
                best = (score, lot), (simulation, module, self.settings[place], score)
        if best is None:
            raise NotFinite("tune --pay: no run came to an end with finite parameters. Try smaller learning rates.")
        return best[1]

    def _once(self, candidate: Prepared, key: Key, seeded: bool) -> tuple[Simulation, nn.Module, float]:
        """One run, in memory, and its noisy score: the mean over clients, or over records where those are hidden."""
        seeds = [int(word) for word in key.child("seeds").integers(2)] if seeded else [None, None]
        simulation = _simulation(candidate, seeds[0], self.plan)
        *_, last = simulation
        module = last.module
        *_, answer = simulate(self.scoring, candidate.population, module, candidate.objective, rounds=1, seed=seeds[1])
        return simulation, module, float(answer.state["release"]) / candidate.population.size


def _simulation(candidate: Prepared, seed: int | None, plan: Plan | None) -> Simulation:
    """One training, in memory."""
    given, request = (candidate.population, candidate.module, candidate.objective), candidate.request
    return simulate(candidate.round, *given, rounds=request.rounds, seed=seed, plan=plan, device=request.device)


def _plan(candidates: Sequence[Prepared], scoring: Round) -> Plan:
    """How to compute clients. Whatever a run would refuse is refused here, on made-up records: before anything is paid."""
    first, *others = candidates
    plan = _simulation(first, 0, None).start.plan
    for other in others:
        _simulation(other, 0, plan)
    simulate(scoring, first.population, first.module, first.objective, rounds=1, seed=0)
    return plan


def costs(trained: Derivation, scored: Derivation, rounds: int, law: Law) -> dict[Unit, Cost]:
    """What a selection costs each unit for which both training and score are proven, against anyone who sees what is shown.

    Against the server nothing: it sees every run.
    """
    found = {}
    for unit in trained.units:
        if unit in scored.units:
            cost = _cost(trained.units[unit], scored.units[unit], rounds, law)
            if cost is not None:
                found[unit] = cost
    if trained.primary.unit not in found or trained.primary.server is not None:
        raise BadValue(
            "tune --pay: whoever adds up the rows sees every run, so it must be trusted, and rows and score must hide the same "
            "unit. Use dp-fedavg or one of its kind with noise at the server, or dp-sgd; or --proxy."
        )
    return found


def _cost(trained: UnitDerivation, scored: UnitDerivation, rounds: int, law: Law) -> Cost | None:
    def event(one: UnitDerivation, other: UnitDerivation) -> Selected:
        return Selected(compose(one.after(rounds), other.after(1)), law.gamma, law.eta)

    swapped = None
    by_swap = trained.swapped or trained, scored.swapped or scored
    if all(proof.relation is Relation.REPLACE for proof in by_swap):
        swapped = Cost(Relation.REPLACE, event(*by_swap), None)
    if trained.relation is not scored.relation or trained.relation is Relation.REPLACE:
        return swapped
    return Cost(trained.relation, event(trained, scored), None, swapped)


def _alike(one: Mapping[Unit, Cost], other: Mapping[Unit, Cost]) -> bool:
    """Whether they are the same but for rounding: noise is a multiple of the clip norm, and is divided by it again."""

    def written(costs: Mapping[Unit, Cost]) -> Any:
        text = json.dumps({unit: cost.to_json() for unit, cost in costs.items()})
        return json.loads(text, parse_float=lambda number: f"{float(number):.12g}")

    return bool(written(one) == written(other))


def _dimension(prepared: Prepared, round: Round) -> int:
    return round.local.message_length(Layout.of(prepared.module))


def _write(folder: Path, prepared: Prepared, simulation: Simulation, module: nn.Module, told: dict[str, Any]) -> None:
    """The files of a run: its settings, its parameters, what it proves; and tune.json, with what may be shown of the choice."""
    metrics: dict[str, float | None] = {}
    if prepared.test is not None:
        metrics = dict(evaluate(module, prepared.test.records, prepared.objective))
    found = summary(prepared, simulation, prepared.request.rounds, "", metrics)
    state = {name: value.detach().clone().contiguous() for name, value in module.state_dict().items()}
    write_atomically(folder / "run.toml", prepared.request.to_toml(resolved(prepared, simulation)))
    write_atomically(folder / "params.safetensors", save(state))
    Line(prepared.request.rounds, found["epsilon"], found["accuracy"], metrics).append(folder)
    write_atomically(folder / "tune.json", json.dumps(told, indent=2) + "\n")
    write_atomically(folder / "run.json", json.dumps(found, indent=2) + "\n")
