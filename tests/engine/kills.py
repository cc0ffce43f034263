"""Runs of every recipe that trains in seconds, killed at random, copied, and with other data and code when they are resumed.

Every process that computes a round notes what the round gave and how far one step moved the parameters, whether or not that was
ever stored: an observer with more than any attacker has. Then:

- no two results of a round in the same place of different attempts or copies share noise (their correlation is that of chance);
- the ledger of each copy has at least as many rounds as its processes computed, it is whole, and its epsilon is that of its count;
- what was shown before a kill is in the end what was shown.

Not a test itself: `tests/engine/test_kills.py` has a few runs, `make kills` has many.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import torch

from sfumato.account import accountant
from sfumato.account.event import Repeated
from sfumato.ledger.ledger import Ledger
from tests.engine.crash import _CONTEXT, Kill, _arm, metrics, reservations
from tests.patience import PATIENCE

ROUNDS = 5
COMMON = [
    "--rounds",
    str(ROUNDS),
    "--quiet",
    "--data",
    "hers:clients",
    "--clients",
    "12",
    "--outputs",
    "4",
    "--model",
    "logistic",
]
# Noise far above what clients say, so that what a round gives is noise, and two rounds with the same noise look the same.
LOUD = ["--noise-multiplier", "40"]
RECORDS = ["--noise-multiplier", "20", "--records", "6", "--steps", "1"]
RECIPES: dict[str, list[str]] = {
    "dp-fedavg": [*LOUD, "--epochs", "1"],
    "dp-fed-ls": [*LOUD, "--epochs", "1"],
    "dp-fedsam": [*LOUD, "--epochs", "1"],
    "dp-fedsam-top-k": [*LOUD, "--epochs", "1"],
    "fed-smp": [*LOUD, "--epochs", "1"],
    "dp-fedavg-blur": [*LOUD, "--epochs", "1"],
    "dp-fedavg-adaptive": [*LOUD, "--epochs", "1"],
    "dp-fedavg-shares": [*LOUD, "--epochs", "1", "--sample", "everyone"],
    "prifedsync": [
        *RECORDS,
        "--batch",
        "fixed:3",
        "--helper-weight",
        "1",
    ],  # so that no earlier noise is in what a client begins with
    "perturb-model": [*LOUD, "--steps", "1"],
    "udp-fl": [*RECORDS, "--batch", "poisson:0.5"],
    "dp-fedsgd": [*LOUD],
    "dp-sgd": [*LOUD, "--records", "72", "--clients", "1", "--batch", "poisson:0.5", "--optimizer", "sgd"],
}
STAGES = [
    "sfumato.ledger.ledger:Ledger.reserve",
    "sfumato.engine.simulation:Simulation._serve",
    "sfumato.engine.simulation:Checkpoint.write",
    "sfumato.ledger.ledger:Ledger.settle",
    "sfumato.run.folder:Line.to_json",
]
MODULE = """
import torch

def clients(number):
    generator = torch.Generator().manual_seed(1000 * {version} + number)
    x = torch.randn({records}, 150, generator=generator)
    return x, (x[:, 0] > 0).long() + 2 * (x[:, 1] > 0).long()
