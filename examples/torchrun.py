"""One run on several processes with nothing but torch, which gives what one process alone gives, to the bit.

    torchrun --nproc-per-node 3 examples/torchrun.py

The process of rank 0 serves, the others train shards of each cohort. Clients' data lie in a folder, which each of them reads for
itself.
"""

import hashlib
import os
import tempfile
from pathlib import Path

import torch

from sfumato import Key, Plan, Population, classification, simulate
from sfumato.engine.on_gloo import gloo_workers
from sfumato.engine.workers import Here
from sfumato.recipes.dp_fedavg import dp_fedavg


def write_clients(folder: Path, clients: int) -> None:
    for number, x in enumerate(Key.from_seed(0).normal(clients, 12, 4).float()):
        torch.save({"x": x, "y": (x[:, 0] > 0).long()}, folder / f"{number:03}.pt")


def main() -> None:
    cohort = gloo_workers() if "RANK" in os.environ else Here  # ranks 1 and up stay there until all is over
    plan = Plan("stacked", block=16, shards=2)  # one for each worker
    model = torch.nn.Linear(4, 2)
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.zeros_(model.bias)
    with tempfile.TemporaryDirectory() as folder:
        write_clients(Path(folder), 100)
        people = Population.from_folder(folder, name="people")
        run = simulate(dp_fedavg(100), people, model, classification(2), rounds=5, seed=0, plan=plan, cohort=cohort)
        *_, progress = run
    bits = hashlib.sha256(progress.params.numpy().tobytes()).hexdigest()[:16]
    print(f"round {progress.round}: epsilon {progress.epsilon():.3f}, parameters {bits}")


if __name__ == "__main__":
    main()
