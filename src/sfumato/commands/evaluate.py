"""`sfumato evaluate`: a run's model on public test data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from sfumato.commands.answers import Json, show
from sfumato.commands.preparing import preparing
from sfumato.errors import DataError


def evaluate(run: Annotated[Path, typer.Argument(help="The folder of a finished run.")], json: Json = False) -> None:
    """Evaluate a run's model on the public test split of its data set."""
    with preparing(json):
        answer, metrics = _measured(run)
    show(answer, [f"{name:<18} {value:.4f}" for name, value in metrics.items()], json)


def _measured(run: Path) -> tuple[dict[str, Any], dict[str, float]]:
    from sfumato.objective import evaluate as measure
    from sfumato.run.folder import load
    from sfumato.run.prepare import prepare
    from sfumato.run.request import Request, resolved
    from sfumato.run.schema import read_summary

    summary = read_summary(run)
    request = Request.from_toml(run / "run.toml")
    request.require_named(f"evaluate(load({str(run)!r}, module), test.records, objective).")
    prepared = prepare(request, resolved(run / "run.toml"), folder=run)
    if prepared.basis is not None and prepared.basis.learnt is None:
        raise DataError(f"{run}/basis.safetensors is gone, and the model sees records along it. Restore the file.")
    if prepared.test is None:
        raise DataError(f"{summary['data']} has no public test data, so nothing can be measured without a cost.")
    metrics = measure(load(run), prepared.test.records, prepared.objective)
    return {"run": str(run), "data": summary["data"], "epsilon": summary["epsilon"], **metrics}, metrics
