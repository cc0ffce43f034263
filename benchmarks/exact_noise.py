"""Exact noise: the time of 1,690,046 draws on one core, beside float64's and, where it is installed, opendp's.

    python -m benchmarks exact_noise [--quick]

Writes results/exact_noise.json and results/exact_noise.md.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from sfumato.exact_draws import discrete_gaussian, rounded_gaussian
from sfumato.key import Key

COUNT = 1_690_046
STDDEVS = (3.0, 1000.0, 2.0**20)
TARGETS = {"rounded Gaussian": 0.3, "discrete Gaussian": 0.2}
RESULTS = Path(__file__).parent / "results"


def seconds(draw: Callable[[Key], Any], turns: int) -> list[float]:
    """Of this process's own work, so that other programs do not count."""
    times = []
    for turn in range(turns):
        start = time.process_time()
        draw(Key.from_seed(turn))
        times.append(time.process_time() - start)
    return times


def opendp_row(turns: int) -> dict[str, Any] | None:
    try:
        import opendp.prelude as dp
    except ImportError:
        return None
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
    measurement, few = dp.m.make_gaussian(*space, scale=STDDEVS[-1]), COUNT // 100
    times = [100 * one for one in seconds(lambda key: measurement([0] * few), turns)]
    return {
        "what": f"opendp, discrete Gaussian of {STDDEVS[-1]:g} (a hundredth, times 100)",
        "seconds": times,
        "target": None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer turns")
    turns = 3 if parser.parse_args().quick else 15
    torch.set_num_threads(1)
    rows = []
    for name, draw in (("rounded Gaussian", rounded_gaussian), ("discrete Gaussian", discrete_gaussian)):
        for stddev in STDDEVS:
            times = seconds(lambda key: draw(COUNT, stddev, key), turns)  # noqa: B023
            rows.append({"what": f"{name} of {stddev:g} steps", "seconds": times, "target": TARGETS[name]})
    Key.from_seed(0).normal(1)
    rows.append({"what": "float64 Gaussian", "seconds": seconds(lambda key: key.normal(COUNT), turns), "target": None})
    if (theirs := opendp_row(turns)) is not None:
        rows.append(theirs)
    machine = {"processor": platform.processor() or platform.machine(), "python": platform.python_version()}
    RESULTS.joinpath("exact_noise.json").write_text(
        json.dumps({**machine, "count": COUNT, "rows": rows}, indent=1) + "\n"
    )
    lines = [
        f"{COUNT:,} draws on one core, seconds of processor time, median of {turns}.",
        "",
        "| what | seconds | at most |",
    ]
    lines.append("|---|---|---|")
    for row in rows:
        lines.append(f"| {row['what']} | {statistics.median(row['seconds']):.3f} | {row['target'] or ''} |")
    RESULTS.joinpath("exact_noise.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
