"""The frontier: published results with what they really cost, and this library's own at the same tasks."""

from __future__ import annotations

import math

import numpy as np

from sfumato.report.words import MISSING, bound
from sfumato.reproduce.frontier.costs import COST
from sfumato.reproduce.frontier.ours import QUICK, TASKS
from sfumato.reproduce.frontier.published import PUBLISHED
from sfumato.reproduce.show import accuracies
from sfumato.reproduce.table import Cell, Done, Group, Row, Table, at, groups, nothing

_PAPER = (
    "Published results whose numbers and settings were found in a source, priced by this library's accountant when this table "
    "was made"
)
_NOTES = (
    "EMNIST letters and MNIST share NIST's origin: their writers may be the same people, and somebody who wrote for both is in "
    "what is called public here. The data-free rows use no public records.",
    "Ours: the mean over seeds, and in brackets the smallest and the largest. Settings were frozen before the test split was "
    "read, and it is read once, after the last round; one rule, that one holder takes many small steps, came after a first run of "
    "this table had missed two rows, and was found on a part of MNIST's training records. Seconds are of the rounds; data, "
    "features and noise before them are told by themselves.",
    "If sampled as accounted: the tight epsilon of what the authors counted, under add/remove. It is below what they claim, "
    "because they counted by Renyi divergences, but their batches or cohorts were not drawn so.",
    "As sampled, shuffled passes: without credit for the order, because none is proven here. A swapped record moves one sum of "
    "each pass by twice the clip (replace), one that becomes zero by the clip (zero-out); under add/remove nothing is proven, "
    "because one record more moves the edges of all batches. It is an upper bound, which an attack need not reach; that "
    "Poisson's values need not hold for shuffled batches is shown by Chua et al. 2024, How Private are DP-SGD Implementations?",
    "As sampled, fixed size: whoever is drawn displaces another, so a sum moves by twice the clip under add/remove too.",
    "pfl-research means to simulate a larger deployment, and says so: it finds the noise for cohorts of 1,000 from a million, and "
    "adds 50/1000 of it to cohorts of 50. As sampled is what that is worth to the 1,000 users that it has, if each took part "
    "by chance; it draws them with replacement, for which nothing is proven here. Its accuracy was not found in a source.",
    "Tramer and Boneh find the noise for a number of passes. Those of CNNs are in their README; the others are the last ones at "
    "which their own accounting is at most 3. Their code has no validation split: its grids of settings log test accuracy.",
    "DP-FedSAM prints no epsilon for these rows: the value is that of its equation (16). Its EMNIST is 88,800 characters, "
    "which it says are of 62 classes, where our rows have 26 letters; it reports the best accuracy of each run.",
)

_ORDER = ("MNIST", "EMNIST", "CIFAR-10")


def table(scale: str) -> Table:
    """The same at every scale but quick, which trains on scikit-learn's digits in place of all tasks."""
    cells: list[Cell] = [published.cell for published in PUBLISHED]
    for task in at(scale, [QUICK], list(TASKS.values()), list(TASKS.values())):
        cells += task.cells(at(scale, 1, 5, 5))
    cells.sort(key=lambda cell: [cell.paper["task"].startswith(data) for data in _ORDER], reverse=True)
    words = at(
        scale,
        "Quick: published rows as they are, ours on scikit-learn's digits. It says nothing about our accuracy on the tasks.",
        "5 seeds.",
        "5 seeds.",
    )
    title = "The frontier: published, what it really costs as sampled, and ours"
    return Table("frontier", title, _PAPER, scale, cells, _row, nothing, words, _notes(), _findings)


def _notes() -> tuple[str, ...]:
    """What the rows mean, and where each published one was read."""
    sources = dict.fromkeys(f"{one.who}: {one.source}." for one in PUBLISHED)
    return (*_NOTES, *sources)


def _row(done: Group) -> Row:
    return _published(done[0]) if done[0].cell.work == COST else _ours(done)


def _published(done: Done) -> Row:
    paper, result = done.cell.paper, done.result
    claimed = bound(paper["claimed"])
    if "claimed" in result:
        claimed = f"{bound(result['claimed'])}, by its equation"
    costs = [f"{_whole(epsilon)} ({words})" for words, epsilon in result["sampled"]]
    return {
        "who": paper["who"],
        "task": paper["task"],
        "what": paper["what"],
        "delta": f"{paper['delta']:g}",
        "accuracy, published": MISSING if paper["accuracy"] is None else f"{paper['accuracy']:.1f}",
        "epsilon, claimed": claimed,
        "epsilon if sampled as accounted": bound(result["accounted"]),
        "epsilon as sampled": "; ".join([*costs, paper["unpriced"]] if paper["unpriced"] else costs),
        "sampled": paper["sampled"],
    }


def _whole(epsilon: float) -> str:
    """A bound to four digits, and a large one to the next whole number."""
    return bound(epsilon) if epsilon < 1000 else f"{math.ceil(epsilon):,}"


def _ours(done: Group) -> Row:
    cell = done[0].cell
    return {
        "who": "Sfumato",
        "task": cell.paper["task"],
        "what": cell.paper["what"],
        "delta": f"{cell.settings['delta']:g}",
        "epsilon, claimed": f"{cell.settings['epsilon']:g}",
        "epsilon as sampled": bound(max(one.result["epsilon"] for one in done)),
        "accuracy, ours": ranged(accuracies(done)),
        "seconds of training": ranged([one.result["seconds"] for one in done], "{:.1f}"),
        "seconds before": ranged([one.result["preparing"] for one in done], "{:.1f}"),
    }


def ranged(values: list[float], words: str = "{:.2f}") -> str:
    """The mean over seeds, with the smallest and the largest where there are several.

    >>> ranged([98.0, 99.0]), ranged([98.0])
    ('98.50 (98.00 to 99.00)', '98.00')
    """
    mean, low, high = (words.format(value) for value in (float(np.mean(values)), min(values), max(values)))
    return mean if len(values) == 1 else f"{mean} ({low} to {high})"


def _findings(done: Group) -> list[str]:
    """Whether each of our rows reached what it is held to."""
    found = []
    for group in groups([one for one in done if one.cell.work != COST]):
        paper, mean = group[0].cell.paper, float(np.mean(accuracies(group)))
        slowest = max(one.result["seconds"] for one in group)
        if paper["held_to"] is not None:
            reached = mean >= paper["held_to"] and slowest <= paper["held_to_seconds"]
            found.append(
                f"{group[0].cell.row}: {mean:.2f} % in at most {slowest:.1f} s; held to {paper['held_to']:g} % in "
                f"{paper['held_to_seconds']:g} s: {'reached' if reached else 'NOT reached'}."
            )
    return found
