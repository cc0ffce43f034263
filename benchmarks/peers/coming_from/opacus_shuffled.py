"""The training of opacus_theirs.py with shuffled batches, for which Opacus prints an epsilon all the same."""

import torch
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

x = torch.randn(5000, 20)
loader = DataLoader(TensorDataset(x, (x[:, 0] > 0).long()), batch_size=250, shuffle=True)
model = nn.Linear(20, 2)
engine = PrivacyEngine()
model, optimizer, loader = engine.make_private_with_epsilon(
    module=model,
    optimizer=torch.optim.Adam(model.parameters(), lr=0.05),
    data_loader=loader,
    epochs=3,
    max_grad_norm=1.0,
    target_epsilon=2.0,
    target_delta=1e-5,
    poisson_sampling=False,
)
for _ in range(3):
    for inputs, targets in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
print("noise multiplier", optimizer.noise_multiplier)
print("epsilon", engine.get_epsilon(1e-5))
