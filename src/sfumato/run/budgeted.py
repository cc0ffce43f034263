"""The round of a run in which each client keeps to its own budget: the run's, and that of a ledger it shares with others.

What prices a run before it begins is what its ledger will enforce: the basis of the ledger that it shares; one Renyi order, if
it is to be adaptive or begins such a ledger; else the tight accountants, for a plan.
"""

from __future__ import annotations

from pathlib import Path

from sfumato.account.adaptive import AtOrder, FittedOrder, order_for
from sfumato.account.protocol import Accountant
from sfumato.budget.budgets import Budgets
from sfumato.budget.plan import planned
from sfumato.budget.stop import stopping
from sfumato.ledger.ledger import Ledger
from sfumato.ledger.spending import price_before
from sfumato.round import Round
from sfumato.run.request import Request


def price_for(request: Request) -> Accountant:
    """What prices a run that is about to begin."""
    return price_before(Path(request.ledger) if request.ledger else None, request.adaptive, request.chosen_delta)


def budgeted(
    round: Round,
    budgets: Budgets | None,
    request: Request,
    size: int,
    dimension: int,
    noise: float | None = None,
    order: float | None = None,
) -> tuple[Round, float | None]:
    """The round, as it was where nobody has a budget of its own; and the Renyi order that it was priced at, if an adaptive ledger
    begins with it.

    An order has to be the same for all budgets: it suits the run as it would be if each budget had an order of its own, if no
    `order` is given.
    """
    price = price_for(request) if order is None else AtOrder(order)
    path = Path(request.ledger) if request.ledger else None
    held = None if path is None or not path.exists() else Ledger(path, None)
    if round.nonprivate or round.unproven:
        held = None
    fits = isinstance(price, FittedOrder) and (budgets is not None or (held is not None and held.own_budgets))
    if fits:
        first = _kept(round, budgets, held, request, size, dimension, noise, price)
        proof = first.derive(population=size, dimension=dimension).primary
        price = AtOrder(order_for(proof.after(request.rounds), request.chosen_delta))
    found = _kept(round, budgets, held, request, size, dimension, noise, price)
    return found, price.order if fits and isinstance(price, AtOrder) else order


def _kept(
    round: Round,
    budgets: Budgets | None,
    held: Ledger | None,
    request: Request,
    size: int,
    dimension: int,
    noise: float | None,
    price: Accountant,
) -> Round:
    if budgets is not None:
        round = planned(round, budgets, request.rounds, size, dimension, noise, price)
    return round if held is None else stopping(round, held, request.rounds, size, dimension, price)
