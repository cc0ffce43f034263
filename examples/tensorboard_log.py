"""Log a run to TensorBoard: what was released, and nothing else. Needs `pip install tensorboard`."""

import tempfile

import torch
from torch.utils.tensorboard import SummaryWriter

from sfumato import Population, PublicData, Records, classification, evaluate, simulate
from sfumato.recipes.dp_fedavg import dp_fedavg


def make_records(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(count, 4)
    return x, (x[:, 0] > x[:, 1]).long()


def main(folder: str) -> None:
    torch.manual_seed(0)  # made-up data
    population = Population.from_list([make_records(20) for _ in range(200)], name="two-sides")
    test = PublicData("two-sides/test", Records(*make_records(1000)))
    objective = classification(2)
    run = simulate(dp_fedavg(200), population, torch.nn.Linear(4, 2), objective, rounds=5)
    with SummaryWriter(folder) as writer:
        for progress in run:
            writer.add_scalar("epsilon", progress.epsilon(), progress.round)
            for name, value in evaluate(progress.module, test.records, objective).items():
                writer.add_scalar(f"test/{name}", value, progress.round)
        writer.add_text("guarantee", str(run.guarantee()))


def read(folder: str) -> None:
    """What TensorBoard will show."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    logged = EventAccumulator(folder).Reload()
    print(f"tags: {', '.join(sorted(logged.Tags()['scalars']))}")
    print(f"epsilon by round: {', '.join(f'{point.value:.3f}' for point in logged.Scalars('epsilon'))}")


if __name__ == "__main__":
    with (
        tempfile.TemporaryDirectory() as here
    ):  # yours stays: SummaryWriter("logs/first"), then tensorboard --logdir logs
        main(here)
        read(here)
