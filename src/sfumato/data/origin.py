"""How a population reaches another process: by the names of its data, never by its records."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sfumato.data.population import Origin, Population
from sfumato.errors import BadValue
from sfumato.imports import is_import_path


@dataclass(frozen=True)
class Named:
    """A folder or an import path, and how many clients are declared."""

    source: str
    size: int

    def build(self) -> Population:
        """Read it here."""
        if is_import_path(self.source):
            return Population.from_import(self.source, self.size).declared(self.size)
        return Population.from_folder(self.source).declared(self.size)


def origin_of(population: Population) -> Origin:
    """What builds the population in another process; refuses one that only this process has.

    >>> origin_of(Population("people", 5, load=str, source="mine:people"))
    Named(source='mine:people', size=5)
    """
    if population.origin is not None:
        return population.origin
    source = population.source
    if not source:
        raise BadValue(
            f"the population {population.name!r} lies in the memory of this process, and nobody's records are sent to others. Give "
            'it by a folder (Population.from_folder) or by an import path (Population.from_import("module:function")), which every '
            "worker reads for itself."
        )
    return Named(source if is_import_path(source) else str(Path(source).resolve()), population.size)
