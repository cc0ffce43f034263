"""Runs that differ in nothing but their seeds belong together: one column of a table, one curve with a band."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sfumato.report.read import Record
from sfumato.report.settings import seeds, settings, without_seeds

BAND = "Lines are means over seeds, and bands go from the smallest to the largest of them."
_SAME = (
    "recipe",
    "data",
    "model",
    "population",
    "rounds",
    "unit",
    "relation",
    "noise_multiplier",
    "clip",
    "delta",
    "primary",
)


@dataclass(frozen=True)
class Group:
    """Runs with the same settings; most often one run alone. `index` gives its colour."""

    runs: tuple[Record, ...]
    index: int

    @property
    def first(self) -> Record:
        return self.runs[0]

    @property
    def several(self) -> bool:
        return len(self.runs) > 1

    @property
    def name(self) -> str:
        """The run's name; of several the first, and how many seeds there are."""
        more = len(self.runs) - 1
        return f"{self.first.name} and {more} more seed{'' if more == 1 else 's'}" if more else self.first.name

    @property
    def proven(self) -> bool:
        """Whether there is an epsilon for each of its runs."""
        return all(run.proven for run in self.runs)


def grouped(runs: Sequence[Record]) -> tuple[Group, ...]:
    """Runs by their settings, in the order of the first of each.

    Runs whose settings cannot be read stay alone, and so do those that a seed is given for twice: that is one run again.
    """
    alike: dict[str, list[Record]] = {}
    for run in runs:
        known = repr(sorted(without_seeds(run).items())) if settings(run) else run.name
        alike.setdefault(repr([run.summary.get(key) for key in _SAME]) + known, []).append(run)
    found: list[tuple[Record, ...]] = []
    for same in alike.values():
        given = [seeds(run) for run in same if seeds(run)[0] is not None]
        found += [tuple(same)] if len(set(map(repr, given))) == len(given) else [(run,) for run in same]
    places = {run.name: place for place, run in enumerate(runs)}
    ordered = sorted(found, key=lambda one: places[one[0].name])
    return tuple(Group(members, index) for index, members in enumerate(ordered))
