"""`python -m tests.audit --audits 200`: short audits of random sound rounds, none of which may be called broken.

`--table` prints instead which of 33 sabotaged pieces property tests catch, and which an audit: at least 28.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from random import Random

from sfumato.audit.asked import Asked
from sfumato.audit.verdict import How, audit
from sfumato.errors import SfumatoError
from sfumato.key import Key
from tests.attacks.rounds import draw
from tests.audit.table import table


def main() -> int:
    """The exit status: 1 if a sound round was called broken, or too few sabotages were caught."""
    parser = argparse.ArgumentParser(prog="python -m tests.audit", description=__doc__)
    parser.add_argument("--audits", type=int, default=200)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--table", action="store_true")
    asked = parser.parse_args()
    if asked.table:
        lines, caught = table()
        print("\n".join(lines))
        return int(caught < 28)
    return _audits(asked.audits, asked.runs, asked.seed)


def _audits(wanted: int, runs: int, seed: int) -> int:
    broken = above = done = 0
    started, shares = time.monotonic(), []
    for number in itertools.count():
        if done == wanted:
            break
        case = draw(Random(f"audit {seed} {number}"))
        try:
            round = case.build()
            dimension = sum(case.shape.layers)
            question = Asked(round, case.population, dimension, case.rounds, round.unit, layers=len(case.shape.layers))
            found = audit(question, How(Key.from_seed(seed).child("case", n=number), 1e-3, runs=runs))
        except SfumatoError:
            continue  # refused, as many should be
        if found.claimed is None or (found.bounds is None and not found.broken):
            continue
        done, broken = done + 1, broken + found.broken
        above += found.best > found.claimed
        shares.append(found.best / found.claimed)
        if found.broken:
            print(f"case {number}: {found.sentence}\n{round}", flush=True)
    mean = sum(shares) / max(1, len(shares))
    print(
        f"{done} audits of sound rounds, {runs} runs of each world: {broken} called broken, {above} bounds at 95 % above the truth "
        f"(at most 5 % are expected), on average {mean:.2f} of the proven epsilon, {time.monotonic() - started:.0f} s"
    )
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main())
