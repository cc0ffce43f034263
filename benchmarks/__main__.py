"""`python -m benchmarks [NAME ...] [OPTIONS]`: run the named benchmarks, or all; options go to each of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
NAMES = ("engine", "accounting", "per_record")


def main(arguments: list[str]) -> int:
    """Each benchmark in a process of its own, so that none inherits another's threads or memory."""
    names = []
    while arguments and not arguments[0].startswith("-"):
        names.append(arguments.pop(0))
    if unknown := [name for name in names if name not in NAMES]:
        print(f"no benchmark {unknown[0]!r}. There are {', '.join(NAMES)}.", file=sys.stderr)
        return 2
    failed = False
    for name in names or NAMES:
        if not (HERE / f"{name}.py").exists():
            print(f"{name}: not in this checkout.", file=sys.stderr)
            failed = True
            continue
        run = subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *arguments], cwd=HERE.parent)
        failed = failed or run.returncode != 0
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
