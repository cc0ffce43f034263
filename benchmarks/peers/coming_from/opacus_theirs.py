import torch
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

x = torch.randn(5000, 20)
y = (x[:, 0] > 0).long()
loader = DataLoader(TensorDataset(x, y), batch_size=250, shuffle=True)
model = nn.Linear(20, 2)
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
loss = nn.CrossEntropyLoss()

engine = PrivacyEngine()
model, optimizer, loader = engine.make_private_with_epsilon(
    module=model,
    optimizer=optimizer,
    data_loader=loader,
    epochs=3,
    max_grad_norm=1.0,
    target_epsilon=2.0,
    target_delta=1e-5,
)
for _ in range(3):
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss(model(inputs), targets).backward()
        optimizer.step()
print("noise multiplier", optimizer.noise_multiplier)
print("epsilon", engine.get_epsilon(1e-5))
