import torch
from torch import nn

from sfumato import Population, classification, recipes, simulate


def client(number):
    x = torch.randn(10, 20, generator=torch.Generator().manual_seed(number))
    return x, (x[:, 0] > 0).long()


clients = Population.from_function(client, size=20, ids=range(20))
options = {"sample": "fixed:10", "relation": "add-remove", "clip": 1.0, "noise_multiplier": 2.0, "lr": 0.5}
round = recipes.build("dp-fedavg", 20, options)
for progress in simulate(round, clients, nn.Linear(20, 2), classification(2), rounds=5):
    pass
print("noise multiplier", 2.0)
print("epsilon", progress.epsilon(1e-5))
