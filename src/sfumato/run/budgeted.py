"""The round of a run in which each client keeps to its own budget: the run's, and that of a ledger it shares with others."""

from __future__ import annotations

from pathlib import Path

from sfumato.budget.budgets import Budgets
from sfumato.budget.plan import planned
from sfumato.budget.stop import stopping
from sfumato.ledger.ledger import Ledger
from sfumato.round import Round
from sfumato.run.request import Request


def budgeted(
    round: Round, budgets: Budgets | None, request: Request, size: int, dimension: int, noise: float | None = None
) -> Round:
    """The round as it was, where nobody has a budget of its own."""
    if budgets is not None:
        round = planned(round, budgets, request.rounds, size, dimension, noise)
    path = Path(request.ledger) if request.ledger else None
    if path is None or not path.exists() or round.nonprivate or round.unproven:
        return round
    return stopping(round, Ledger(path, None), request.rounds, size, dimension)
