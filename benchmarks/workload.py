"""What is timed, in the terms that every side understands: needs torch only, so that the peers' environments can import it."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import resource
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

DISTINCT = 1000  # a larger population shows the same records again


@dataclass(frozen=True)
class Workload:
    """One federated training: clip and noise are always on, evaluation never."""

    name: str
    model: str
    population: int = 1000
    records: int = 50
    cohort: int = 50
    epochs: int = 5
    batch_size: int = 10
    lr: float = 0.01
    clip: float = 0.3
    noise_multiplier: float = 1.0

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one record."""
        return (1, 28, 28) if self.model == "cnn-emnist" else (784,)

    @property
    def classes(self) -> int:
        """How many there are."""
        return 62 if self.model == "cnn-emnist" else 10

    def module(self) -> nn.Module:
        """The model, written out so that all sides train the same one."""
        if self.model == "logistic":
            return nn.Linear(784, 10)
        if self.model == "mlp":
            return nn.Sequential(nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 10))
        first = (nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2))
        second = (nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2))
        return nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, 62))

    def client(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        """A client's records, kept in memory after the first call."""
        return _client(self, number % min(DISTINCT, self.population))

    def load_all(self) -> None:
        """Make every client's records before the clock starts."""
        for number in range(min(DISTINCT, self.population)):
            self.client(number)


@functools.cache
def _client(workload: Workload, number: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(number)
    x = torch.rand(workload.records, *workload.shape, generator=generator)
    return x, torch.randint(0, workload.classes, (workload.records,), generator=generator)


@dataclass(frozen=True)
class Order:
    """What a worker process is asked to do."""

    workload: Workload
    rounds: int
    warmup: int
    threads: int
    out: str

    def arguments(self) -> list[str]:
        """For the command line of the worker."""
        return ["--order", json.dumps(dataclasses.asdict(self))]

    @staticmethod
    def read() -> Order:
        """From this process's command line."""
        parser = argparse.ArgumentParser()
        parser.add_argument("--order", required=True)
        order = json.loads(parser.parse_args().order)
        return Order(**{**order, "workload": Workload(**order["workload"])})

    def report(self, seconds: Iterable[float], **facts: object) -> None:
        """Write the times of the rounds after the warm-up."""
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        found = {"seconds": list(seconds)[self.warmup :], "peak_bytes": peak, "torch": torch.__version__, **facts}
        Path(self.out).write_text(json.dumps(found))


class Laps:
    """Seconds from one call to the next."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock, self.last, self.seconds = clock, clock(), list[float]()

    def lap(self) -> None:
        """A round is over."""
        now = self.clock()
        self.seconds.append(now - self.last)
        self.last = now
