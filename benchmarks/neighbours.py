"""The 10 nearest of 50,000 points of 256 numbers, for 10,000 questions, beside scikit-learn's brute force.

    python -m benchmarks neighbours [--quick] [--busy]

Both sides take turns in one process, on the same float32 data. Writes results/neighbours.json and results/neighbours.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sklearn
import torch
from sklearn.neighbors import NearestNeighbors
from threadpoolctl import threadpool_limits
from torch import Tensor

from benchmarks.engine import busy_cores
from sfumato.voting.nearest import nearest

QUESTIONS, POINTS, NUMBERS, K = 10_000, 50_000, 256, 10
TARGET = 10.0  # seconds on two quiet cores
RESULTS = Path(__file__).parent / "results"


def cases() -> dict[str, tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    questions, points = (torch.randn(count, NUMBERS, generator=generator) for count in (QUESTIONS, POINTS))
    return {
        "normal": (questions, points),
        "zeros and ones": ((questions > 0).float(), (points > 0).float()),
        "each point ten times": (questions, points[: POINTS // 10].repeat(10, 1)),
    }


def theirs(questions: Tensor, points: Tensor) -> Tensor:
    fitted = NearestNeighbors(n_neighbors=K, algorithm="brute").fit(points.numpy())
    return torch.from_numpy(fitted.kneighbors(questions.numpy(), return_distance=False))


def ours(questions: Tensor, points: Tensor) -> Tensor:
    return nearest(questions, points, K)


def measure(turns: int, clock: Callable[[], float]) -> list[dict[str, Any]]:
    rows = []
    for name, (questions, points) in cases().items():
        seconds: dict[str, list[float]] = {"ours": [], "theirs": []}
        found = {}
        for _ in range(turns):
            for side, search in (("ours", ours), ("theirs", theirs)):
                start = clock()
                found[side] = search(questions, points).sort(dim=1).values
                seconds[side].append(clock() - start)
        agree = float((found["ours"] == found["theirs"]).all(1).double().mean())
        rows.append({"what": name, "seconds": seconds, "the same neighbours": agree})
        print(f"{name}: {seconds}", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer turns")
    parser.add_argument(
        "--busy", action="store_true", help="one thread and processor time, on a machine with other work"
    )
    options = parser.parse_args()
    turns, threads = 3 if options.quick else 7, 1 if options.busy else 2
    torch.set_num_threads(threads)
    others = busy_cores()
    with threadpool_limits(threads):
        rows = measure(turns, time.process_time if options.busy else time.perf_counter)
    setting = {
        "torch": torch.__version__, "scikit-learn": sklearn.__version__, "python": platform.python_version(),
        "cores": os.cpu_count(), "threads": threads, "clock": "processor time" if options.busy else "wall", "turns": turns,
        "busy cores of other programs before": others,
    }  # fmt: skip
    RESULTS.joinpath("neighbours.json").write_text(json.dumps({"setting": setting, "rows": rows}, indent=1) + "\n")
    lines = [
        "# The nearest neighbours",
        "",
        f"From `python -m benchmarks neighbours{' --busy' * options.busy}{' --quick' * options.quick}`: {K} nearest of {POINTS:,} "
        f"points of {NUMBERS} numbers, for {QUESTIONS:,} questions; seconds, medians. Held to {TARGET:g} s on two quiet cores.",
        ", ".join(f"{name} {value}" for name, value in setting.items()) + ".",
        "",
        "| points | `nearest` | single turns | scikit-learn, brute force | single turns | questions with the same neighbours |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        cells = [
            f"{statistics.median(times):.2f} | {min(times):.2f} to {max(times):.2f}"
            for times in (row["seconds"]["ours"], row["seconds"]["theirs"])
        ]
        lines.append(f"| {row['what']} | {' | '.join(cells)} | {row['the same neighbours']:.1%} |")
    lines += ["", "Where neighbours differ, they tie, and scikit-learn takes any of them; `nearest` takes the first."]
    RESULTS.joinpath("neighbours.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
