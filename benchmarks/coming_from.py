"""Peers and us side by side: `python -m benchmarks coming_from [--peers DIR] [--quick]`.

Runs the pairs of scripts in `benchmarks/peers/coming_from`, which `docs/coming-from.md` shows, each in its own environment; says
what each prints, and what is proven for what each peer really does; and takes the time of a private step. Writes
results/coming_from.json and results/coming_from.md.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

import sfumato
from benchmarks import peers
from benchmarks.per_record import cnn_mnist
from sfumato.account.event import Relation, Unit
from sfumato.account.protocol import accountant
from sfumato.pieces.law import Gaussian
from sfumato.pieces.sampler import parse_drawn
from sfumato.planning.setting import Setting

RESULTS = Path(__file__).parent / "results"
SCRIPTS = peers.SCRIPTS / "coming_from"
DELTA = 1e-5
RECORDS, BATCH = 5000, 256


def shuffled(noise: float) -> float:
    """Three shuffled passes: each record is in three batches, each time as if it were known in which. Swapping it costs 2 clips."""
    return sfumato.epsilon(noise_multiplier=noise, delta=DELTA, steps=3, relation="replace")


def zeroed(noise: float) -> float:
    """The same if a record is replaced by nothing, and all others stay in their batches."""
    return sfumato.epsilon(noise_multiplier=noise, delta=DELTA, steps=3, relation="zero-out")


def in_turn(noise: float) -> float:
    """Twenty cohorts of 50 of 1000 users who take turns: each takes part once, and everybody knows when."""
    return sfumato.epsilon(noise_multiplier=noise, delta=DELTA, steps=1, relation="replace")


def fixed_cohort(noise: float) -> float:
    """Ten of twenty clients in each of five rounds: one that joins displaces another."""
    setting = Setting(Gaussian(noise), parse_drawn("fixed:10/20"), 5, Unit.CLIENT, Relation.ADD_REMOVE)
    return accountant("auto").epsilon(setting.event(), DELTA)


def poisson(noise: float) -> float:
    return sfumato.epsilon(noise_multiplier=noise, delta=DELTA, rate=0.05, steps=60)


# A peer, the number that it prints, what it really does, and what is proven for that with the noise that it prints.
ROWS: tuple[tuple[str, str, str, Callable[[float], float]], ...] = (
    ("opacus", "epsilon", "Poisson batches, add/remove", poisson),
    ("opacus, shuffled", "epsilon", "`poisson_sampling=False` shuffles: replace", shuffled),
    ("tensorflow_privacy", "epsilon", "`fit` shuffles: replace", shuffled),
    ("tensorflow_privacy", "once", "`fit` shuffles: zero-out", zeroed),
    ("pfl", "epsilon", "users in turn (`minimize_reuse`), replace", in_turn),
    ("flower", "epsilon", "a fixed cohort, add/remove", fixed_cohort),
)
SAYS = {
    "noise multiplier": r"^noise multiplier ([\d.]+)$",
    "epsilon": r"^(?:epsilon|    Epsilon assuming Poisson sampling \(\*\):) +([\d.]+)$",
    "once": r"^    Epsilon with each example occurring once per epoch: +([\d.]+)$",
}


def told(python: Path, script: str) -> dict[str, float]:
    """The numbers that a script prints, and the seconds that its process took."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(peers.ROOT / "src"), str(peers.ROOT)))}
    start = time.perf_counter()
    run = subprocess.run([python, SCRIPTS / f"{script}.py"], env=environment, capture_output=True, text=True)
    if run.returncode:
        raise SystemExit(f"{script} failed:\n{run.stderr[-2000:]}")
    said = {name: re.search(pattern, run.stdout, re.MULTILINE) for name, pattern in SAYS.items()}
    numbers = {name: float(found[1]) for name, found in said.items() if found}
    return {**numbers, "seconds": time.perf_counter() - start}


def steps_of(made: Iterator[object]) -> Callable[[], float]:
    """A function that takes one step, and says how much processor time it took."""

    def step() -> float:
        start = time.process_time()
        next(made)
        return time.process_time() - start

    return step


