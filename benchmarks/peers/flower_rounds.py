"""Time rounds of Flower's simulation; run by `benchmarks.engine` in the peer's environment."""

from importlib.metadata import version

import torch
from benchmarks.workload import Laps, Order
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg
from flwr.simulation import run_simulation
from torch.nn import functional as F

order = Order.read()
work = order.workload
client = ClientApp()
server = ServerApp()


@client.train()
def train(message: Message, context: Context) -> Message:
    """Local training; Flower runs one client per core, so each has one thread."""
    torch.set_num_threads(1)
    x, y = work.client(int(context.node_config["partition-id"]))
    module = work.module()
    module.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(module.parameters(), work.lr)
    for _ in range(work.epochs):
        for index in torch.randperm(len(x)).split(work.batch_size):
            optimizer.zero_grad()
            F.cross_entropy(module(x[index]), y[index]).backward()
            optimizer.step()
    metrics = MetricRecord({"num-examples": len(x)})
    content = RecordDict({"arrays": ArrayRecord(module.state_dict()), "metrics": metrics})
    return Message(content=content, reply_to=message)


class Timed(DifferentialPrivacyServerSideFixedClipping):
    """A lap when a round's replies have been aggregated."""

    laps: Laps

    def aggregate_train(self, server_round, replies):
        result = super().aggregate_train(server_round, replies)
        self.laps.lap()
        return result


@server.main()
def main(grid: Grid, context: Context) -> None:
    """All rounds, without evaluation."""
    fedavg = FedAvg(
        fraction_train=work.cohort / work.population,
        fraction_evaluate=0.0,
        min_train_nodes=work.cohort,
        min_available_nodes=work.population,
    )
    strategy = Timed(
        fedavg,
        noise_multiplier=work.noise_multiplier,
        clipping_norm=work.clip,
        num_sampled_clients=work.cohort,
    )
    strategy.laps = Laps()
    arrays = ArrayRecord(work.module().state_dict())
    strategy.start(grid=grid, initial_arrays=arrays, num_rounds=order.warmup + order.rounds)
    order.report(strategy.laps.seconds, version=version("flwr"))


if __name__ == "__main__":
    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"num_cpus": order.threads}}
    run_simulation(server, client, num_supernodes=work.population, backend_config=resources)
