"""Small runs and worlds that attacks are tried on."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import torch
from torch import nn

from sfumato import Sgd
from sfumato.audit.local_world import LocalWorld
from sfumato.data.population import Records
from sfumato.key import Key
from sfumato.objective import classification
from sfumato.report import write_page
from sfumato.run.prepare import prepare
from sfumato.run.request import DataRequest, Request
from sfumato.run.run import Run


def train(folder: Path, *, recipe: str = "fedavg", rounds: int = 2, clients: int = 30, **options: Any) -> Path:
    """A run on digits in a folder."""
    request = Request(recipe=recipe, rounds=rounds, data=DataRequest(clients=clients), options=options, delta=1e-3)
    with closing(Run(prepare(request), folder, page=write_page)) as run:
        for _ in run:
            pass
    return folder


def noisy_labels(records: int = 400, epochs: int = 20, lr: float = 0.05) -> LocalWorld:
    """Labels that nothing explains: whatever a model knows of them it has from having seen them."""
    x = Key.from_seed(0).child("x").normal(records, 300).float()
    y = torch.from_numpy((Key.from_seed(0).child("y").uniform(records) < 0.5).astype("int64"))
    module = nn.Linear(300, 2)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
    return LocalWorld(Records(x, y), module, Sgd(lr=lr, epochs=epochs, batch_size=20), classification(2))
