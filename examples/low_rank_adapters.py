"""Adapt a small transformer by low-rank matrices: they alone train, all else is frozen. A record has two inputs and a label.

The data are made up: padded texts on four topics. Clients use other words for these than the texts that anybody may see.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sfumato import Population, Records, classification, evaluate, simulate
from sfumato.recipes.dp_fedavg import dp_fedavg


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.ask, self.tell = nn.Embedding(40, 32), nn.Linear(32, 64), nn.Linear(32, 32)
        self.think, self.head = nn.Linear(32, 32), nn.Linear(32, 4)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        words, there = self.embed(input_ids), attention_mask.unsqueeze(-1)
        query, key = self.ask(words).chunk(2, dim=-1)
        scores = (query @ key.mT) / 32**0.5 - 1e4 * (1 - there.mT)
        words = words + scores.softmax(-1) @ self.tell(words)
        return self.head(((words + F.gelu(self.think(words))) * there).sum(1) / there.sum(1))


class Adapted(nn.Module):
    def __init__(self, layer: nn.Linear, rank: int = 4) -> None:
        super().__init__()
        self.layer, self.down = layer, nn.Linear(layer.in_features, rank, bias=False)
        self.up = nn.Parameter(torch.zeros(layer.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + F.linear(self.down(x), self.up)


def texts(dialect: int, count: int) -> tuple[dict[str, Tensor], Tensor]:
    topic, there = torch.randint(4, (count,)), torch.arange(10) < torch.randint(4, 11, (count, 1))
    about, others = 4 * dialect + 8 * topic[:, None] + torch.randint(4, there.shape), torch.randint(32, 40, there.shape)
    words = torch.where(torch.rand(there.shape) < 0.5, about, others) * there  # word 0 where there is none
    return {"input_ids": words, "attention_mask": there.long()}, topic


torch.manual_seed(0)  # the made-up data and the first weights; the noise never comes from here
model, objective = Transformer(), classification(4)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for x, y in (texts(0, 64) for _ in range(150)):
    optimizer.zero_grad()
    F.cross_entropy(model(**x), y).backward()
    optimizer.step()
model.requires_grad_(False)
model.tell, model.think, model.head = (Adapted(layer) for layer in (model.tell, model.think, model.head))
population = Population.from_list([texts(1, 20) for _ in range(500)], name="dialect")
round = dp_fedavg(500, sample="poisson:0.2", clip=1.0, noise_multiplier=1.5, lr=0.5, epochs=1)
*_, last = simulate(round, population, model, objective, rounds=15)
print(f"{len(last.params)} of {sum(p.numel() for p in model.parameters())} parameters were trained")
before, after = (evaluate(one, Records(*texts(1, 1000)), objective)["accuracy"] for one in (model, last.module))
print(f"accuracy {after:.2f} after round 15, {before:.2f} before\n{last.guarantee()}")
