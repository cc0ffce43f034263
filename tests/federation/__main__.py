"""`python -m tests.federation --rounds 200 --seconds 1800 --seed 1`: a long run among faults, and everything killed everywhere.

Writes benchmarks/results/federation_faults.json and .md.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

from tests.federation.matrix import matrix
from tests.federation.site import ROOT, opened
from tests.federation.soak import Soak, page, write


def main() -> int:
    """0 if nothing was found; what is found is an error that says so."""
    parser = argparse.ArgumentParser(prog="python -m tests.federation", description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=1800.0, help="after these no more faults come")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-matrix", action="store_true", help="only the long run")
    parser.add_argument("--no-soak", action="store_true", help="only what is killed where")
    told = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if not told.no_matrix:
            (Path(folder) / "matrix").mkdir()
            with opened(Path(folder) / "matrix", federation={"deadline": 8.0, "wait": 60.0}) as site:
                matrix(site)
        if not told.no_soak:
            (Path(folder) / "soak").mkdir()
            with opened(Path(folder) / "soak", federation={"deadline": 5.0, "wait": 60.0}) as site:
                result = Soak(site, told.rounds, told.seed, told.seconds).run()
            write(result, ROOT / "benchmarks" / "results")
            print(page(result))
            return 0 if result["finished"] else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
