"""Rounds of training, beside pfl and Flower: `python -m benchmarks.engine [--quick] [--peers DIR]`.

Each side trains the same model on records of the same sizes, with clip and noise and without evaluation, in a process of its
own. The sides take turns; a number is the median over the rounds of all turns after each turn's warm-up, a ratio is one of
medians. Next to a ratio stand the lowest and highest ratio of a single turn.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import peers
from benchmarks.workload import Order, Workload

RESULTS = Path(__file__).parent / "results"
OURS = "sfumato"

LOGISTIC = Workload("logistic", "logistic")
MLP = Workload("mlp", "mlp")
CNN = Workload("cnn-emnist", "cnn-emnist", population=100, records=178, cohort=10, epochs=1, batch_size=32)
MILLION = Workload("population 1,000,000", "logistic", population=1_000_000)
COHORT_400 = Workload("cohort 400", "logistic", cohort=400)

# (workload, side, rounds, rounds of a quick run): enough rounds for a few seconds of each.
CONTENDERS = (
    (LOGISTIC, OURS, 40, 10),
    (LOGISTIC, "pfl", 8, 4),
    (LOGISTIC, "flower", 5, 3),
    (MLP, OURS, 10, 4),
    (MLP, "pfl", 6, 3),
    (MLP, "flower", 5, 3),
    (CNN, OURS, 4, 2),
    (CNN, "pfl", 3, 2),
    (MILLION, OURS, 40, 10),
    (COHORT_400, OURS, 8, 4),
)

Medians = Callable[[Workload, str], float]


@dataclass(frozen=True)
class Comparison:
    """A ratio with its target: at least so much where more is better, else at most."""

    title: str
    value: Callable[[Medians], float]
    target: float
    more_is_better: bool = True
    goal: float | None = None

    def verdict(self, ratio: float) -> str:
        """In words."""
        met = ratio >= self.target if self.more_is_better else ratio <= self.target
        if not met:
            return f"missed by {abs(ratio - self.target) / self.target:.0%}"
        return "goal met" if self.goal is not None and ratio >= self.goal else "met"


def _faster(work: Workload, peer: str, target: float, goal: float | None = None) -> Comparison:
    title = f"{work.name}: times as fast as {peer}"
    return Comparison(title, lambda median: median(work, peer) / median(work, OURS), target, goal=goal)


SPEED = (
    _faster(LOGISTIC, "pfl", 8.0, 15.0),
    _faster(LOGISTIC, "flower", 16.0, 30.0),
    _faster(MLP, "pfl", 8.0, 15.0),
    _faster(MLP, "flower", 16.0, 30.0),
    _faster(CNN, "pfl", 1.3),
    Comparison(
        "population 1,000,000: time of a round over that with 1,000",
        lambda median: median(MILLION, OURS) / median(LOGISTIC, OURS),
        1.2,
        more_is_better=False,
    ),
    Comparison(
        "cohort 400: time per client over that with 50",
        lambda median: median(COHORT_400, OURS) / median(LOGISTIC, OURS) * LOGISTIC.cohort / COHORT_400.cohort,
        1.15,
        more_is_better=False,
    ),
)
IDLE = 0.2  # cores that others may use on a machine that counts as idle
MOST_MEMORY = 1e9  # bytes more for a million clients


def run_once(work: Workload, side: str, rounds: int, options: argparse.Namespace) -> dict[str, Any]:
    """One process of one side."""
    interpreter = Path(sys.executable) if side == OURS else peers.python(side, options.peers)
    others = wait_for_idle(options.patience)
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "out.json"
        order = Order(work, rounds, 2 if rounds > 5 else 1, options.threads, str(out))
        script = str(peers.SCRIPTS / f"{side}_rounds.py")
        path = os.pathsep.join([str(peers.ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": str(options.threads)}
        process = subprocess.run(
            [str(interpreter), script, *order.arguments()], env=environment, capture_output=True, text=True, cwd=scratch
        )
        if not out.exists():
            raise SystemExit(f"{side} on {work.name} failed:\n{process.stderr[-2000:]}")
        return {**json.loads(out.read_text()), "busy_cores_before": others}


def wait_for_idle(patience: float) -> float | None:
    """Wait for other programs to leave the cores alone, but not for ever; give back how many cores they then use."""
    end = time.monotonic() + patience
    while (busy := busy_cores()) is not None and busy > IDLE and time.monotonic() < end:
        pass
    return busy


def busy_cores(seconds: float = 0.5) -> float | None:
    """How many cores other programs keep busy just now; None where the system does not say."""
    try:
        before, after = _cpu_seconds(), (time.sleep(seconds), _cpu_seconds())[1]
    except OSError:
        return None
    return round((after - before) / seconds, 2)


def _cpu_seconds() -> float:
    user, nice, system, _, _, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def measure(turns: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Every contender once in each turn: one after another, so that a slow hour meets all of them."""
    found = []
    for turn in range(turns):
        for work, side, rounds, few in CONTENDERS:
            result = run_once(work, side, few if options.quick else rounds, options)
            found.append({"turn": turn, "workload": work.name, "side": side, **result})
            median = 1e3 * statistics.median(result["seconds"])
            print(f"turn {turn + 1}/{turns}  {work.name:22} {side:8} {median:9.1f} ms a round", flush=True)
    return found


