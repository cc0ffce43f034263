import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import sfumato

x = torch.randn(5000, 20)
y = (x[:, 0] > 0).long()
loader = DataLoader(TensorDataset(x, y), batch_size=250, shuffle=True)
model = nn.Linear(20, 2)
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
loss = nn.CrossEntropyLoss(reduction="none")

session = sfumato.private(
    model,
    optimizer,
    loader,
    loss,
    records=5000,
    epochs=3,
    clip=1.0,
    epsilon=2.0,
    delta=1e-5,
)
for step in session:
    pass  # the step is taken: log epsilon, call scheduler.step(), measure on public data
print("noise multiplier", session.noise_multiplier)
print("epsilon", session.epsilon())
