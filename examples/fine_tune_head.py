"""Fine-tune the head of a network that came trained, with BatchNorm in it: only the head is in the row, and only it costs noise.

The data are made up. Anybody may see the stripes that the network is trained on first; clients hold stripes of other angles.
"""

import torch
from torch import nn
from torch.nn import functional as F

from sfumato import Population, PublicData, Records, classification, evaluate, simulate
from sfumato.recipes.dp_fedavg import dp_fedavg


def stripes(count: int, angles: list[float]) -> tuple[torch.Tensor, torch.Tensor]:
    y = torch.randint(len(angles), (count,))
    angle, place = torch.tensor(angles)[y, None, None], torch.arange(12.0)
    wave = torch.sin(1.2 * (place[:, None] * angle.cos() + place * angle.sin()) + 6.3 * torch.rand(count, 1, 1))
    return (wave + 1.5 * torch.randn(count, 12, 12)).unsqueeze(1), y


def trained_in_public() -> nn.Module:
    first = nn.Conv2d(1, 16, 5), nn.BatchNorm2d(16), nn.ReLU()
    second = nn.Conv2d(16, 16, 3), nn.BatchNorm2d(16), nn.ReLU()
    body = nn.Sequential(*first, *second, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    model = nn.Sequential(body, nn.Linear(16, 6))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(100):
        x, y = stripes(64, [0.0, 0.5, 1.0, 1.5, 2.0, 2.5])
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    return body


def main() -> None:
    torch.manual_seed(0)  # the made-up data and the first weights; the noise never comes from here
    body = trained_in_public().requires_grad_(False)  # frozen: it stays in evaluation, and its statistics as they are
    statistics = body[1].running_mean.clone()
    model, objective, angles = nn.Sequential(body, nn.Linear(16, 4)), classification(4), [0.25, 0.9, 1.6, 2.3]
    population = Population.from_list([stripes(20, angles) for _ in range(500)], name="stripes")
    test = PublicData("stripes/test", Records(*stripes(1000, angles)))

    round = dp_fedavg(population.size, sample="poisson:0.1", clip=1.0, lr=0.5, epochs=1, batch_size=20)
    print(f"before: accuracy {evaluate(model, test.records, objective)['accuracy']:.2f}")
    for progress in simulate(round, population, model, objective, rounds=10):
        pass
    print(f"{len(progress.params)} of {sum(p.numel() for p in model.parameters())} parameters were trained")
    print(f"round {progress.round}: accuracy {evaluate(progress.module, test.records, objective)['accuracy']:.2f}")
    print(f"the statistics are as they were: {torch.equal(progress.module[0][1].running_mean, statistics)}")
    print(progress.guarantee())


if __name__ == "__main__":
    main()
