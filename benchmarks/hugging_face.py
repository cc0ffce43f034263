"""Hugging Face's data sets and models, as they are installed, under our rounds: `python -m benchmarks hugging_face [--peers DIR]`.

Models are small and begin with random weights, since nothing is fetched. Writes results/hugging_face.json and .md.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks import peers
from benchmarks.mechanisms import told

RESULTS = Path(__file__).parent / "results"
CLOSE = 1e-3  # a sum of clipped gradients in single precision


def page(found: dict[str, Any], versions: str) -> str:
    lines = [
        "# Models and data sets of Hugging Face",
        "",
        f"From `python -m benchmarks hugging_face`. {versions}.",
        "",
        "Small models with random weights. The sum of clipped gradients of one step of `private` is held against a loop of",
        "autograd over single records. Accuracy: 15 rounds of DP-FedAvg over 60 data sets of 20 texts each, on other texts; what a",
        "text is about is half for either, so 0.5 is chance. Seconds are those of a machine that does other work too.",
        "",
        "| model | off a loop, at most 0.001 | accuracy | epsilon at delta 0.001 | seconds |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, one in found["models"].items():
        off, rest = f"{one['off a loop']:.1e}", f"{one['accuracy']:.3f} | {one['epsilon']:.3f} | {one['seconds']:.0f}"
        lines.append(f"| {name} | {off} | {rest} |")
    lines += ["", "What `records_of` makes of data sets:", ""]
    lines += [f"- {what}: {answer}" for what, answer in found["read"].items()]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Status 1 if a gradient is not that of the loop."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks hugging_face", description=__doc__)
    peers.add_option(parser)
    found = told(peers.python("hugging_face", parser.parse_args().peers), "hugging_face_models")
    versions = ", ".join((peers.SCRIPTS / "hugging_face.txt").read_text().split()[:3])
    (RESULTS / "hugging_face.json").write_text(json.dumps(found, indent=2) + "\n")
    (RESULTS / "hugging_face.md").write_text(page(found, versions))
    print(page(found, versions))
    return int(any(one["off a loop"] > CLOSE for one in found["models"].values()))


if __name__ == "__main__":
    raise SystemExit(main())
