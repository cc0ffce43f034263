import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import NeighboringRelation, PrivacyConfig, RdpAccountant, SamplingMethod, ServerApp
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg
from flwr.simulation import run_simulation
from torch import nn

client, server = ClientApp(), ServerApp()


@client.train()
def train(message, context):
    seed = int(context.node_config["partition-id"])
    x = torch.randn(10, 20, generator=torch.Generator().manual_seed(seed))
    model = nn.Linear(20, 2)
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    nn.functional.cross_entropy(model(x), (x[:, 0] > 0).long()).backward()
    optimizer.step()
    metrics = MetricRecord({"num-examples": 10})
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)


@server.main()
def main(grid, context):
    accountant = RdpAccountant(
        PrivacyConfig(
            target_delta=1e-5,
            population_size=20,
            neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE,
            sampling_method=SamplingMethod.NO_AMPLIFICATION,
        )
    )
    fedavg = FedAvg(fraction_train=0.5, fraction_evaluate=0.0, min_available_nodes=20)
    private = DifferentialPrivacyServerSideFixedClipping(
        fedavg, noise_multiplier=2.0, clipping_norm=1.0, num_sampled_clients=10, accountant=accountant
    )
    private.start(grid=grid, initial_arrays=ArrayRecord(nn.Linear(20, 2).state_dict()), num_rounds=5)
    print("noise multiplier", 2.0)
    print("epsilon", private.privacy_spent().epsilon)


run_simulation(server, client, num_supernodes=20)
