"""A run from Python: what the command line leaves in a folder, this leaves there too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from sfumato.data.population import Population, PublicData
from sfumato.engine.plan import Plan
from sfumato.engine.workers import Factory, Here
from sfumato.errors import BadValue
from sfumato.guarantee import check_delta
from sfumato.objective import Objective
from sfumato.report import write_page
from sfumato.round import Round
from sfumato.run.from_python import gathered, with_budgets
from sfumato.run.request import Request
from sfumato.run.run import Run


def simulate(
    round: Round,
    population: Population,
    module: nn.Module | str,
    objective: Objective | nn.Module,
    *,
    rounds: int,
    seed: int | None = None,
    folder: str | Path | None = None,
    resume: bool = False,
    test: PublicData | None = None,
    evaluate_every: int = 1,
    budget: tuple[float, float] | None = None,
    budgets: Any = None,
    delta: float | None = None,
    plan: Plan | None = None,
    device: str = "cpu",
    diagnostics: bool = False,
    shared_ledger: str | Path | None = None,
    force_ledger: bool = False,
    cohort: Factory = Here,
    most_rounds: int = 0,
    adaptive: bool = False,
) -> Run:
    """Check everything, then give back the run: `for progress in simulate(...)`.

    The randomness comes from a fresh secret of the system, kept in `folder` if there is one; `seed` replaces it, for
    simulations only. `budget` is (epsilon, delta): the run stops before the round that would pass it. `budgets` are each
    client's own (see `sfumato.budgets`): the round is planned so that all are kept to. `shared_ledger` adds the run to those
    before it on the same clients, and is adaptive unless it holds a plan; it takes seeded and non-private runs only if forced.
    `cohort` makes what computes the clients' blocks in place of threads of this process: `on(executor)` of `concurrent.futures`,
    or a cluster.

    The run is a plan of its rounds, or of `most_rounds` where it may get more: the tight accountants price all of them, also if
    it stops early. An `adaptive` one is priced at one Renyi order, and may be extended by whoever has seen what was released.

    A folder gets what `sfumato train` leaves in one: run.toml, metrics.jsonl, params.safetensors, run.json and report.html.
    Epsilon is written there at `delta`; by default at the budget's, else at 1e-5, or at a tenth of one over the declared number of
    units if that is less. Metrics are those of `test`. A loop that breaks off leaves a run to `resume`, or to end with
    `run.finish()`. `module` may be a name that `--model` takes, and `objective` a loss of torch, which becomes one number per
    record: `nn.CrossEntropyLoss()` is classification. Without a folder nothing is written.
    """
    if budget is not None:
        check_delta(budget[1])
        if delta not in (None, budget[1]):
            raise BadValue(
                f"delta={delta}, but the budget is at delta {budget[1]}. Leave delta out, or give one of them."
            )
    if budgets is not None and budget is not None:
        raise BadValue("budget and budgets exclude each other: with budgets each client has its own. Leave one out.")
    request = Request(
        rounds=rounds,
        epsilon=None if budget is None else budget[0],
        delta=delta if budget is None else budget[1],
        seed=seed,
        evaluate_every=evaluate_every,
        unproven=bool(round.unproven),
        diagnostics=diagnostics,
        device=device,
        ledger="" if shared_ledger is None else str(shared_ledger),
        force_ledger=force_ledger,
        most_rounds=most_rounds,
        adaptive=adaptive,
    )
    prepared = gathered(request, round, population, module, objective, test)
    prepared = with_budgets(prepared, budgets, None if folder is None or not resume else Path(folder))
    return Run(
        prepared, None if folder is None else Path(folder), resume=resume, plan=plan, page=write_page, cohort=cohort
    )
