import torch
from torch import nn

from sfumato import Population, calibrate, classification, recipes, simulate


def user(number):
    x = torch.randn(10, 20, generator=torch.Generator().manual_seed(number))
    return x, (x[:, 0] > 0).long()


users = Population.from_function(user, size=1000, ids=range(1000))
options = {"sample": "poisson:0.05", "clip": 1.0, "epochs": 1, "lr": 0.5, "server_lr": 1.0}
round = calibrate(recipes.build("dp-fedavg", 1000, options), epsilon=2.0, delta=1e-5, rounds=20, population=1000)
for progress in simulate(round, users, nn.Linear(20, 2), classification(2), rounds=20):
    pass
print("noise multiplier", round.server[0].noise_and_norm()[0])
print("epsilon", progress.epsilon(1e-5))
