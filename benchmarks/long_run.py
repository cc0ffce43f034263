"""A run of many rounds: `python -m benchmarks.long_run [--rounds N] [--quick]`.

A ledger with a hundred thousand entries must not make a round slower, nor the first round of a run that is to have so many. One
run of dp-sgd's kind (one holder, small batches), in a folder, with a budget that suffices. Processor time is compared, which
other programs on the machine disturb less than the clock; a number is the median over rounds.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import tempfile
import time
from pathlib import Path

import torch

from sfumato import Population, classification, recipes, simulate

RESULTS = Path(__file__).parent / "results"
WINDOW = 1000  # rounds


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.long_run", description=__doc__)
    parser.add_argument("--rounds", type=int, default=100_000)
    parser.add_argument("--quick", action="store_true", help="10,000 rounds")
    options = parser.parse_args(arguments)
    rounds = 10_000 if options.quick else options.rounds
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2000, 20, generator=generator)
    people = Population.from_list([(x, (x[:, 0] > 0).long())])
    round = recipes.build("dp-sgd", 1, {"records": 2000, "batch": "poisson:0.01", "noise_multiplier": 20.0})
    used: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        run = simulate(
            round, people, torch.nn.Linear(20, 2), classification(2), rounds=rounds, folder=Path(folder) / "run",
            budget=(50.0, 1e-6),
        )  # fmt: skip
        for progress in run:
            if progress.round == 1:
                first = time.monotonic() - began
            used.append(time.process_time())
        began = time.monotonic()
        epsilon = run.epsilon(progress)
        priced = time.monotonic() - began
        size = (Path(folder) / "run" / "ledger.sqlite").stat().st_size
    times = [after - before for before, after in itertools.pairwise(used)]
    early, late = (statistics.median(part) for part in (times[:WINDOW], times[-WINDOW:]))
    found = {
        "rounds": rounds,
        "seconds_to_first_round": first,
        "milliseconds_of_first_1000": early * 1e3,
        "milliseconds_of_last_1000": late * 1e3,
        "last_over_first": late / early,
        "seconds_to_price_the_end": priced,
        "epsilon": epsilon,
        "ledger_megabytes": size / 1e6,
    }
    text = "\n".join(
        [
            "# A run of many rounds",
            "",
            "`python -m benchmarks.long_run`: medians of processor time over 1,000 rounds.",
            "",
            "| | |",
            "|---|---|",
            *(f"| {name.replace('_', ' ')} | {value:,.4g} |" for name, value in found.items()),
        ]
    )
    print(text)
    (RESULTS / "long_run.json").write_text(json.dumps(found, indent=2) + "\n")
    (RESULTS / "long_run.md").write_text(text + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
