"""The slow twin of DpSgd: a loop over single records, and a method for every step that can go wrong."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.func import functional_call

from sfumato.key import Key
from sfumato.local.dp_sgd import DpSgd
from sfumato.local.task import Task


@dataclass(frozen=True)
class SlowDpSgd(DpSgd):
    """The same keys as DpSgd, so the same batches and the same noise."""

    def train(self, task: Task) -> Tensor:
        return torch.stack([self.client(task.only(place)) for place in range(len(task.clients))])

    def client(self, task: Task) -> Tensor:
        (records,), (key,) = task.clients, task.keys
        row = start = task.starts[0]
        state = self.optimizer.start(row)
        optimizer = replace(self.optimizer, lr=self.optimizer.lr * self.lr_decay**task.round)
        for step in range(self.how_often()):
            own = key.child("step", number=step)
            drawn = self.draw(records.count, own.child("batch"), step)
            gradients = [self.gradient(task, row, records.x[i : i + 1], records.y[i : i + 1]) for i in drawn]
            total = self.add(gradients, len(row))
            noise = self.noise(own.child("noise"), len(row), len(drawn))
            gradient = ((total + noise) / self.over(len(drawn))).float()
            gradient = gradient + self.weight_decay * row + self.proximal * (row - start)
            row, state = optimizer.step(row, state, -gradient)
        return row - task.params

    def how_often(self) -> int:
        return self.steps

    def draw(self, records: int, key: Key, step: int) -> list[int]:
        return list(self.batch.draw(records, key).tolist())

    def gradient(self, task: Task, row: Tensor, x: Tensor, y: Tensor) -> Tensor:
        parameters = {name: part[0].clone().requires_grad_() for name, part in task.layout.split(row[None]).items()}
        loss = task.loss(functional_call(task.forward.module, parameters, (x,)), y).sum()
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(parameters.values()))]).double()

    def clip_one(self, gradient: Tensor) -> Tensor:
        norm = float(gradient.norm())
        if not norm <= torch.finfo(torch.float32).max:
            return torch.zeros_like(gradient)
        return gradient * min(1.0, self.clip / max(norm * (1 + 2.0**-20), 1e-300))

    def add(self, gradients: list[Tensor], dimension: int) -> Tensor:
        return sum((self.clip_one(one) for one in gradients), torch.zeros(dimension, dtype=torch.float64))

    def noise(self, key: Key, dimension: int, drawn: int) -> Tensor:
        return key.normal(dimension) * (self.law.noise_multiplier * self.clip)

    def over(self, drawn: int) -> float:
        return self.divisor
