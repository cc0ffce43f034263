"""Private data as populations, public data as another type, splits, and data sets by name."""

from sfumato.data.columns import Columns
from sfumato.data.datasets import records_of
from sfumato.data.load import build_population, load
from sfumato.data.population import Client, Population, PublicData, Records
from sfumato.data.sets import Dataset

__all__ = [
    "Client",
    "Columns",
    "Dataset",
    "Population",
    "PublicData",
    "Records",
    "build_population",
    "load",
    "records_of",
]
