"""`python -m tests.attacks --seconds 600 --seed 1`: attack random rounds for a while, and print what attains too much."""

from __future__ import annotations

import argparse
import sys
import time

from tests.attacks.hunt import Tally, hunt


def main() -> int:
    """Whether anything was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.attacks", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    tally, end = Tally(), time.monotonic() + asked.seconds
    for found in hunt(asked.seed, tally):
        if found is not None:
            print(found, flush=True)
        if time.monotonic() > end:
            break
    print(f"seed {asked.seed}: {tally}")
    return 1 if tally.counts["violations"] else 0


if __name__ == "__main__":
    sys.exit(main())
