"""A long run among faults that come at random: whatever is killed, late, broken or said twice, nothing is counted less than it
cost, and no model is broken.
"""

from __future__ import annotations

import json
import math
import os
import platform
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from sfumato.account.event import GaussianEvent, Unit
from sfumato.engine.checkpoint import Checkpoint
from tests.federation.network import children
from tests.federation.site import Host, Site, asked, rounds_of

SERVER_PLACES = ("check", "asked.check", "checked", "reserved", "asked.train", "noise")
SERVER_PLACES += ("storing", "stored", "settling", "released", "between")
LAST_PLACES = ("finish", "storing.params", "storing.run", "storing.report", "end")
BROKEN = ("nan", "shape", "hash", "long", "nonsense", "replay", "wait 7", "kill")
_STUCK = 60.0  # seconds
RUN, NOISE, DELTA = "run", 4.0, 1e-5


def draws(site: Site) -> list[tuple[str, str]]:
    """Each noise that a server drew: which, and on what."""
    path = site.folder / "noise.log"
    lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    return [(f"{number} {key}", inputs) for number, key, inputs in lines]


def check_spent(site: Site, run: str) -> tuple[int, int]:
    """How many reservations there are, and how much noise was drawn: never more of it, nor the same on anything else."""
    entries, drawn = site.entries(run), draws(site)
    assert len({(entry.round, entry.attempt) for entry in entries}) == len(entries)
    inputs: dict[str, str] = {}
    for key, value in drawn:
        assert inputs.setdefault(key, value) == value, "the same noise fell on other inputs"
    assert len(entries) >= len(inputs), f"{len(inputs)} draws, and only {len(entries)} reservations"
    return len(entries), len(drawn)


def check_whole(site: Site, run: str) -> int:
    """How far the checkpoint is; it can always be read, and holds finite numbers."""
    last = Checkpoint.read(site.folder / run)
    assert last is None or bool(torch.isfinite(last.params).all())
    return 0 if last is None else last.round


def epsilon_by_hand(count: int, noise: float, delta: float) -> float:
    """Of so many Gaussians on the whole population: Balle and Wang 2018, theorem 8, solved by bisection.

    By `erfc`, whose tail is exact: 1 + erf has 1e-16 at best, which e^21 makes 1e-7, and epsilon wrong by 0.002.

    >>> round(epsilon_by_hand(212, 4.0, 1e-5), 9)  # 21.4903627737746 with forty digits
    21.490362774
    """
    mu = math.sqrt(count) / noise

    def at(epsilon: float) -> float:
        low, high = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
        return (math.erfc(-low / math.sqrt(2)) - math.exp(epsilon) * math.erfc(-high / math.sqrt(2))) / 2

    low, high = 0.0, 500.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (low, middle) if at(middle) <= delta else (middle, high)
    return high


