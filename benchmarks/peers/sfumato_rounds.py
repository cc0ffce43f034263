"""Time rounds of this project; run by `benchmarks.engine`."""

import torch
from benchmarks.workload import Order

import sfumato as sf


def main() -> None:
    """Take the order from the command line, report the times."""
    order = Order.read()
    work = order.workload
    torch.set_num_threads(order.threads)
    torch.manual_seed(0)
    work.load_all()
    population = sf.Population.from_function(work.client, work.population, work.name)
    round = sf.Round(
        sample=sf.FixedSize(work.cohort),
        local=sf.Sgd(lr=work.lr, epochs=work.epochs, batch_size=work.batch_size),
        client=(sf.Clip(work.clip),),
        aggregate=sf.Mean(work.cohort),
        server=(sf.AddNoise(sf.Gaussian(work.noise_multiplier)),),
    )
    rounds = order.warmup + order.rounds
    run = sf.simulate(round, population, work.module(), sf.classification(work.classes), rounds=rounds)
    plan = run.start.plan
    order.report([progress.seconds for progress in run], plan=str(plan), version=sf.__version__)


if __name__ == "__main__":
    main()
