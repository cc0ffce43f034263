"""Train your own module on your own tensors: one (x, y) pair per client.

The data are made up: each client holds 20 records, and the target is the side of a line on which a record lies.
"""

import torch
from torch import nn

from sfumato import (
    AddNoise,
    Clip,
    Gaussian,
    Mean,
    Poisson,
    Population,
    PublicData,
    Records,
    Round,
    Sgd,
    classification,
    evaluate,
    simulate,
)


def make_records(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(count, 4)
    return x, (x[:, 0] > x[:, 1]).long()


def main() -> None:
    torch.manual_seed(0)  # the made-up data and the first weights; the noise never comes from here
    population = Population.from_list([make_records(20) for _ in range(500)], name="two-sides")
    test = PublicData("two-sides/test", Records(*make_records(1000)))
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
    objective = classification(2)

    round = Round(
        sample=Poisson(rate=0.2),
        local=Sgd(lr=0.5, epochs=2, batch_size=5),
        client=(Clip(norm=1.0),),
        aggregate=Mean(over=100),  # rate times the declared population: a public number
        server=(AddNoise(Gaussian(noise_multiplier=1.5)),),
    )
    for progress in simulate(round, population, model, objective, rounds=20):
        if progress.round % 5 == 0:
            accuracy = evaluate(progress.module, test.records, objective)["accuracy"]
            print(f"round {progress.round}: accuracy {accuracy:.3f}, epsilon {progress.epsilon():.3f}")
    print(progress.guarantee())
    print(progress.guarantee(server=True))


if __name__ == "__main__":
    main()
