"""What a cluster costs and what it gives: `python -m benchmarks ray_cluster [--quick]`.

A cluster on this machine, with workers of one thread. The overhead of a round is the time from the first shard that is asked for to
the last one that is added, less what the slowest shard took where it was computed. Contenders take turns, each time with workers
of their own, whose first rounds warm up; a number is the median over the rounds of all turns.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import torch

import sfumato as sf
from benchmarks.engine import CNN, IDLE, LOGISTIC, RESULTS, wait_for_idle
from benchmarks.workload import Workload
from sfumato.engine.clients import Block, Clients, Start, Total
from sfumato.engine.on_ray import OnRay, RayWorkers, ray_workers
from sfumato.engine.packing import packed, unpacked
from sfumato.engine.ray_cluster import Cluster
from sfumato.engine.workers import Here

WORKERS = 2
COHORT = replace(CNN, name="cnn-emnist, cohort 50", records=50, cohort=50)
MANY = replace(LOGISTIC, name="logistic, cohort 10,000", population=20_000, cohort=10_000, records=10, epochs=1)


@dataclass(frozen=True)
class Contender:
    """A workload on so many workers; on none in this process, with the plan's threads."""

    work: Workload
    workers: int
    plan: sf.Plan
    source: str
    rounds: int
    few: int  # of a quick run
    most_overhead: float | None = None  # seconds

    @property
    def title(self) -> str:
        where = (
            f"{self.workers} worker{'s' * (self.workers > 1)}" if self.workers else f"{self.plan.workers} threads here"
        )
        return f"{self.work.name}, {where}"


CONTENDERS = (
    Contender(LOGISTIC, 2, sf.Plan("stacked", 64, shards=2), "logistic", 60, 20, 0.015),
    Contender(COHORT, 1, sf.Plan(shards=1), "cnn", 3, 1),
    Contender(COHORT, 2, sf.Plan(shards=2), "cnn", 3, 1, 0.120),
    Contender(LOGISTIC, 0, sf.Plan("stacked", 32, 2), "logistic", 60, 20),
    Contender(COHORT, 0, sf.Plan(workers=2), "cnn", 3, 1),
    Contender(MANY, 2, sf.Plan("stacked", 64, shards=2), "many", 3, 1),
)
LEAST_SPEED = 1.6


def _people(work: Workload) -> sf.Population:
    return sf.Population(work.name, work.population, work.client)


def logistic() -> sf.Population:
    """By import path, as workers build it."""
    return _people(LOGISTIC)


def cnn() -> sf.Population:
    return _people(COHORT)


def many() -> sf.Population:
    return _people(MANY)


class Timed:
    """The workers of a cluster, and the overhead of each of their rounds; or this process, which has none."""

    def __init__(self, made: OnRay | type[Here]) -> None:
        self._made, self.overhead, self.slowest = made, list[float](), list[float]()

    def __call__(self, clients: Clients) -> Timed:
        self._workers: RayWorkers | Here = self._made(clients)
        self.kernels, self.released, self.close = self._workers.kernels, self._workers.released, self._workers.close
        return self

    def blocks(self, start: Start, ids: Sequence[int]) -> Iterator[Block]:
        began = time.perf_counter()
        yield from self._workers.blocks(start, ids)
        took = time.perf_counter() - began
        self.slowest.append(max(self._workers.seconds) if isinstance(self._workers, RayWorkers) else took)
        self.overhead.append(took - self.slowest[-1])


def run_once(contender: Contender, rounds: int, warmup: int) -> dict[str, Any]:
    """The seconds of each round after the warm-up, with those of its slowest shard and of the overhead."""
    work = contender.work
    torch.manual_seed(0)
    round = sf.Round(
        sample=sf.FixedSize(work.cohort),
        local=sf.Sgd(lr=work.lr, epochs=work.epochs, batch_size=work.batch_size),
        client=(sf.Clip(work.clip),),
        aggregate=sf.Mean(work.cohort),
        server=(sf.AddNoise(sf.Gaussian(work.noise_multiplier)),),
    )
    people = sf.Population.from_import(f"benchmarks.ray_cluster:{contender.source}")
    torch.set_num_threads(WORKERS if not contender.workers else 1)
    timed = Timed(ray_workers("local", contender.workers) if contender.workers else Here)
    run = sf.simulate(
        round,
        people,
        work.module(),
        sf.classification(work.classes),
        rounds=rounds + warmup,
        plan=contender.plan,
        cohort=timed,
    )
    seconds = [progress.seconds for progress in run]
    run.close()
    return {"seconds": seconds[warmup:], "overhead": timed.overhead[warmup:], "slowest": timed.slowest[warmup:]}


def driver(cluster: Any, times: int = 20) -> list[float]:
    """Seconds that the driver takes for one more shard of cnn-emnist that is ready: fetch, unpack, add."""
    numbers = sum(part.numel() for part in COHORT.module().parameters())
    total, found = torch.zeros(numbers, dtype=torch.float64), list[float]()
    made = cluster.remote(
        lambda: packed(Block(Total(torch.ones(numbers, dtype=torch.float64), 1.0), {}, torch.zeros(0)))
    )
    for _ in range(times):
        asked = made.remote()
        cluster.wait([asked])
        began = time.perf_counter()
        total += unpacked(cluster.get(asked)).total.rows
        found.append(time.perf_counter() - began)
    return found


