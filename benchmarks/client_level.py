"""What the client-level pieces cost on cnn-emnist: 10 clients of 178 records, 5 local epochs, batch 32.

    python -m benchmarks client_level

Rounds of all contenders take turns in one process, with the engine's own plan. For SAM the number is the ratio of the median
rounds. A smoothing or a mask is too cheap for a difference of rounds to show it: for these the time inside the piece is
measured, and divided by the time of the round that it ran in (by the workers' time, where clients run it).
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import platform
import statistics
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

import sfumato as sf
from benchmarks.engine import CNN, RESULTS, busy_cores
from sfumato.engine.plan import Plan
from sfumato.local.sharpness import SharpnessAware
from sfumato.pieces.after_noise import LaplacianSmoothing
from sfumato.pieces.mask import SharedMask, TopK

WORK = replace(CNN, epochs=5)
PLAIN = "Sgd"


@dataclass(frozen=True)
class Contender:
    """A change of the plain round, and what it is held to."""

    name: str
    changed: dict[str, Any]
    target: float
    piece: type | None = None  # timed inside, if given


def contenders() -> list[Contender]:
    """The plain round first."""
    sgd = sf.Sgd(lr=WORK.lr, epochs=WORK.epochs, batch_size=WORK.batch_size)
    clip, noise = sf.Clip(WORK.clip), sf.AddNoise(sf.Gaussian(WORK.noise_multiplier))
    return [
        Contender(PLAIN, {"local": sgd, "client": (clip,), "server": (noise,)}, 1.0),
        Contender("SAM", {"local": replace(sgd, gradient=SharpnessAware(0.5))}, 2.2),
        Contender("adaptive SAM", {"local": replace(sgd, gradient=SharpnessAware(0.5, adaptive=True))}, 2.2),
        Contender("smoothing", {"server": (noise, LaplacianSmoothing(1.0))}, 0.03, LaplacianSmoothing),
        Contender("smoothing per layer", {"server": (noise, LaplacianSmoothing(1.0, per_layer=True))}, 0.03,
                  LaplacianSmoothing),
        Contender("mask of each client's largest", {"client": (TopK(0.4), clip)}, 0.05, TopK),
        Contender("shared random mask", {"client": (SharedMask(0.4), clip)}, 0.05, SharedMask),
    ]  # fmt: skip


class Inside:
    """Adds up the time inside the methods of a class, over all threads."""

    def __init__(self, kind: type) -> None:
        self.seconds, self._lock = 0.0, threading.Lock()
        for name in ("__call__", "prepare", "undo"):
            if hasattr(kind, name):
                setattr(kind, name, self._timed(getattr(kind, name)))

    def _timed(self, method: Any) -> Any:
        @functools.wraps(method)
        def timed(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            try:
                return method(*args, **kwargs)
            finally:
                with self._lock:
                    self.seconds += time.perf_counter() - start

        return timed


def rounds(contender: Contender, base: sf.Round, population: sf.Population, plan: Plan, count: int) -> Iterator[float]:
    """The seconds of each round."""
    round = replace(base, **contender.changed)
    run = sf.simulate(round, population, WORK.module(), sf.classification(WORK.classes), rounds=count, plan=plan)
    return (progress.seconds for progress in run)


def measure(turns: int) -> dict[str, Any]:
    """Medians over turns, the first of which warms up."""
    torch.manual_seed(0)
    WORK.load_all()
    population = sf.Population.from_function(WORK.client, WORK.population, WORK.name)
    every = contenders()
    base = sf.Round(sample=sf.FixedSize(WORK.cohort), aggregate=sf.Mean(WORK.cohort), **every[0].changed)
    plan = sf.simulate(base, population, WORK.module(), sf.classification(WORK.classes), rounds=1).start.plan
    running = [rounds(one, base, population, plan, turns + 1) for one in every]
    clocks = {kind: Inside(kind) for kind in {one.piece for one in every if one.piece is not None}}
    seconds: dict[str, list[float]] = {one.name: [] for one in every}
    shares: dict[str, list[float]] = {one.name: [] for one in every if one.piece is not None}
    for turn in range(turns + 1):
        for one, run in zip(every, running, strict=True):
            before = 0.0 if one.piece is None else clocks[one.piece].seconds
            taken = next(run)
            if turn:
                seconds[one.name].append(taken)
                if one.piece is not None:
                    inside = clocks[one.piece].seconds - before
                    threads = 1 if one.piece is LaplacianSmoothing else plan.workers
                    shares[one.name].append(inside / threads / taken)
        print(f"turn {turn}/{turns}" + (" (warm-up)" if not turn else ""), flush=True)
    plain = statistics.median(seconds[PLAIN])
    rows = []
    for one in every[1:]:
        whole = one.piece is None
        values = [s / plain for s in seconds[one.name]] if whole else shares[one.name]
        found = statistics.median(values)
        verdict = "met" if found <= one.target else f"missed by {found / one.target - 1:.0%}"
        what = "times the plain round" if whole else "of its round"
        facts = {"name": one.name, "what": what, "measured": found, "lowest": min(values), "highest": max(values)}
        rows.append({**facts, "target": one.target, "verdict": verdict})
    setting = {
        "torch": torch.__version__, "python": platform.python_version(), "cores": os.cpu_count(), "plan": str(plan),
        "turns": turns, "busy cores of other programs before": busy_cores(),
    }  # fmt: skip
    return {"setting": setting, "plain_milliseconds": 1e3 * plain, "rows": rows, "seconds": seconds}


def page(result: dict[str, Any]) -> str:
    """The result as a page of Markdown."""
    setting = ", ".join(f"{name} {value}" for name, value in result["setting"].items())
    lines = [
        "# What client-level pieces cost",
        "",
        f"From `python -m benchmarks client_level`: cnn-emnist, {WORK.cohort} clients of {WORK.records}, {WORK.epochs} local "
        f"epochs, batch {WORK.batch_size}. {setting}.",
        "",
        f"The plain round takes {result['plain_milliseconds']:,.0f} ms.",
        "",
        "| piece | measured | single turns | at most | |",
        "|---|---:|---:|---:|---|",
    ]
    for row in result["rows"]:
        words = (lambda v: f"{v:.2f}") if row["target"] > 1 else (lambda v: f"{v:.1%}")
        span = f"{words(row['lowest'])} to {words(row['highest'])}"
        lines.append(
            f"| {row['name']} | {words(row['measured'])} {row['what']} | {span} | {words(row['target'])} | {row['verdict']} |"
        )
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> None:
    """Measure, print and store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two turns")
    parser.add_argument("--turns", type=int, help="rounds of each contender (default 5; quick: 2)")
    options = parser.parse_args(arguments)
    result = measure(options.turns or (2 if options.quick else 5))
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "client_level.json").write_text(json.dumps(result, indent=1) + "\n")
    (RESULTS / "client_level.md").write_text(page(result))
    print("\n" + page(result))


if __name__ == "__main__":
    main()
