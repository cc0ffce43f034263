"""A round between processes over Flower, beside stock Flower's own quickstart: `python -m benchmarks.federation [--quick]`.

Both ask three nodes on this host, which do next to nothing with what they get, and average what comes back; for 7,850 numbers
and for the 1,690,046 of cnn-emnist (6.8 MB both ways). Stock is FedAvg without evaluation at the nodes, in the setting of
Flower's quickstart: no TLS, no node keys, a process for each message. Ours has TLS and node keys. The sides take turns; a
number is the median over all rounds but the first of each turn. Writes results/federation.json and results/federation.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from benchmarks.engine import IDLE, wait_for_idle
from sfumato.federation.certificates import make_authority, make_node_key, make_server_certificate
from sfumato.federation.flower.settings import NodeSettings, ServerSettings
from sfumato.federation.wire import Letter

RESULTS = Path(__file__).parent / "results"
APP = Path(__file__).parent / "peers" / "quickstart"
BIN = Path(sys.executable).parent
NODES = 3
SIZES = {"small": 7_850, "cnn-emnist": 1_690_046}
PATIENCE = 600.0  # seconds for a turn of either side


def answer(letter: Letter) -> Letter:
    return Letter("ok", {"num-examples": 1}, {name: tensor + 0.01 for name, tensor in letter.tensors.items()})


def node(settings: list[str]) -> None:
    from sfumato.federation.flower.node import serve

    folder, server, authority, key = settings
    torch.set_num_threads(1)
    serve(answer, NodeSettings(Path(folder), server, Path(authority), Path(key)))


def ours(numbers: int, rounds: int, folder: Path) -> list[float]:
    from sfumato.federation.flower.server import FlowerWire

    authority = make_authority(folder / "authority")
    server = make_server_certificate(folder / "server", authority, ["127.0.0.1"])
    keys = [make_node_key(folder / f"node-{number}.key") for number in range(NODES)]
    registry, port = tuple(key.public for key in keys), free_port()
    settings = ServerSettings(
        folder / "link", registry, server.certificate, server.key, server.authority, "127.0.0.1", port
    )
    with ExitStack() as stack:
        wire = stack.enter_context(FlowerWire(settings))
        for number, key in enumerate(keys):
            words = [folder / f"node-{number}", f"127.0.0.1:{port}", server.authority, key.private]
            stack.enter_context(
                process([sys.executable, "-m", "benchmarks.federation", "--node", *map(str, words)], {}, folder)
            )
        wait(lambda: len(wire.online()) == NODES)
        params, times = torch.zeros(numbers), [time.time()]
        for _ in range(rounds):
            replies = dict(wire.ask({client: Letter("train", {}, {"params": params}) for client in range(NODES)}, 60.0))
            assert len(replies) == NODES, replies.keys()
            params = torch.stack([replies[client].tensors["params"] for client in sorted(replies)]).mean(0)
            times.append(time.time())
    return [after - before for before, after in pairwise(times)]


def stock(numbers: int, rounds: int, folder: Path) -> list[float]:
    home, port, out = folder / "home", free_port(), folder / "times.json"
    home.mkdir()
    connection = f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
    (home / "config.toml").write_text(connection)
    environment = {
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",  # or every round would wait for an installer too
        "PATH": f"{BIN}:{os.environ['PATH']}",
    }
    with ExitStack() as stack:
        link = [str(BIN / "flower-superlink"), "--insecure", "--host", "127.0.0.1", "--port", str(port)]
        stack.enter_context(process(link, environment, folder))
        wait(lambda: listening(port))
        for _ in range(NODES):
            words = ["--insecure", "--superlink", f"127.0.0.1:{port}", "--port", str(free_port())]
            stack.enter_context(process([str(BIN / "flower-supernode"), *words], environment, folder))
        config = f'numbers={numbers} rounds={rounds} out="{out}"'
        subprocess.run(
            [str(BIN / "flwr"), "run", str(APP), "here", "--run-config", config],
            env=os.environ | environment,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        wait(out.exists)
        time.sleep(0.2)
        times = json.loads(out.read_text())
    return [after - before for before, after in pairwise(times)]


@contextmanager
def process(command: list[str], environment: dict[str, str], folder: Path) -> Iterator[None]:
    """A process in a session of its own, and what is left of its descendants ended by their numbers."""
    with (folder / "log").open("ab") as log:
        started = subprocess.Popen(
            command,
            env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
            cwd=Path(__file__).parent.parent,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield
    finally:
        below = descendants(started.pid)
        started.terminate()
        try:
            started.wait(10)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()
        for pid, command_line in below.items():
            if commands().get(pid) == command_line:
                os.kill(pid, signal.SIGTERM)


def commands() -> dict[int, str]:
    lines = subprocess.run(["ps", "-eo", "pid=,args="], capture_output=True, text=True, check=True).stdout
    return {int(line.split(None, 1)[0]): line.split(None, 1)[1] for line in lines.splitlines()}


def descendants(pid: int) -> dict[int, str]:
    lines = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = {int(child): int(parent) for child, parent in (line.split() for line in lines.splitlines())}
    found, before = {pid}, 0
    while len(found) > before:
        before = len(found)
        found |= {child for child, parent in parents.items() if parent in found}
    named = commands()
    return {child: named[child] for child in found - {pid} if child in named}


def free_port() -> int:
    with socket.socket() as any_socket:
        any_socket.bind(("127.0.0.1", 0))
        return int(any_socket.getsockname()[1])


def listening(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


def wait(true: Any) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        if time.monotonic() > end:
            raise SystemExit("a side did not come to its end in time")
        time.sleep(0.1)


def page(record: dict[str, Any]) -> list[str]:
    """As a table, with both readings of what the large round is held to."""
    median = {
        (side, size): statistics.median(times)
        for side, sizes in record["seconds"].items()
        for size, times in sizes.items()
    }
    lines = [
        f"Seconds a round of {NODES} nodes on one host of {record['cores']} cores; median (lowest to highest) of "
        f"{len(record['seconds']['ours']['small'])} rounds of ours and {len(record['seconds']['stock']['small'])} of stock Flower "
        f"{record['flwr']}. "
        + (
            "The machine was idle."
            if max(record["busy"]) <= IDLE
            else f"Other programs kept up to {max(record['busy']):.2f} cores busy: the numbers are rough."
        ),
        "",
        "| numbers | stock quickstart | ours | ours / stock |",
        "|---|---|---|---|",
    ]
    for size, numbers in SIZES.items():
        cells = []
        for side in ("stock", "ours"):
            times = record["seconds"][side][size]
            cells.append(f"{median[side, size]:.2f} ({min(times):.2f} to {max(times):.2f})")
        lines.append(f"| {numbers:,} | {cells[0]} | {cells[1]} | {median['ours', size] / median['stock', size]:.3f} |")
    small, large, theirs = median["ours", "small"], median["ours", "cnn-emnist"], median["stock", "small"]
    lines += [
        "",
        "| held to | at most | measured |",
        "|---|---|---|",
        f"| the small round, of stock's | 0.333 | {small / theirs:.3f} |",
        f"| 6.8 MB both ways, of our own small round | 2.5 | {large / small:.2f} |",
        f"| 6.8 MB both ways, of a third of stock's small round | 2.5 | {large / (theirs / 3):.2f} |",
    ]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one turn of few rounds")
    parser.add_argument(
        "--patience", type=float, default=60.0, help="seconds to wait for an idle machine before each turn"
    )
    parser.add_argument("--node", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.node:
        return node(options.node)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # or what was started would go on
    import flwr

    turns, rounds = (1, {"stock": 3, "ours": 10}) if options.quick else (3, {"stock": 5, "ours": 30})
    seconds: dict[str, dict[str, list[float]]] = {side: {size: [] for size in SIZES} for side in rounds}
    busy: list[float] = []
    for turn in range(turns):
        for size, numbers in SIZES.items():
            for side, measure in (("stock", stock), ("ours", ours)):
                busy.append(wait_for_idle(options.patience) or 0.0)
                with tempfile.TemporaryDirectory() as folder:
                    seconds[side][size] += measure(numbers, rounds[side] + 1, Path(folder))[1:]
                print(f"turn {turn + 1}: {side}, {size}: {statistics.median(seconds[side][size]):.2f} s", flush=True)
    record = {
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "flwr": flwr.__version__,
        "busy": busy,
        "seconds": seconds,
    }
    lines = page(record)
    RESULTS.joinpath("federation.json").write_text(json.dumps(record, indent=1) + "\n")
    RESULTS.joinpath("federation.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    return None


if __name__ == "__main__":
    main()
