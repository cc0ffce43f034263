"""A local trainer of your own."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from sfumato import (
    AddNoise,
    Clip,
    Gaussian,
    LocalPiece,
    Mean,
    Poisson,
    Population,
    Records,
    Round,
    evaluate,
    regression,
    simulate,
)
from sfumato.claim import Claim
from sfumato.local.task import Task


@dataclass(frozen=True)
class OneStep(LocalPiece):
    """One step down the gradient of all of a client's records. States nothing: the row has no bound."""

    lr: float
    one_by_one: ClassVar[bool] = True

    def train(self, task: Task) -> torch.Tensor:
        return torch.stack([self._row(task.only(place)) for place in range(len(task.clients))])

    def _row(self, task: Task) -> torch.Tensor:
        module, records = task.forward.module, task.clients[0]
        task.layout.write(task.starts[0], module)  # the worker's own copy
        loss = task.loss(module(records.x), records.y).sum() / max(1, records.count)
        gradients = torch.autograd.grad(loss, list(module.parameters()))
        return -self.lr * torch.cat([gradient.flatten() for gradient in gradients])

    def carry(self, claim: Claim) -> Claim:
        return claim


torch.manual_seed(0)  # made-up data
clients = [(x, x.sum(1)) for x in torch.randn(100, 8, 3)]
population = Population.from_list(clients, name="sums")
noise = AddNoise(Gaussian(noise_multiplier=0.5))
round = Round(Poisson(rate=0.5), OneStep(lr=0.5), Mean(over=50), client=(Clip(1.0),), server=(noise,))
*_, progress = simulate(round, population, torch.nn.Linear(3, 1), regression(), rounds=20, seed=0)
fresh = torch.randn(500, 3)
print(f"r2 {evaluate(progress.module, Records(fresh, fresh.sum(1)), regression())['r2']:.2f}")
