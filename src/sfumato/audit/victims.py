"""Records of clients, drawn by an audit's own key: for attacks that ask about what a model was trained on."""

from __future__ import annotations

import torch

from sfumato.data.population import Population, Records
from sfumato.errors import DataError
from sfumato.key import Key


def drawn_records(population: Population, most: int, key: Key) -> Records:
    """Records of clients in random order, a client's all together, until there are enough."""
    found: list[Records] = []
    count = 0
    for client in key.permutations(1, population.size)[0].tolist():
        records = population.client(client).train
        if records.count:
            found.append(records)
            count += records.count
        if count >= most:
            break
    if not found:
        raise DataError(f"no client of {population.name!r} has a record to be asked about. Attack a run with data.")
    x, y = (torch.cat(parts)[:most] for parts in zip(*found, strict=True))
    return Records(x, y)