def summary(found: list[dict[str, Any]], threads: int) -> dict[str, Any]:
    """Medians and ratios, with what is needed to judge them."""

    def medians(runs: list[dict[str, Any]]) -> Medians:
        def median(work: Workload, side: str) -> float:
            own = [run for run in runs if (run["workload"], run["side"]) == (work.name, side)]
            return statistics.median(second for run in own for second in run["seconds"])

        return median

    turns = [[run for run in found if run["turn"] == turn] for turn in sorted({run["turn"] for run in found})]
    overall = medians(found)
    rounds = [
        {"workload": work.name, "side": side, "milliseconds": 1e3 * overall(work, side)}
        for work, side, *_ in CONTENDERS
    ]
    comparisons = []
    for comparison in SPEED:
        ratio = comparison.value(overall)
        single = [comparison.value(medians(turn)) for turn in turns]
        facts = {"title": comparison.title, "ratio": ratio, "lowest": min(single), "highest": max(single)}
        bound = {"target": comparison.target, "goal": comparison.goal, "at_least": comparison.more_is_better}
        comparisons.append({**facts, **bound, "verdict": comparison.verdict(ratio)})
    peak = {
        work.name: statistics.median(r["peak_bytes"] for r in found if r["workload"] == work.name and r["side"] == OURS)
        for work in (LOGISTIC, MILLION)
    }
    more = peak[MILLION.name] - peak[LOGISTIC.name]
    busy = [run["busy_cores_before"] for run in found if run["busy_cores_before"] is not None]
    return {
        "setting": {
            "cores": os.cpu_count(),
            "machine": platform.machine(),
            "python": platform.python_version(),
            "torch": found[0]["torch"],
            **{run["side"]: run["version"] for run in found},
            "threads": threads,
            "turns": len(turns),
            "busy cores of other programs, median": statistics.median(busy) if busy else None,
        },
        "plans": {run["workload"]: run["plan"] for run in found if "plan" in run},
        "rounds": rounds,
        "comparisons": comparisons,
        "memory": {
            "more_bytes_for_a_million_clients": more,
            "target": MOST_MEMORY,
            "verdict": "met" if more < MOST_MEMORY else f"missed by {more / MOST_MEMORY - 1:.0%}",
        },
        "runs": found,
    }


def page(result: dict[str, Any]) -> str:
    """The result as a page of Markdown."""
    times = {(row["workload"], row["side"]): row["milliseconds"] for row in result["rounds"]}
    lines = [
        "# Rounds of training",
        "",
        "From `python -m benchmarks.engine`. " + ", ".join(f"{k} {v}" for k, v in result["setting"].items()) + ".",
        "",
        "| workload | ours, ms a round | peer | peer, ms a round |",
        "|---|---:|---|---:|",
    ]
    for (work, side), milliseconds in times.items():
        if side != OURS:
            lines.append(f"| {work} | {times[work, OURS]:,.1f} | {side} | {milliseconds:,.1f} |")
        elif not any(other != OURS for name, other in times if name == work):
            lines.append(f"| {work} | {milliseconds:,.1f} | | |")
    lines += ["", "| ratio | measured | single turns | target | goal | |", "|---|---:|---:|---:|---:|---|"]
    for row in result["comparisons"]:
        sign, goal = ("at least" if row["at_least"] else "at most"), row["goal"] or ""
        span = f"{row['lowest']:.2f} to {row['highest']:.2f}"
        lines.append(
            f"| {row['title']} | {row['ratio']:.2f} | {span} | {sign} {row['target']} | {goal} | {row['verdict']} |"
        )
    memory = result["memory"]
    more, most = memory["more_bytes_for_a_million_clients"] / 1e6, memory["target"] / 1e6
    lines.append(
        f"| population 1,000,000: more memory than 1,000, MB | {more:.0f} | | at most {most:.0f} | | {memory['verdict']} |"
    )
    lines += ["", "Our plans: " + "; ".join(f"{work}: {plan}" for work, plan in result["plans"].items()) + "."]
    busy = result["setting"]["busy cores of other programs, median"]
    if busy is not None and busy > IDLE:
        lines += ["", "The machine was not idle: other programs ran beside both sides, and these numbers are rough."]
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> None:
    """Measure, print and store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    peers.add_option(parser)
    parser.add_argument("--quick", action="store_true", help="two turns of few rounds")
    parser.add_argument("--turns", type=int, help="how often each side is run (default 5; quick: 2)")
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument(
        "--patience", type=float, default=20.0, help="seconds to wait for an idle machine before each process"
    )
    options = parser.parse_args(arguments)
    for name in peers.NAMES:
        peers.python(name, options.peers)  # made before anything is timed
    turns = options.turns or (2 if options.quick else 5)
    result = summary(measure(turns, options), options.threads)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "engine.json").write_text(json.dumps(result, indent=1) + "\n")
    (RESULTS / "engine.md").write_text(page(result))
    print("\n" + page(result))


if __name__ == "__main__":
    main()
