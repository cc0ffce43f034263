"""Flower's own FedAvg. When a round ends is written down by its own hook for evaluation at the server; nobody else evaluates."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    times: list[float] = []
    start = ArrayRecord([np.zeros(int(context.run_config["numbers"]), dtype=np.float32)])
    strategy = FedAvg(fraction_evaluate=0.0, min_available_nodes=3, min_train_nodes=3)
    strategy.start(
        grid,
        start,
        num_rounds=int(context.run_config["rounds"]),
        evaluate_fn=lambda number, arrays: times.append(time.time()),
    )
    Path(str(context.run_config["out"])).write_text(json.dumps(times))
