"""What the settings of AE-DPFL's appendix cost. Nothing is trained."""

from __future__ import annotations

from typing import Any

from sfumato.account import accountant
from sfumato.account.event import Unit
from sfumato.pieces.law import Gaussian
from sfumato.pieces.sampler import parse_drawn
from sfumato.planning.setting import Setting
from sfumato.report.words import bound
from sfumato.reproduce.ae_dpfl import common
from sfumato.reproduce.table import Cell, Group, Row, Settings, Table, Work, nothing

# what, votes, noise in votes, queries (70 % of a domain's pictures where the appendix says all of them)
_VOTES: tuple[tuple[str, str, float, int], ...] = (
    ("Digits, PATE-FL", "label", 25.0, 500),
    ("Digits, PATE-FL with adaptation", "label", 30.0, 500),
    ("CelebA, PATE-FL, at most 4 attributes", "attributes:4", 50.0, 500),
    ("Office, Private-kNN-FL, AlexNet, Amazon, k = 10", "knn:10", 15.0, 670),
    ("Office, Private-kNN-FL, AlexNet, Dslr, k = 10", "knn:10", 15.0, 109),
    ("Office, Private-kNN-FL, ResNet-50, Caltech, k = 10", "knn:10", 25.0, 786),
    ("DomainNet, Private-kNN-FL, ResNet-50, Real, k = 10", "knn:10", 35.0, 2297),
)
# what, noise over the clip, rate, rounds
_UPDATES: tuple[tuple[str, float, float, int], ...] = (
    ("Digits, DP-FedAvg, sigma .06 read as printed: z = .06, one round", 0.06, 0.05, 1),
    ("Digits, DP-FedAvg, z = .06, 100 rounds", 0.06, 0.05, 100),
    ("Digits, DP-FedAvg, sigma .06 as the standard deviation: z = .06 / .08, 100 rounds", 0.75, 0.05, 100),
    ("CelebA, DP-FedAvg, z = .06 / .08, rate .04, 100 rounds", 0.75, 0.04, 100),
)
_NOTES = (
    "Votes: every client answers every query, and noise is drawn centrally. For a whole client (added or removed) at delta 1e-3, "
    "and for one record (swapped) at delta 1e-5. CelebA's number of queries, and k, are not printed: 500 and 10 stand for them.",
    "DP-FedAvg: `N(0, sigma^2 S^2)` with sigma = .06 is a noise multiplier of .06 as it is printed. The algorithm runs from 0 to "
    "T, which is one round more than T, and divides by the number that was drawn, which is private: here by a constant.",
    "Three domains of Office are three clients: too few to hide one among them.",
    common.NOTES[-1],
)


def cost(settings: Settings, seed: int) -> dict[str, Any]:
    """Epsilon for clients and for records."""
    law, sample = Gaussian(settings["noise"]), parse_drawn(settings["sample"])
    price, found = accountant("auto"), {}
    for unit, delta in ((Unit.CLIENT, common.DELTA), (Unit.RECORD, common.RECORD_DELTA)):
        if unit is Unit.RECORD and not settings["votes"]:
            continue
        setting = Setting(law, sample, settings["rounds"], unit, votes=settings["votes"])
        found[str(unit)] = price.epsilon(setting.event(), delta)
    return found


COST = Work("sfumato.reproduce.ae_dpfl.cost", cost)


def table(scale: str) -> Table:
    """The same at every scale."""
    cells = []
    for what, votes, stddev, queries in _VOTES:
        settings = {"votes": votes, "noise": stddev, "rounds": queries, "sample": "everyone", "stddev": stddev}
        cells.append(Cell(what, settings, 0, COST))
    for what, noise, rate, rounds in _UPDATES:
        settings = {
            "votes": "",
            "noise": noise,
            "rounds": rounds,
            "sample": f"poisson:{rate:g}",
            "stddev": noise * 0.08,
        }
        cells.append(Cell(what, settings, 0, COST))
    title = "AE-DPFL: what the appendix's settings cost"
    return Table(
        "ae-dpfl-settings", title, common.PAPER, scale, cells, _row, nothing, "The appendix's settings.", _NOTES
    )


def _row(done: Group) -> Row:
    cell, result = done[0].cell, done[0].result
    return {
        "setting": cell.row,
        "noise": f"{cell.settings['stddev']:g}",
        "queries or rounds": f"{cell.settings['rounds']:,}",
        "epsilon, client": bound(result["client"]),
        "epsilon, record": bound(result["record"]) if "record" in result else "",
    }
