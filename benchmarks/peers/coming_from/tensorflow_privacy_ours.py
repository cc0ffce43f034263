import torch
from torch import nn

import sfumato

x = torch.randn(5000, 20)
y = (x[:, 0] > 0).long()
model = nn.Linear(20, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
loss = nn.CrossEntropyLoss(reduction="none")
for step in sfumato.private(
    model, optimizer, (x, y), loss, records=5000, batch_size=250, epochs=3, clip=1.0, noise_multiplier=1.1
):
    pass

epsilon = sfumato.epsilon(noise_multiplier=1.1, delta=1e-5, rate=250 / 5000, steps=60)  # without training
assert epsilon == step.epsilon(1e-5)
print("noise multiplier", 1.1)
print("epsilon", epsilon)
