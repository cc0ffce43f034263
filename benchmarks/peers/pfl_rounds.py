"""Time rounds of pfl-research; run by `benchmarks.engine` in the peer's environment."""

from importlib.metadata import version

import torch
from benchmarks.workload import Laps, Order
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from pfl.privacy.gaussian_mechanism import GaussianMechanism
from pfl.privacy.privacy_mechanism import CentrallyAppliedPrivacyMechanism
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """The methods that pfl asks a module for. Metrics would be evaluation, so there are none."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def loss(self, x: torch.Tensor, y: torch.Tensor, eval: bool = False) -> torch.Tensor:
        self.train(not eval)
        return F.cross_entropy(self.module(x), y)

    def metrics(self, x: torch.Tensor, y: torch.Tensor, eval: bool = False) -> dict[str, object]:
        return {}


class Timer(TrainingProcessCallback):
    """A lap at the end of each round."""

    def __init__(self, laps: Laps) -> None:
        self.laps = laps

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        self.laps.lap()
        return False, Metrics()


def main() -> None:
    """Take the order from the command line, report the times."""
    order = Order.read()
    work = order.workload
    torch.set_num_threads(order.threads)
    torch.manual_seed(0)
    work.load_all()

    def user(number: int) -> Dataset:
        return Dataset(raw_data=list(work.client(number)), user_id=number)

    data = FederatedDataset(user, get_user_sampler("random", list(range(work.population))))
    module = Model(work.module())
    model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), 1.0))
    noise = CentrallyAppliedPrivacyMechanism(GaussianMechanism(work.clip, work.noise_multiplier))
    parameters = NNAlgorithmParams(
        central_num_iterations=order.warmup + order.rounds,
        evaluation_frequency=10**9,
        train_cohort_size=work.cohort,
        val_cohort_size=0,
    )
    training = NNTrainHyperParams(
        local_num_epochs=work.epochs, local_learning_rate=work.lr, local_batch_size=work.batch_size
    )
    laps = Laps()
    FederatedAveraging().run(
        algorithm_params=parameters,
        backend=SimulatedBackend(data, data, postprocessors=[noise]),
        model=model,
        model_train_params=training,
        model_eval_params=NNEvalHyperParams(local_batch_size=None),
        callbacks=[Timer(laps)],
    )
    order.report(laps.seconds, version=version("pfl"))


if __name__ == "__main__":
    main()
