"""What clip and noise functions of peers do on inputs that are not ordinary, and whether our bounds are those of a peer.

    python -m benchmarks mechanisms [--peers DIR]

Flower's functions run in this environment, where the same version is pinned; Opacus' and jax-privacy's in theirs. Every pair of
inputs runs twice with the same noise (`sfumato.testing.replay`), so what is shown are facts, without any chance. Writes
results/mechanisms.json and results/mechanisms.md.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks import peers

RESULTS = Path(__file__).parent / "results"


def told(python: Path, script: str) -> dict[str, Any]:
    """What a peer's script prints."""
    source = Path(__file__).parent.parent / "src"
    run = subprocess.run(
        [python, peers.SCRIPTS / f"{script}.py"],
        env={**os.environ, "PYTHONPATH": str(source)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(run.stdout)
    return found


def page(flower: dict[str, Any], opacus: dict[str, Any], bounds: dict[str, Any], versions: str) -> str:
    lines = [
        "# Clip and noise of peers, on inputs that are not ordinary",
        "",
        f"From `python -m benchmarks mechanisms`. {versions}.",
        "",
        "The same noise in two runs that differ in one unit: whatever the release moves by is not noise. More than is stated, and",
        "the epsilon that is computed from it does not hold for this input.",
        "",
        "| peer | one unit is | the release moves by | stated | |",
        "|---|---|---:|---:|---|",
    ]
    for row in (*flower["rows"], *opacus["rows"]):
        held = row["moves"] <= row["stated"] * (1 + 1e-6)
        moves = row["problem"] or f"{row['moves']:.4g}"
        lines.append(f"| {row['peer']} | {row['input']} | {moves} | {row['stated']:.4g} | {'' if held else 'fails'} |")
    lines += ["", f"Flower, attacked from outside (`audit_mechanism`): {flower['audit']}.", ""]
    lines += [
        "Flower refuses unequal weights if its accountant is switched on, and not without it. Opacus' weights are all equal.",
        "",
    ]
    lines += [
        "# Our bounds beside jax-privacy's, on the same scores",
        "",
        "| scores | bound | ours | jax-privacy |",
        "|---|---|---:|---:|",
    ]
    lines += [
        f"| {row['scores']} | {row['bound']} | {row['ours']:.4f} | {row['theirs']:.4f} |" for row in bounds["rows"]
    ]
    return "\n".join([*lines, "", bounds["note"], ""])


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    peers.add_option(parser)
    folder = parser.parse_args(arguments).peers
    flower = told(Path(sys.executable), "flower_mechanisms")
    opacus, bounds = (told(peers.python(name, folder), script) for name, script in THEIRS)
    pinned = [line for name, _ in THEIRS for line in (peers.SCRIPTS / f"{name}.txt").read_text().split()]
    versions = ", ".join(
        [f"flwr=={version('flwr')}", *(line for line in pinned if line.startswith(("opacus", "jax-")))]
    )
    found = {"versions": versions, "flower": flower, "opacus": opacus, "bounds": bounds}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "mechanisms.json").write_text(json.dumps(finite(found), indent=1) + "\n")
    (RESULTS / "mechanisms.md").write_text(page(flower, opacus, bounds, versions))
    print((RESULTS / "mechanisms.md").read_text())


THEIRS = (("opacus", "opacus_mechanisms"), ("jax_privacy", "jax_privacy_bounds"))


def finite(found: Any) -> Any:
    """The same with words for what JSON has no number for."""
    if isinstance(found, dict):
        return {name: finite(value) for name, value in found.items()}
    if isinstance(found, list):
        return [finite(value) for value in found]
    return "infinite" if isinstance(found, float) and not math.isfinite(found) else found


if __name__ == "__main__":
    main()
