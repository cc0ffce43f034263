"""A sampler of your own, whose rounds do not all cost the same."""

from dataclasses import dataclass, replace

import numpy as np
import torch

from sfumato import AddNoise, Clip, Gaussian, Mean, Population, Relation, Round, Sampler, Sgd, regression, simulate
from sfumato.account.event import Event
from sfumato.claim import Claim, Reach, Release
from sfumato.pieces.protocol import Turn


@dataclass(frozen=True)
class Cyclic(Sampler):
    """Clients are dealt into groups once, and the groups take turns. States: one unsampled event pays for a whole cycle,
    because a client takes part in one of its rounds, and where it is dealt does not depend on the others.
    """

    groups: int
    relation: Relation = Relation.ADD_REMOVE

    def cohort(self, population: int, turn: Turn) -> np.ndarray:
        return np.flatnonzero(turn.run.integers(population) % np.uint64(self.groups) == turn.round % self.groups)

    def expected(self, population: int) -> float:
        return population / self.groups

    def chance(self, claim: Claim) -> float:
        return 1.0  # who takes part is no secret

    def reach(self, claim: Claim, seen: bool) -> Reach:
        return claim.moved

    def amplified(self, release: Release, claim: Claim) -> Event:
        return release(claim.moved)

    def carry(self, claim: Claim) -> Claim:
        return replace(claim, sampling=self, every=self.groups)


torch.manual_seed(0)  # made-up data
clients = [(x, x.sum(1)) for x in torch.randn(100, 8, 3)]
population = Population.from_list(clients, name="sums")
noise = AddNoise(Gaussian(noise_multiplier=2.0))
round = Round(Cyclic(groups=5), Sgd(lr=0.1, epochs=1), Mean(over=20), client=(Clip(1.0),), server=(noise,))
for progress in simulate(round, population, torch.nn.Linear(3, 1), regression(), rounds=11):
    if progress.round % 5 <= 1:
        print(f"round {progress.round}: epsilon {progress.epsilon():.3f}")
