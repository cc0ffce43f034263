"""Upper and lower bound of every recipe that we ship: what is proven, and what canaries show of it."""

from __future__ import annotations

from typing import Any

from sfumato.audit.asked import Asked
from sfumato.audit.verdict import NAMES, How, audit
from sfumato.key import Key
from sfumato.recipes import RECIPES
from sfumato.report.studies import Ranges
from sfumato.reproduce.table import Cell, Group, Row, Settings, Table, Work, at
from sfumato.run.prepare import prepare
from sfumato.run.request import DataRequest, Request

EPSILON, DELTA, ROUNDS = 4.0, 1e-5, 5
_ALONE = {"fedavg", "nbafl"}  # nothing is proven of them
_RECORDS: dict[str, Any] = {"sample": "everyone", "steps": 2, "batch": "poisson:0.5", "records": 12}
_OWN: dict[str, dict[str, Any]] = {
    "prifedsync": _RECORDS,
    "udp-fl": _RECORDS,
    "dp-fedsgd": {"sample": "everyone", "batch": "poisson:0.5", "records": 12},
    "perturb-model": {"sample": "everyone"},
    "dp-sgd": {"batch": "poisson:0.5"},
    "pate-fl": {"queries": 20},
    "knn-fl": {"queries": 20},
    "dp-fedavg-shares": {"sample": "everyone", "relation": "replace"},
}
_WHAT = "Worst-case canaries in every recipe of this library"
_NOTES = (
    f"Every recipe at epsilon {EPSILON:g} and delta {DELTA:g} for its own unit, {ROUNDS} rounds or as many as it has, on "
    "scikit-learn's digits with 100 clients. Lower bounds hold with 95 % confidence; a row's bounds hold together.",
    "A lower bound is what this attack shows with so many runs. It is below the truth for want of runs, because a threshold is one "
    "number, and where the worst canary of a proof does not exist in a round.",
)


def bounds(settings: Settings, seed: int) -> dict[str, Any]:
    """The verdict on one recipe."""
    recipe = RECIPES[settings["recipe"]]
    public = 100 if recipe.home == "voting" else None
    data = DataRequest(clients=100, records_per_client=12, public_records=public)
    data = DataRequest(clients=1, records_per_client=1200) if recipe.central else data
    options, rounds = dict(settings["options"]), 1 if recipe.rounds == 1 else ROUNDS
    prepared = prepare(Request(recipe.name, epsilon=EPSILON, delta=DELTA, rounds=rounds, data=data, options=options))
    asked = Asked.of(prepared, rounds)
    key = Key.from_seed(seed).child("audit of recipes", recipe=recipe.name)
    verdict = audit(asked, How(key, DELTA, runs=settings["runs"]))
    return {**verdict.to_json(), "relation": str(asked.proof.relation), "notes": list(verdict.notes)}


BOUNDS = Work("sfumato.reproduce.audit_recipes.bounds", bounds)


def table(scale: str) -> Table:
    """All recipes at a scale."""
    runs = at(scale, 20, 1000, 4000)
    names = [name for name in RECIPES if name not in _ALONE]
    if scale == "quick":
        names = ["dp-fedavg", "prifedsync"]
    cells = []
    for name in names:
        options = _OWN.get(name, {"sample": "everyone"})
        cells.append(Cell(name, {"recipe": name, "options": options, "runs": runs}, 0, BOUNDS))
    scaled = f"{runs:,} runs of each world."
    title = "What is proven of every recipe, and what canaries show"
    return Table("audit-recipes", title, _WHAT, scale, cells, _row, _pictures, scaled, _NOTES)


def _row(done: Group) -> Row:
    found, settings = done[0].result, done[0].cell.settings
    shown = found["bounds"] or {}
    by = max(shown, key=lambda name: shown[name]) if shown else ""
    return {
        "recipe": settings["recipe"],
        "hides": f"one {found['unit']}, {found['relation'].replace('_', '/')}",
        "proven, at most": f"{found['claimed']:.3f}",
        "measured, at least": f"{found['best']:.3f}" if shown else "; ".join(found["notes"]),
        "by": NAMES.get(by, by),
        "without assumptions": f"{shown['clopper_pearson']:.3f}" if shown else "",
        "verdict": "BROKEN" if found["broken"] else "no contradiction" if shown else "nothing measured",
        "seconds": f"{found['seconds']:.0f}",
    }


def _pictures(done: Group) -> list[Ranges]:
    shown = [one for one in done if one.result["bounds"]]
    if not shown:
        return []
    rows = {one.cell.row: (one.result["best"], one.result["claimed"]) for one in shown}
    ends = ("measured, at least", "proven, at most")
    return [Ranges("bounds", "Epsilon of every recipe: proven from above, measured from below", rows, ends, "Epsilon")]