def measure(turns: int, quick: bool, patience: float) -> dict[str, Any]:
    """Every contender once in each turn, on one cluster."""
    cluster, found, busy = Cluster("local", WORKERS), dict[str, list[dict[str, Any]]](), list[float]()
    ray = cluster.open()
    try:
        for turn in range(turns):
            for one in CONTENDERS:
                others = wait_for_idle(patience)
                rounds = one.few if quick else one.rounds
                result = run_once(one, rounds, warmup=max(2, rounds // 5))
                found.setdefault(one.title, []).append({**result, "busy_cores_before": others})
                busy += [] if others is None else [others]
                median, overhead = (1e3 * statistics.median(result[name]) for name in ("seconds", "overhead"))
                print(
                    f"turn {turn + 1}/{turns}  {one.title:40} {median:9.1f} ms a round, {overhead:6.1f} overhead",
                    flush=True,
                )
        wait_for_idle(patience)
        shard = driver(ray)
    finally:
        cluster.close()
    rows = [_row(one, found[one.title]) for one in CONTENDERS]
    alone, together = ([turn["seconds"] for turn in found[one.title]] for one in CONTENDERS[1:3])
    single = [statistics.median(a) / statistics.median(b) for a, b in zip(alone, together, strict=True)]
    speed = statistics.median(chain(*alone)) / statistics.median(chain(*together))
    setting = {
        "torch": torch.__version__, "python": platform.python_version(), "cores": os.cpu_count(), "turns": turns,
        "busy cores of other programs, median": statistics.median(busy) if busy else None,
    }  # fmt: skip
    best = min(map(min, alone)) / min(map(min, together))
    facts = {"measured": speed, "lowest": min(single), "highest": max(single), "of the fastest rounds": best}
    verdict = "met" if speed >= LEAST_SPEED else f"missed by {1 - speed / LEAST_SPEED:.0%}"
    return {
        "setting": setting,
        "rows": rows,
        "speed": {**facts, "target": LEAST_SPEED, "verdict": verdict},
        "driver": shard,
        "runs": found,
    }


def _row(one: Contender, turns: list[dict[str, Any]]) -> dict[str, Any]:
    every = {name: [value for turn in turns for value in turn[name]] for name in ("seconds", "overhead", "slowest")}
    medians = {name: statistics.median(values) for name, values in every.items()}
    row = {"title": one.title, **medians, "least_overhead": min(every["overhead"]), "target": one.most_overhead}
    if one.most_overhead is None:
        return {**row, "verdict": ""}
    met = medians["overhead"] <= one.most_overhead
    return {**row, "verdict": "met" if met else f"missed by {medians['overhead'] / one.most_overhead - 1:.0%}"}


def page(result: dict[str, Any]) -> str:
    """The result as a page of Markdown."""
    lines = [
        "# A cluster on one machine",
        "",
        "From `python -m benchmarks ray_cluster`. " + ", ".join(f"{k} {v}" for k, v in result["setting"].items()) + ".",
        "",
        "| workload | ms a round | slowest shard, ms | overhead, ms | least overhead, ms | at most, ms | |",
        "|---|---:|---:|---:|---:|---:|---|",
    ]
    for row in result["rows"]:
        times = [1e3 * row[name] for name in ("seconds", "slowest", "overhead", "least_overhead")]
        target = "" if row["target"] is None else f"{1e3 * row['target']:.0f}"
        lines.append(
            f"| {row['title']} | {' | '.join(f'{each:,.1f}' for each in times)} | {target} | {row['verdict']} |"
        )
    speed = result["speed"]
    lines += [
        "",
        f"Two workers over one, {COHORT.name}: {speed['measured']:.2f} times as fast (single turns {speed['lowest']:.2f} to "
        f"{speed['highest']:.2f}; the fastest round of each {speed['of the fastest rounds']:.2f}); at least {speed['target']}: "
        f"{speed['verdict']}.",
        "",
        f"The driver takes {1e3 * statistics.median(result['driver']):.1f} ms (least {1e3 * min(result['driver']):.1f}) for one "
        "more shard of cnn-emnist, 13.5 MB: fetch, unpack, add.",
    ]
    busy = result["setting"]["busy cores of other programs, median"]
    if busy is not None and busy > IDLE:
        lines += ["", "The machine was not idle: other programs ran beside the workers, and these numbers are rough."]
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> None:
    """Measure, print and store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two turns of few rounds")
    parser.add_argument("--turns", type=int, help="how often each is run (default 3; quick: 2)")
    parser.add_argument(
        "--patience", type=float, default=20.0, help="seconds to wait for an idle machine before each run"
    )
    options = parser.parse_args(arguments)
    result = measure(options.turns or (2 if options.quick else 3), options.quick, options.patience)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "ray_cluster.json").write_text(json.dumps(result, indent=1) + "\n")
    (RESULTS / "ray_cluster.md").write_text(page(result))
    print("\n" + page(result))


if __name__ == "__main__":
    main()
