import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.model.pytorch import PyTorchModel
from pfl.privacy import CentrallyAppliedPrivacyMechanism, GaussianMechanism, PLDPrivacyAccountant
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(20, 2)

    def loss(self, x, y, eval=False):
        return nn.functional.cross_entropy(self.layer(x), y)

    def metrics(self, x, y, eval=False):
        return {}


def user(number):
    x = torch.randn(10, 20, generator=torch.Generator().manual_seed(number))
    return Dataset([x, (x[:, 0] > 0).long()], user_id=number)


users = FederatedDataset(user, get_user_sampler("minimize_reuse", range(1000)))
accountant = PLDPrivacyAccountant(
    num_compositions=20, sampling_probability=50 / 1000, mechanism="gaussian", epsilon=2.0, delta=1e-5
)
mechanism = GaussianMechanism.from_privacy_accountant(accountant=accountant, clipping_bound=1.0)
model = Model()
FederatedAveraging().run(
    algorithm_params=NNAlgorithmParams(
        central_num_iterations=20, evaluation_frequency=100, train_cohort_size=50, val_cohort_size=0
    ),
    backend=SimulatedBackend(users, users, postprocessors=[CentrallyAppliedPrivacyMechanism(mechanism)]),
    model=PyTorchModel(model, torch.optim.SGD, torch.optim.SGD(model.parameters(), 1.0)),
    model_train_params=NNTrainHyperParams(local_num_epochs=1, local_learning_rate=0.5, local_batch_size=None),
    model_eval_params=NNEvalHyperParams(local_batch_size=None),
    callbacks=[],
)
print("noise multiplier", accountant.noise_parameter)
print("epsilon", accountant.epsilon)
