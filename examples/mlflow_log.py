"""Log a run to MLflow, into a file of this machine: what was released, and nothing else. Needs `pip install mlflow`."""

import os
import tempfile
from pathlib import Path

import torch

from sfumato import Population, PublicData, Records, classification, evaluate, simulate
from sfumato.recipes.dp_fedavg import dp_fedavg

os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"  # else MLflow tells its makers how it is used
import mlflow


def make_records(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(count, 4)
    return x, (x[:, 0] > x[:, 1]).long()


def main(folder: Path) -> str:
    torch.manual_seed(0)  # made-up data
    population = Population.from_list([make_records(20) for _ in range(200)], name="two-sides")
    test = PublicData("two-sides/test", Records(*make_records(1000)))
    objective = classification(2)
    run = simulate(dp_fedavg(200), population, torch.nn.Linear(4, 2), objective, rounds=5)
    mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
    mlflow.create_experiment("two-sides", artifact_location=(folder / "artifacts").as_uri())
    mlflow.set_experiment("two-sides")
    with mlflow.start_run(run_name="first") as logged:
        mlflow.log_params({"clients": population.size, "rounds": 5})
        for progress in run:
            mlflow.log_metric("epsilon", progress.epsilon(), step=progress.round)
            mlflow.log_metrics(evaluate(progress.module, test.records, objective), step=progress.round)
        mlflow.log_text(f"{run.guarantee().headline}\n\n{run.guarantee()}", "guarantee.txt")
    return logged.info.run_id


def read(run_id: str) -> None:
    """What MLflow will show."""
    client = mlflow.MlflowClient()
    print(f"metrics: {', '.join(sorted(client.get_run(run_id).data.metrics))}")
    history = client.get_metric_history(run_id, "epsilon")
    print(f"epsilon by round: {', '.join(f'{point.value:.3f}' for point in history)}")
    print(f"guarantee: {mlflow.artifacts.load_text(f'runs:/{run_id}/guarantee.txt')[:72]}")


if __name__ == "__main__":
    with (
        tempfile.TemporaryDirectory() as here
    ):  # yours stays; `mlflow ui --backend-store-uri sqlite:///mlflow.db` shows it
        read(main(Path(here)))
