"""`python -m benchmarks [NAME ...] [OPTIONS]`: run the named benchmarks, or all. With one name, any of its own options."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
PEERS, QUICK = "--peers", "--quick"
NAMES = {
    "engine": (PEERS, QUICK),
    "accounting": (),
    "per_record": (PEERS, QUICK),
    "client_level": (QUICK,),
    "exact_noise": (QUICK,),
    "neighbours": (QUICK,),
    "scattering": (PEERS, QUICK),
    "secure_sum": (QUICK,),
    "federation": (QUICK,),
    "ray_cluster": (QUICK,),
    "mechanisms": (PEERS,),
    "coming_from": (PEERS, QUICK),
    "hugging_face": (PEERS,),
    "audit": (QUICK,),
}


def main(arguments: list[str]) -> int:
    """Each benchmark in a process of its own, so that none inherits another's threads or memory."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    parser.add_argument(PEERS, help="folder of the peers' environments")
    parser.add_argument(QUICK, action="store_true", help="fewer turns: rough numbers")
    options, others = parser.parse_known_args(arguments)
    names = options.names or list(NAMES)
    if unknown := [name for name in names if name not in NAMES]:
        parser.error(f"no benchmark {unknown[0]!r}. There are {', '.join(NAMES)}.")
    if others and len(names) > 1:
        parser.error(f"{others[0]}: only one benchmark at a time takes options of its own.")
    failed = False
    for name in names:
        peers = [PEERS, options.peers] if options.peers and PEERS in NAMES[name] else []
        quick = [QUICK] if options.quick and QUICK in NAMES[name] else []
        run = subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *peers, *quick, *others], cwd=HERE.parent)
        failed = failed or run.returncode != 0
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
