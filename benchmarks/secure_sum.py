"""The secure sum: seconds of the server and of one client for a round, on one core.

    python -m benchmarks secure_sum [--quick]

Writes results/secure_sum.json and results/secure_sum.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sfumato.key import Key
from sfumato.secure_sum import Client, Phase, Power, Server, SumSettings

RESULTS = Path(__file__).parent / "results"
CLIENTS, DIMENSION, LARGE = 50, 100_000, 1_690_046
CASES: tuple[dict[str, Any], ...] = (
    {"what": "all reply", "target": 2.0},
    {"what": "10 drop out before their rows", "gone": 10, "target": 5.0},
    {"what": "all reply, 32 bits", "bits": 32},
    {"what": "10 drop out, active server", "gone": 10, "power": Power.ACTIVE},
    {"what": "20 drop out, all are neighbours", "clients": 200, "gone": 20, "all": True},
    {"what": "20 drop out, few are neighbours", "clients": 200, "gone": 20},
)


class Watch:
    """Seconds of this process's own work, so that other programs do not count."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}

    @contextmanager
    def on(self, name: str) -> Iterator[None]:
        start = time.process_time()
        yield
        self.spent[name] = self.spent.get(name, 0.0) + time.process_time() - start


def agreed(case: dict[str, Any], turn: int) -> SumSettings:
    count = case.get("clients", CLIENTS)
    facts = {
        "largest": 2**20,
        "noise": 2.0**18,
        "smallest": count - count // 5,
        "colluding": 2,
        "bits": case.get("bits", 64),
    }
    session = turn.to_bytes(32, "big")
    dimension = case.get("dimension", DIMENSION)
    power = case.get("power", Power.FOLLOWS)
    settings = SumSettings.chosen(session, tuple(range(count)), dimension, **facts, power=power)
    if case.get("all"):
        values = {**vars(settings), "neighbours": count - 1, "threshold": count // 2}
        settings = SumSettings(**{name: values[name] for name in SumSettings.__dataclass_fields__})
    return settings


def step(client: Client, phase: Phase, row: np.ndarray, letter: bytes) -> bytes:
    if phase is Phase.ADVERTS:
        return client.advertise()
    if phase is Phase.ROWS:
        return client.mask(row, letter)
    return {Phase.SHARES: client.share, Phase.CONFIRMATIONS: client.confirm, Phase.UNMASKING: client.unmask}[phase](
        letter
    )


def one_round(settings: SumSettings, gone: int, turn: int) -> dict[str, float]:
    """A whole round, and whether its total is the plain sum."""
    watch, root = Watch(), Key.from_seed(turn)
    own = {one: Ed25519PrivateKey.from_private_bytes(root.child("sign", of=one).stream(32)) for one in settings.clients}
    known = {one: key.public_key().public_bytes_raw() for one, key in own.items()}
    clients = {one: Client(settings, one, root.child("client", of=one), own[one], known) for one in settings.clients}
    words = root.child("rows").integers(len(clients) * settings.dimension).reshape(len(clients), -1)
    rows = (words % np.uint64(2**21)).astype(np.int64) - 2**20
    with watch.on("server"):
        server = Server(settings, known)
    letters: dict[int, bytes] = dict.fromkeys(settings.clients, b"")
    while True:
        phase = server.phase
        for one in sorted(letters)[gone if phase is Phase.ROWS else 0 :]:
            with watch.on("clients"):
                message = step(clients[one], phase, rows[one], letters[one])
            with watch.on("server"):
                server.take(one, message)
        with watch.on("server"):
            if phase is Phase.UNMASKING:
                total = server.total()
                break
            letters = server.advance()
    assert (total == rows[list(server.survivors)].sum(axis=0)).all(), "the total is the plain sum"
    return {"server": watch.spent["server"], "client": watch.spent["clients"] / len(clients)}


def one_large_row(turn: int) -> float:
    """One client among 50 with the row of a large model: all its steps but the last, which does not depend on the row."""
    settings = agreed({"dimension": LARGE}, turn)
    watch, root = Watch(), Key.from_seed(turn)
    clients = {one: Client(settings, one, root.child("client", of=one)) for one in settings.clients}
    server, row = Server(settings), np.arange(LARGE, dtype=np.int64)
    with watch.on("client"):
        first = clients[0].advertise()
    for one, client in clients.items():
        server.take(one, client.advertise() if one else first)
    letters = server.advance()
    with watch.on("client"):
        shared = clients[0].share(letters[0])
    for one, client in clients.items():
        server.take(one, client.share(letters[one]) if one else shared)
    letters = server.advance()
    with watch.on("client"):
        clients[0].mask(row, letters[0])
    return watch.spent["client"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer turns")
    turns = 2 if parser.parse_args().quick else 7
    rows = []
    for case in CASES:
        settings = agreed(case, 0)
        times = [one_round(agreed(case, turn), case.get("gone", 0), turn) for turn in range(turns)]
        size = f"{settings.dimension:,} numbers from {len(settings.clients)} clients: {case['what']}"
        rows.append(
            {
                "what": size,
                "neighbours": settings.neighbours,
                "threshold": settings.threshold,
                "exposure": float(settings.exposure),
                "server": [one["server"] for one in times],
                "client": [one["client"] for one in times],
                "target": case.get("target"),
            }
        )
    large = [one_large_row(turn) for turn in range(turns)]
    rows.append(
        {
            "what": f"{LARGE:,} numbers: one of {CLIENTS} clients",
            "neighbours": CLIENTS - 1,
            "client": large,
            "target": None,
        }
    )
    machine = {"processor": platform.processor() or platform.machine(), "python": platform.python_version()}
    RESULTS.joinpath("secure_sum.json").write_text(json.dumps({**machine, "rows": rows}, indent=1) + "\n")
    lines = [
        f"Seconds of processor time on one core, median of {turns}; 64 bits unless it is said. The server's are of all its work "
        "in a round, a client's of all its steps.",
        "",
        "| what | neighbours | server | at most | one client |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        server = f"{statistics.median(row['server']):.3f}" if "server" in row else ""
        client = f"{statistics.median(row['client']):.4f}"
        lines.append(f"| {row['what']} | {row['neighbours']} | {server} | {row['target'] or ''} | {client} |")
    RESULTS.joinpath("secure_sum.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
