"""UDP-FL, Figure 6: what a shuffler is worth. For private local training nothing; for messages that are private as a "
"whole, much."""

from __future__ import annotations

from typing import Any

import numpy as np

from sfumato.account import accountant
from sfumato.account.papers.udp_fl_shuffler import lemma_2, lemma_3
from sfumato.account.rdp import rdp_of
from sfumato.account.shuffled import ShuffledEvent
from sfumato.report.words import bound
from sfumato.reproduce.table import Cell, Group, Row, Settings, Table, Work, at, nothing
from sfumato.reproduce.udp_fl import common
from sfumato.reproduce.udp_fl.figure_4 import SCALED

EPSILON, DELTA, ORDER = 4.0, 1e-6, 10
COUNTS = (10, 100, 1_000, 10_000)
_NOTES = (
    "Trained with and without a shuffler at the same noise (its random numbers are others). The messages of private local "
    "training are private for single records only, not pure-epsilon private as a whole: nothing is credited, and the "
    "epsilons are the same.",
    "Messages: each client's message is epsilon-private as a whole under replace, by itself (Laplace noise under an L1 "
    "clip, say). Proven is the clones bound, epsilon at delta 1e-6. Lemma 2 as printed is false: ten randomised bits of "
    "epsilon 1 have a divergence of 0.657 at order 10. Lemma 3 is a lower bound, which shuffled bits are above: no bound for "
    "all messages lies below it, and it guarantees nothing.",
)


def shuffled(settings: Settings, seed: int) -> dict[str, Any]:
    """What one of many messages costs after a shuffler, and its Renyi divergence as proven and as printed."""
    alone, count, order = settings["epsilon"], settings["count"], settings["order"]
    event = ShuffledEvent(alone, count)
    return {
        "proven": accountant("auto").epsilon(event, settings["delta"]),
        "divergence": float(rdp_of(event, np.array([float(order)]))[0]),
        "lemma 2": lemma_2(alone, count, order),
        "lemma 3": lemma_3(alone, count, order),
    }


SHUFFLED = Work("sfumato.reproduce.udp_fl.shuffled", shuffled)


def table(scale: str) -> Table:
    """The figure at a scale."""
    cells: list[Cell] = []
    for base in at(scale, (common.MNIST,), (common.MNIST, common.MEDICAL), (common.MNIST, common.MEDICAL)):
        settings = common.sized(scale, base) | {"epsilon": EPSILON}
        for method in (common.GAUSSIAN, "Laplace", "Staircase"):
            for shuffle, words in ((False, "no shuffler"), (True, "shuffler")):
                own = {**settings, **common.METHODS[method], **({"shuffle": True} if shuffle else {})}
                row = f"{common.label(settings)}, {method}, {words}"
                cells += common.cells(scale, row, own, {"method": method, "channel": words})
    for alone in (1.0, 2.0):
        for count in COUNTS:
            settings = {"epsilon": alone, "count": count, "delta": DELTA, "order": ORDER}
            cells.append(Cell(f"{count:,} messages of epsilon {alone:g}", settings, 0, SHUFFLED))
    title = "UDP-FL, Figure 6: with and without a shuffler"
    words, notes = common.words(scale, SCALED), (*_NOTES, *common.NOTES[:2])
    return Table("udp-fl-figure-6", title, common.PAPER, scale, cells, _row, nothing, words, notes, _findings)


def _row(done: Group) -> Row:
    cell, result = done[0].cell, done[0].result
    if "count" not in cell.settings:
        found = {"what": cell.row, "epsilon of one": "none: not pure", "epsilon, proven": bound(result["epsilon"])}
        return {**found, "accuracy": common.measured(done)}
    return {
        "what": cell.row,
        "epsilon of one": f"{cell.settings['epsilon']:g}",
        "epsilon, proven": bound(result["proven"]),
        "accuracy": "",
        f"divergence of order {ORDER}, proven": bound(result["divergence"]),
        "Lemma 2 as printed (false)": f"{result['lemma 2']:.4g}",
        "Lemma 3 (lower bound)": f"{result['lemma 3']:.4g}",
    }


def _findings(done: Group) -> list[str]:
    trained = [one for one in done if "accuracy" in one.result]
    pairs = zip(trained[::2], trained[1::2], strict=True)
    gains = [one.result["epsilon"] - other.result["epsilon"] for one, other in pairs]
    return [f"Largest gain in epsilon that a shuffler gives private local training: {max(gains):.3g}."]
