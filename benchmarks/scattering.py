"""The scattering of pictures beside kymatio: how far the numbers are apart, and milliseconds per picture on one core.

    python -m benchmarks scattering [--peers DIR] [--quick]

kymatio scatters the same pictures in its own environment: by numpy in float64, which is what ours are compared with, and by
torch, which is timed. Writes results/scattering.json and results/scattering.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks import peers
from benchmarks.engine import busy_cores
from sfumato.data import load
from sfumato.errors import DataError
from sfumato.features import Scattering, mapped, parse_features

CASES = ((2, 1, 28, 28), (2, 3, 32, 32), (3, 1, 24, 30), (1, 2, 9, 14), (2, 1, 4, 5))  # scales and shape
WORDS = ("scattering", "scattering,group-norm")
TARGETS = {"1x28x28": 1.0}  # milliseconds
APART = 1e-5
RESULTS = Path(__file__).parent / "results"


def cases(count: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        f"{scales} {'x'.join(map(str, shape))}": torch.rand(count, *shape, generator=generator)
        for scales, *shape in CASES
    }


def theirs(pictures: dict[str, Tensor], folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    script = peers.SCRIPTS / "kymatio_scattering.py"
    with tempfile.TemporaryDirectory() as place:
        given, found, seconds = (Path(place) / name for name in ("given.npz", "found.npz", "seconds.json"))
        np.savez(given, **{name: x.numpy() for name, x in pictures.items()})
        subprocess.run([peers.python("kymatio", folder), script, given, found, seconds], check=True)
        numbers = np.load(found)
        return {name: torch.from_numpy(numbers[name]) for name in numbers.files}, json.loads(seconds.read_text())


def measure(pictures: dict[str, Tensor], folder: Path, turns: int) -> tuple[list[dict[str, Any]], str]:
    """A number is the median over turns, of this process's own work, so that other programs count less."""
    expected, told = theirs(pictures, folder)
    rows = []
    for name, x in pictures.items():
        step, times = Scattering(int(name.split()[0])), []
        found = step(x)
        for _ in range(turns):
            start = time.process_time()
            step(x)
            times.append((time.process_time() - start) / len(x))
        apart, largest = float((found.double() - expected[name]).abs().max()), float(expected[name].abs().max())
        rows.append(
            {"what": name, "seconds": times, "kymatio": told["seconds"][name], "apart": apart, "largest": largest}
        )
        print(rows[-1], flush=True)
    return rows, told["version"]


def pools(threads: int) -> list[dict[str, Any]]:
    """MNIST's 60,000 pictures, from bytes, by threads; nothing where it is not."""
    try:
        mnist = load("mnist").unscaled
    except DataError:
        return []
    rows = []
    torch.set_num_threads(threads)
    for words in WORDS:
        wall, own = time.perf_counter(), time.process_time()
        mapped(parse_features(words), mnist.pool.x, mnist.scaling)
        rows.append({"words": words, "wall": time.perf_counter() - wall, "processor": time.process_time() - own})
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer turns, and no pool")
    peers.add_option(parser)
    options = parser.parse_args()
    torch.set_num_threads(1)
    others, turns, count = busy_cores(), 3 if options.quick else 9, 128
    rows, version = measure(cases(count), options.peers, turns)
    pool = [] if options.quick else pools(os.cpu_count() or 1)
    setting = {
        "torch": torch.__version__, "kymatio": version, "python": platform.python_version(), "cores": os.cpu_count(),
        "pictures": count, "turns": turns, "busy cores of other programs before": others,
    }  # fmt: skip
    found = {"setting": setting, "rows": rows, "pools": pool}
    RESULTS.joinpath("scattering.json").write_text(json.dumps(found, indent=1) + "\n")
    lines = [
        "# Scattering",
        "",
        f"From `python -m benchmarks scattering{' --quick' * options.quick}`: `Scattering(scales)` beside kymatio's "
        "`Scattering2D(J=scales, L=8, max_order=2)`. Milliseconds of processor time per picture on one core; ours takes one "
        f"picture at a time, so that no picture's numbers depend on another's. Held to numbers that are at most {APART:g} apart.",
        ", ".join(f"{name} {value}" for name, value in setting.items()) + ".",
        "",
        "| scales, pictures | largest difference | largest number | ours | at most | kymatio, single | kymatio, 32 at once |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        ours = 1e3 * statistics.median(row["seconds"])
        one, many = (1e3 * row["kymatio"][f"{batch} at a time"] for batch in (1, 32))
        target = TARGETS.get(row["what"].split()[1], "")
        lines.append(
            f"| {row['what'].replace(' ', ', ')} | {row['apart']:.1e} | {row['largest']:.2f} | {ours:.2f} | {target} | {one:.2f} "
            f"| {many:.2f} |"
        )
    if pool:
        lines += ["", f"MNIST's 60,000 pictures, from bytes, {os.cpu_count()} threads:", ""]
        lines += ["| features | seconds | of processor time |", "|---|---:|---:|"]
        lines += [f"| `{row['words']}` | {row['wall']:.1f} | {row['processor']:.1f} |" for row in pool]
    RESULTS.joinpath("scattering.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    if any(row["apart"] > APART for row in rows):
        raise SystemExit("the numbers are further apart than they may be.")


if __name__ == "__main__":
    main()