"""


class Outcome(NamedTuple):
    """What one history of a run came to."""

    recipe: str
    processes: int
    kills: int
    results: int  # of rounds, stored or not
    compared: int  # pairs of results of the same round
    largest: float  # correlation among these, over what chance gives


def _watched(words: list[str], place: Path, kill: Kill | None, log: Path) -> None:
    """Train, and note what every round gave, before anything else happens to it."""
    import sfumato.engine.simulation as running
    from sfumato.cli import run

    os.chdir(place)
    sys.path.insert(0, str(place))
    torch.set_num_threads(1)
    serve = running.Simulation._serve

    def noted(self: Any, now: Any, *given: Any) -> Any:
        after = serve(self, now, *given)
        moved = (after.params - now.params).tolist()
        line = {"round": after.round, "folder": str(self.folder), "moved": moved}
        with log.open("a") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())
        return after

    running.Simulation._serve = noted  # type: ignore[method-assign]
    if kill is not None:
        _arm(kill)
    sys.exit(run(["train", *words]))


def watched(words: list[str], place: Path, log: Path, kill: Kill | None = None) -> int:
    """The exit status of a process that trains; -9 if it was killed."""
    child = _CONTEXT.Process(target=_watched, args=(words, place, kill, log))
    child.start()
    child.join(PATIENCE)
    assert child.exitcode is not None, "the child hangs"
    return child.exitcode


def history(recipe: str, seed: int, place: Path) -> Outcome:
    """One run with random interruptions; raises AssertionError where anything is false."""
    chosen, log = random.Random(seed), place / "results.jsonl"
    records = 72 if recipe == "dp-sgd" else 6
    module = place / "hers.py"
    module.write_text(MODULE.format(version=0, records=records))
    folders, processes, kills = ["run"], 0, 0
    shown: dict[str, list[dict[str, Any]]] = {"run": []}

    def stage() -> Kill:
        return Kill(chosen.choice(["before", "after"]), chosen.choice(STAGES), chosen.randint(1, 4))

    words = [recipe, *COMMON, *RECIPES[recipe], "--out", "run"]
    status = watched(words, place, log, stage())
    processes, kills = 1, int(status == -9)
    assert status in (-9, 0), status
    for _ in range(chosen.randint(2, 4)):
        name = chosen.choice(folders)
        folder = place / name
        if not (folder / "run.toml").exists():  # killed before there was a run
            shutil.rmtree(folder, ignore_errors=True)
            assert watched([*words[:-1], name], place, log) == 0
            processes += 1
            continue
        now = metrics(folder) if (folder / "metrics.jsonl").exists() else []
        assert now[: len(shown[name])] == shown[name], "what was shown stays"
        shown[name] = now
        if chosen.random() < 0.5 and len(folders) < 3:
            copy = f"copy-{len(folders)}"
            shutil.copytree(folder, place / copy)
            folders.append(copy)
            shown[copy] = now
        if chosen.random() < 0.5:
            module.write_text(MODULE.format(version=chosen.randint(1, 10**6), records=records))
        kill = stage() if chosen.random() < 0.7 else None
        status = watched(["--resume", name, "--quiet"], place, log, kill)
        processes, kills = processes + 1, kills + int(status == -9)
        assert status in (-9, 0), status
    for name in folders:
        assert watched(["--resume", name, "--quiet"], place, log) == 0
        processes += 1
        folder = place / name
        assert metrics(folder)[: len(shown[name])] == shown[name], "what was shown stays"
        _check_ledger(folder, log, name)
    return Outcome(recipe, processes, kills, len(_results(log)), *_largest_correlation(log))


def _results(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def _check_ledger(folder: Path, log: Path, name: str) -> None:
    """Whole, and with at least every round that was computed in this folder; its epsilon is that of its count."""
    ledger, found = Ledger(folder / "ledger.sqlite", None), json.loads((folder / "run.json").read_text())
    computed = sum(Path(one["folder"]).name == name for one in _results(log))
    assert ledger.damage() == [] and reservations(folder) == ledger.rounds >= max(ROUNDS, computed)
    if found["epsilon"] is not None:
        (world,) = {next(iter(entry.costs.values())).world for entry in ledger.entries() if entry.costs}
        explicit = accountant("auto").epsilon(Repeated(world, ledger.rounds), found["delta"])
        unit = next(iter(ledger.entries()[0].costs))
        spent = ledger.spent(unit)
        assert spent is not None and accountant("auto").epsilon(spent.world, found["delta"]) >= explicit * (1 - 1e-9)
        assert found["unit"] != str(unit) or found["epsilon"] >= explicit * (1 - 1e-9)


def _largest_correlation(log: Path) -> tuple[int, float]:
    """Over all pairs of results of one round: how many, and the largest correlation times the root of the dimension."""
    by_round: dict[int, list[torch.Tensor]] = {}
    for one in _results(log):
        moved = torch.tensor(one["moved"], dtype=torch.float64)
        by_round.setdefault(one["round"], []).append(moved)
    pairs, largest = 0, 0.0
    for moves in by_round.values():
        for place, one in enumerate(moves):
            for other in moves[:place]:
                both = (one != 0) & (other != 0)  # masks leave coordinates as they are
                if int(both.sum()) > 20:
                    here = torch.corrcoef(torch.stack([one[both], other[both]]))[0, 1]
                    pairs, largest = pairs + 1, max(largest, abs(float(here)) * math.sqrt(int(both.sum())))
    return pairs, largest


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill runs of every recipe at random moments.")
    parser.add_argument("--kills", type=int, default=300, help="How many. Default: 300.")
    parser.add_argument("--seed", type=int, default=0, help="Of the choices. Default: 0.")
    asked = parser.parse_args()
    done: list[Outcome] = []
    while sum(one.kills for one in done) < asked.kills:
        number = len(done)
        recipe = list(RECIPES)[number % len(RECIPES)]
        with tempfile.TemporaryDirectory() as place:
            done.append(history(recipe, asked.seed + number, Path(place)))
        last = done[-1]
        total = sum(one.kills for one in done)
        print(
            f"{total:4} kills  {last.recipe:18} {last.processes} processes, correlation {last.largest:.2f} of chance",
            flush=True,
        )
        assert last.largest < 7.0, "two results share noise"
    pairs = sum(one.compared for one in done)
    print(
        f"{sum(one.kills for one in done)} kills in {len(done)} runs, {sum(one.results for one in done)} results of rounds, "
        f"{pairs} pairs of the same round; largest correlation {max(one.largest for one in done):.2f} times that of chance"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
