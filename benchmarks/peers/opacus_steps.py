"""Processor seconds of Opacus' steps on Poisson batches; run by `benchmarks.coming_from` in the peer's environment."""

from __future__ import annotations

import json
import statistics
import sys
import time
import warnings
from typing import Any

import torch
from benchmarks.per_record import cnn_mnist
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")


def seconds(mode: str, records: int, batch: int, steps: int) -> float:
    """The median step, of drawing a batch to moving the parameters."""
    data = TensorDataset(torch.randn(records, 1, 28, 28), torch.randint(0, 10, (records,)))
    module = cnn_mnist()
    parts: dict[str, Any] = {
        "module": module,
        "optimizer": torch.optim.SGD(module.parameters(), lr=0.1),
        "data_loader": DataLoader(data, batch_size=batch),
        "criterion": nn.CrossEntropyLoss(),
        "noise_multiplier": 1.0,
        "max_grad_norm": 1.0,
    }
    made = PrivacyEngine().make_private(**parts, grad_sample_mode=mode)
    model, optimizer, loader = made[0], made[1], made[-1]
    criterion = made[2] if len(made) == 4 else nn.CrossEntropyLoss()
    times: list[float] = []
    while len(times) <= steps:
        start = time.process_time()
        for x, y in loader:
            optimizer.zero_grad()
            criterion(model(x), y).backward()
            optimizer.step()
            times.append(time.process_time() - start)
            start = time.process_time()
    return statistics.median(times[2:])


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps({mode: seconds(mode, *map(int, sys.argv[1:])) for mode in ("hooks", "ghost")}))