def our_steps(steps: int) -> dict[str, float]:
    """Median seconds of a step of `private`, and of the recipe `dp-sgd` in the engine; the two take turns."""
    torch.set_num_threads(1)
    data, module = (torch.randn(RECORDS, 1, 28, 28), torch.randint(0, 10, (RECORDS,))), cnn_mnist()
    objective = sfumato.classification(10)
    session = sfumato.private(
        module, torch.optim.SGD(module.parameters(), lr=0.1), data, objective,
        batch_size=BATCH, records=RECORDS, steps=steps, noise_multiplier=1.0,
    )  # fmt: skip
    options = {"batch": f"poisson:{BATCH / RECORDS}", "records": RECORDS, "optimizer": "sgd", "lr": 0.1}
    round = sfumato.recipes.build("dp-sgd", 1, options)
    population = sfumato.Population.from_list([data])
    engine = sfumato.simulate(round, population, cnn_mnist(), objective, rounds=steps)
    sides = {"private": steps_of(iter(session)), "recipe": steps_of(iter(engine))}
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(steps):
        for name, step in sides.items():
            times[name].append(step())
    return {name: statistics.median(taken[2:]) for name, taken in times.items()}


def their_steps(python: Path, steps: int) -> dict[str, float]:
    environment = {**os.environ, "PYTHONPATH": str(peers.ROOT)}
    command = [str(python), str(peers.SCRIPTS / "opacus_steps.py"), str(RECORDS), str(BATCH), str(steps)]
    run = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(run.stdout.splitlines()[-1])
    return found


def page(found: dict[str, Any]) -> str:
    lines = [
        "# Coming from a peer",
        "",
        f"From `python -m benchmarks coming_from`. {found['versions']}.",
        "",
        "delta = 1e-5. Seconds are those of the whole process, imports included, on a machine that did other things too.",
        "",
        "| peer | epsilon it prints | its noise | seconds | epsilon of our script | our noise | seconds |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, sides in found["pairs"].items():
        cells = [f"{s['epsilon']:.4g} | {s['noise multiplier']:.4g} | {s['seconds']:.1f}" for s in sides.values()]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    lines += ["", "What is proven, by our functions, for what the peer really does with that noise:", ""]
    lines += ["| peer | what it does | epsilon it prints | epsilon that is proven |", "|---|---|---:|---:|"]
    lines += [
        f"| {row['peer']} | {row['does']} | {row['prints']:.4g} | {row['proven']:.4g} |" for row in found["proven"]
    ]
    lines += [
        "",
        f"Against Flower's fixed cohort an explicit pair of populations attains epsilon {found['attained']:.4g}: all clients send",
        "one update of the clip norm, and the one that joins sends its opposite.",
        "",
        f"A step on cnn-mnist (108,618 parameters), {BATCH} of {RECORDS:,} records expected, in processor time on one thread:",
        "",
        "| | ms | over `private` |",
        "|---|---:|---:|",
    ]
    base = found["steps"]["private"]
    lines += [f"| {name} | {1000 * value:.1f} | {value / base:.2f} |" for name, value in found["steps"].items()]
    return "\n".join([*lines, ""])


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    peers.add_option(parser)
    parser.add_argument("--quick", action="store_true", help="fewer steps: rough times")
    options = parser.parse_args(arguments)
    names = ("opacus", "tensorflow_privacy", "pfl", "flower")
    pairs = {
        name: {
            "theirs": told(peers.python(name, options.peers), f"{name}_theirs"),
            "ours": told(Path(sys.executable), f"{name}_ours"),
        }
        for name in names
    }
    theirs = {name: sides["theirs"] for name, sides in pairs.items()}
    theirs["opacus, shuffled"] = told(peers.python("opacus", options.peers), "opacus_shuffled")
    proven = [
        {
            "peer": name,
            "does": does,
            "prints": theirs[name][which],
            "proven": price(theirs[name]["noise multiplier"]),
        }
        for name, which, does, price in ROWS
    ]
    # Whoever joins twenty clients is among the ten with chance 10/21, and then the sum moves by two clip norms.
    attained = sfumato.epsilon(
        noise_multiplier=theirs["flower"]["noise multiplier"] / 2, delta=DELTA, rate=10 / 21, steps=5
    )
    count = 15 if options.quick else 40
    opacus = their_steps(peers.python("opacus", options.peers), count)
    steps = {
        **our_steps(count),
        "Opacus, hooks": opacus["hooks"],
        "Opacus, ghost clipping": opacus["ghost"],
    }
    pinned = [line for name in names for line in (peers.SCRIPTS / f"{name}.txt").read_text().split()]
    versions = ", ".join(
        line for line in dict.fromkeys(pinned) if line.startswith(("opacus", "tensorflow", "pfl", "flwr"))
    )
    found = {"versions": versions, "pairs": pairs, "proven": proven, "attained": attained, "steps": steps}
    (RESULTS / "coming_from.json").write_text(json.dumps(found, indent=1) + "\n")
    (RESULTS / "coming_from.md").write_text(page(found))
    print((RESULTS / "coming_from.md").read_text())


if __name__ == "__main__":
    main()