@dataclass
class Soak:
    """Faults from a seed, one every few seconds, until the run is over or the time is."""

    site: Site
    rounds: int
    seed: int
    seconds: float
    faults: Counter[str] = field(default_factory=Counter)
    starts: int = 0
    began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def run(self) -> dict[str, Any]:
        self.site.nodes()
        server = self.start()
        due = self.due()
        while True:
            status = server.process.poll()
            if status == 0:
                break
            if status is not None:
                self.check(server, status)
                server = self.start()
            for number in range(self.site.clients):
                if not self.site.at(number).alive:
                    self.site.node(number)
            if self.more and due():
                self.fault(server)
                due = self.due()
            elif not self.more:
                self.calm()
            time.sleep(0.2)
        return self.result(server)

    def calm(self) -> None:
        """The time for faults is over: what is left of the run goes without."""
        for name in ("server", *(f"node-{number + 1}" for number in range(self.site.clients))):
            if self.site.orders(name):
                self.site.order(name)

    def due(self) -> Callable[[], bool]:
        """The next fault comes some rounds after the last, or when nothing moves."""
        wanted, latest = rounds_of(self.site, RUN) + self.random.randint(1, 3), time.monotonic() + _STUCK
        return lambda: rounds_of(self.site, RUN) >= wanted or time.monotonic() > latest

    @property
    def more(self) -> bool:
        """Whether there is time for faults."""
        return time.monotonic() - self.began < self.seconds

    def start(self) -> Host:
        self.starts += 1
        begun = (self.site.folder / RUN / "run.toml").exists()
        options = {"sample": "everyone", "noise_multiplier": NOISE}
        request = self.site.request(asked(rounds=self.rounds, seed=None, **options))
        return self.site.server(RUN, None if begun else request)

    def check(self, server: Host, status: int) -> None:
        """After every end of a server: a sentence or a kill, whole files, nothing under-counted."""
        assert status in (-signal.SIGKILL, 130, 2), f"status {status}: {server.words}"
        assert "Traceback" not in server.words, server.words
        if status == 2:
            self.faults["server stopped by itself"] += 1
            print(server.words[:600], flush=True)
        check_whole(self.site, RUN)
        if (self.site.folder / RUN / "ledger.sqlite").exists():
            check_spent(self.site, RUN)
        print(f"{rounds_of(self.site, RUN)} rounds, {dict(self.faults)}", flush=True)

    def fault(self, server: Host) -> None:
        kind = self.random.choice(
            ["node", "supernode", "superlink", "server", "place", "ctrl-c", *["reply"] * 8, "push", "push"]
        )
        number = self.random.randrange(self.site.clients)
        host = self.site.at(number)
        if kind == "node" and host.alive:
            host.process.kill()
            host.wait()
            self.site.node(number)
        elif kind in ("supernode", "superlink"):
            of = host if kind == "supernode" else server
            for pid in children(of.process.pid) if of.alive else []:
                os.kill(pid, signal.SIGKILL)
        elif kind == "server" and server.alive:
            server.process.kill()
        elif kind == "ctrl-c" and server.alive and rounds_of(self.site, RUN):
            server.signal(signal.SIGINT)
        elif kind == "place":
            near_the_end = rounds_of(self.site, RUN) >= self.rounds - 5
            place = self.random.choice(LAST_PLACES if near_the_end else SERVER_PLACES)
            kind = f"server at {place}"
            self.site.order("server", f"{place} {self.random.choice(['kill', 'superlink'])}")
        elif kind == "reply":
            broken = self.random.choice(BROKEN)
            kind = f"reply: {broken}"
            self.site.order(f"node-{number + 1}", f"train {broken}")
        elif kind == "push":
            how = self.random.choice(["twice", "cut"])
            kind = f"reply: {how}"
            self.site.order(f"node-{number + 1}", f"push {how}")
        self.faults[kind] += 1

    def result(self, server: Host) -> dict[str, Any]:
        """What came of it; raises if anything is wrong."""
        entries, drawn = check_spent(self.site, RUN)
        done = check_whole(self.site, RUN)
        told: dict[str, Any] = {}
        if server.process.returncode == 0:
            told = json.loads((self.site.folder / RUN / "run.json").read_text())
            assert told["rounds"] == done == self.rounds
            for tensor in load_file(self.site.folder / RUN / "params.safetensors").values():
                assert bool(torch.isfinite(tensor).all())
            costs = {entry.costs[Unit.CLIENT].world for entry in self.site.entries(RUN)}
            assert costs == {GaussianEvent(NOISE)}
            least = epsilon_by_hand(entries, NOISE, DELTA)
            assert least <= told["epsilon"] <= 1.01 * least, f"{told['epsilon']} is not {least}"
        return {
            "finished": bool(told),
            "rounds": done,
            "reservations": entries,
            "draws": drawn,
            "epsilon": told.get("epsilon"),
            "epsilon_by_hand": epsilon_by_hand(entries, NOISE, DELTA),
            "epsilon_without_faults": epsilon_by_hand(done, NOISE, DELTA),
            "accuracy": told.get("accuracy"),
            "server_starts": self.starts,
            "faults": dict(sorted(self.faults.items())),
            "seed": self.seed,
            "seconds": round(time.monotonic() - self.began, 1),
            "python": platform.python_version(),
            "torch": torch.__version__,
        }


def page(result: dict[str, Any]) -> str:
    """The result in words."""
    lines = [
        "# A federation among faults",
        "",
        f"{result['rounds']} rounds of DP-FedAvg with three nodes, each a process of its own, over TLS: "
        f"{result['seconds']:.0f} s, the server started {result['server_starts']} times, seed {result['seed']}. "
        f"{result['reservations']} reservations stand in the ledger, and noise was drawn {result['draws']} times, never the same "
        "on other inputs; every checkpoint that a killed server left could be read. "
        f"Epsilon as printed {result['epsilon']}, by hand {result['epsilon_by_hand']:.6g}; "
        f"without faults it had been {result['epsilon_without_faults']:.6g}.",
        "",
        "| fault | times |",
        "|---|---|",
        *(f"| {name} | {count} |" for name, count in result["faults"].items()),
    ]
    return "\n".join(lines) + "\n"


def write(result: dict[str, Any], folder: Path) -> None:
    (folder / "federation_faults.json").write_text(json.dumps(result, indent=1) + "\n")
    (folder / "federation_faults.md").write_text(page(result))
