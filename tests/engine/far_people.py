"""Populations and pieces that workers in other processes find by import path. Not a test itself."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path

import torch

from sfumato import Population, Sgd
from sfumato.claim import Claim
from sfumato.local.task import Task
from sfumato.pieces.protocol import LocalPiece
from tests.helpers import made_up_population

MARK = 1234.56789  # the value of every record of one client
SIZES = [5, 1, 0, 12, 7, 3, 9, 4, 6, 2, 8]
WIDE = 400
_SGD = Sgd(lr=0.1, epochs=2, batch_size=4)


def people() -> Population:
    """A few, one of whom is marked."""
    clients = [made_up_population(SIZES).client(number).train for number in range(len(SIZES))]
    clients[3] = clients[3]._replace(x=torch.full((12, 6), MARK))
    return Population.from_list(clients, name="people")


def other_elsewhere() -> Population:
    """The same in every process, but for one number in the last client's records, which the environment gives."""
    clients = [people().client(number).train for number in range(len(SIZES))]
    clients[-1].x[0, 0] = float(os.environ.get("FAR_RECORD", "1.0"))
    return Population.from_list(clients, name="other")


def narrow_elsewhere() -> Population:
    """One client's records have another shape there."""
    found = people()
    narrow = (torch.ones(2, 5), torch.zeros(2, dtype=torch.int64))
    return Population("narrow", found.size, lambda number: narrow if number == 4 else found.load(number))


def crowd() -> Population:
    """Twelve thousand, made when they are drawn: their rows together would fill hundreds of megabytes."""

    def client(number: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.full((2, WIDE), number / 12_000), torch.tensor([number % 10, 1])

    return Population("crowd", 12_000, client)


@dataclass(frozen=True)
class Deadly(LocalPiece):
    """Plain training; the first process that meets the client in the second round dies there, as the file is not there yet."""

    file: str
    client: int = 7

    def train(self, task: Task) -> torch.Tensor:
        if task.round == 1 and self.client in task.ids and not Path(self.file).exists():
            Path(self.file).write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)
        return _SGD.train(task)

    def carry(self, claim: Claim) -> Claim:
        return _SGD.carry(claim)


def one(number: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A client by its number."""
    return torch.full((3, 6), float(number)), torch.zeros(3, dtype=torch.int64)
