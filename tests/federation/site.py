"""A federation of real processes on this host: TLS, node keys, `sfumato node` and `sfumato server`, as their owners start them.

Every process bears the site's mark in its environment, so that what it left behind can be found, and nothing else is touched.
"""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

from sfumato import Plan
from sfumato.data.population import Population
from sfumato.engine.checkpoint import write_atomically
from sfumato.engine.simulate import simulate
from sfumato.engine.simulation import Progress, Simulation
from sfumato.federation.deploy import Place, deploy
from sfumato.federation.server import prepared_for
from sfumato.federation.settings import Settings
from sfumato.ledger.ledger import Entry, Ledger
from sfumato.run.prepare import prepare
from sfumato.run.request import DataRequest, Request
from tests.federation.network import free_port, running, until
from tests.patience import PATIENCE

MARK = "SFUMATO_TEST_SITE"
ROOT = Path(__file__).parent.parent.parent
DATA = DataRequest(clients=3, records_per_client=12)
ALLOW = """
[allow]
recipes = ["any"]
promise = "suffices"
shared_keys = true
[allow.data.digits]
epsilon = inf
"""
# What anybody may read: settings, certificates, and what a run releases. No file of another name may be readable by others.
OPEN = {
    *("README.md", "run.toml", "node.toml", "registry.toml", "terms.json", "authority.pem", "server.pem", "source"),
    *(
        "run.json",
        "metrics.jsonl",
        "report.html",
        "params.safetensors",
        "ledger.sqlite",
        "ledger.sqlite-wal",
        "ledger.sqlite-shm",
    ),
}


def asked(recipe: str = "dp-fedavg", rounds: int = 3, seed: int | None = 7, **options: Any) -> Request:
    """A run that is small enough for a test."""
    own = {"sample": "poisson:0.7", "epochs": 1, "noise_multiplier": 1.0} if recipe.startswith("dp-fed") else {}
    data = replace(DATA, public_records=60) if recipe == "pate-fl" else DATA
    return Request(recipe, rounds=rounds, seed=seed, delta=1e-5, data=data, options={**own, **options})


def people_of(request: Request) -> Population:
    """The same clients in one process."""
    return prepare(replace(request, seed=None, federation={})).population


@dataclass
class Host:
    """One process of the site, and what it says."""

    process: subprocess.Popen[str]
    said: list[str] = field(default_factory=list)
    _reader: threading.Thread | None = None

    def __post_init__(self) -> None:
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self.said.append(line)

    @property
    def words(self) -> str:
        return "".join(self.said)

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def wait(self, seconds: float = PATIENCE) -> int:
        """Its status; a process that does not end in time has failed the test."""
        try:
            status = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"did not end in {seconds:g} s; it said:\n{self.words}") from None
        assert self._reader is not None
        self._reader.join(PATIENCE)
        return status

    def signal(self, number: int) -> None:
        self.process.send_signal(number)


@dataclass
class Site:
    """Owners' folders and a server's, as `sfumato deploy` writes them. `enter` is put before a command to run it elsewhere."""

    folder: Path
    port: int
    address: str = "127.0.0.1"
    clients: int = DATA.clients
    enter: Callable[[str], list[str]] = lambda name: []
    federation: dict[str, Any] = field(default_factory=dict)
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    hosts: list[Host] = field(default_factory=list)
    _nodes: dict[int, Host] = field(default_factory=dict)

    @staticmethod
    def of(folder: Path, address: str = "127.0.0.1", **more: Any) -> Site:
        """Write everything that a federation of three needs; nothing runs yet."""
        site = Site(folder, free_port(), address, **more)
        made = replace(DATA, clients=site.clients)
        deploy(replace(asked(), data=made), site.clients, folder / "made", Place(address, site.port))
        for number in range(site.clients):
            path = site.owner(number) / "node.toml"
            path.write_text(path.read_text().partition("[allow]")[0] + ALLOW)
        for name in ("home", "tmp", "cache"):
            (folder / name).mkdir()
        return site

    def owner(self, number: int) -> Path:
        return self.folder / "made" / f"node-{number + 1}"

    def request(self, request: Request, **federation: Any) -> Request:
        """A run of this federation."""
        table = Request.from_toml(self.folder / "made" / "server" / "run.toml").federation
        table = {**table, "deadline": 20.0, "wait": 60.0, **self.federation, **federation}
        return replace(request, data=replace(request.data, clients=self.clients), federation=table)

    def give(self, people: Population) -> None:
        """Put other records into the owners' folders."""
        for number in range(self.clients):
            records = people.client(number).train
            content = save({"x": records.x.contiguous(), "y": records.y.contiguous()})
            write_atomically(self.owner(number) / "data" / "records.safetensors", content, mode=0o600)

    def settings(self, request: Request) -> Settings:
        return Settings.of(request.federation, self.folder / "made" / "server")

    def start(self, name: str, *words: str, puppet: bool = False) -> Host:
        """`sfumato WORDS` on a host; a puppet does the same, and what its orders say."""
        module = ["tests.federation.puppet", str(self.folder / f"{name}.orders")] if puppet else ["sfumato"]
        own = {"HOME": self.folder / "home", "TMPDIR": self.folder / "tmp", "MPLCONFIGDIR": self.folder / "cache"}
        process = subprocess.Popen(
            [*self.enter(name), sys.executable, "-m", *module, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=ROOT,
            env={**os.environ, **{key: str(value) for key, value in own.items()}, MARK: self.mark},
        )
        self.hosts.append(Host(process))
        return self.hosts[-1]

    def node(self, number: int, puppet: bool = True) -> Host:
        """Start a node, in place of the one that was."""
        name = f"node-{number + 1}"
        host = self.start(name, "node", "--config", str(self.owner(number) / "node.toml"), puppet=puppet)
        self._nodes[number] = host
        return host

    def nodes(self, puppet: bool = True) -> None:
        for number in range(self.clients):
            self.node(number, puppet)

    def at(self, number: int) -> Host:
        """The node of a client, as it runs now."""
        return self._nodes[number]

    def server(self, run: str, request: Request | None = None, puppet: bool = True, **options: Any) -> Host:
        """Start the server on a new run, or on one to go on with."""
        more = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        if request is None:
            return self.start("server", "server", "--resume", str(self.folder / run), *more, puppet=puppet)
        config = self.folder / "made" / "server" / f"{Path(run).name}.toml"
        config.write_text(request.to_toml())
        return self.start(
            "server", "server", "--config", str(config), "--out", str(self.folder / run), *more, puppet=puppet
        )

    def order(self, name: str, *orders: str) -> None:
        """What a puppet does when it comes to a place: e.g. `train nan`, or `stored kill`. Each is done once, in order."""
        path = self.folder / f"{name}.orders"
        temporary = path.with_suffix(".new")
        temporary.write_text("".join(f"{order}\n" for order in orders))
        temporary.replace(path)

    def orders(self, name: str) -> list[str]:
        """Those that are left."""
        path = self.folder / f"{name}.orders"
        return path.read_text().splitlines() if path.exists() else []

    def entries(self, run: str) -> list[Entry]:
        """What the ledger of a run holds."""
        ledger = Ledger(self.folder / run / "ledger.sqlite", None)
        assert ledger.damage() == []
        return ledger.entries()

    def memory(self, number: int, run: str) -> dict[str, torch.Tensor]:
        """What a node remembers of a run that is over."""
        from sfumato.digest import digest
        from sfumato.federation.node.memory import Memory

        return Memory(self.owner(number) / "state" / "digits" / "memory" / digest(run)).before(10**6)

    def left(self) -> list[int]:
        """Every process that bears the mark."""
        return [pid for pid in _marked(self.mark) if running(pid)]

    def close(self) -> None:
        """End what was started; then nothing bears the mark any more, and nobody's rows lie open."""
        ours = [host for host in self.hosts if host.alive]
        for host in ours:
            host.signal(signal.SIGTERM)
        for host in ours:
            try:
                host.process.wait(20.0)
            except subprocess.TimeoutExpired:
                host.process.kill()
                host.process.wait()
        try:
            until(lambda: not self.left())
        finally:
            for pid in self.left():
                os.kill(pid, signal.SIGKILL)
        self.check_private()

    def check_private(self) -> None:
        """Nothing in the owners' home; nothing but what is public can be read by others; no database of Flower's."""
        assert list((self.folder / "home").iterdir()) == []
        for path in self.folder.rglob("*"):
            if not path.is_file() or (self.folder / "cache") in path.parents:
                continue
            assert path.suffix not in {".db", ".fab"}, path
            hidden = any(not others(above) for above in [path, *path.parents] if self.folder in above.parents)
            name = re.sub(r"^\.(.+)\.\d+\.tmp$", r"\1", path.name)  # half written by a process that was killed
            assert hidden or name in OPEN or path.suffix in {".toml", ".orders", ".log"}, f"{path} lies open"
            if path.name.endswith(("checkpoint.safetensors", ".key", "secret")):
                assert not others(path), f"{path} lies open"


def others(path: Path) -> bool:
    """Whether somebody else than its owner may read a file, or enter a folder."""
    return bool(stat.S_IMODE(path.stat().st_mode) & 0o077)


def _marked(mark: str) -> Iterator[int]:
    wanted = f"{MARK}={mark}".encode()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                if wanted in (folder / "environ").read_bytes().split(b"\0"):
                    yield int(folder.name)
            except (OSError, ProcessLookupError):
                continue


@contextmanager
def opened(folder: Path, **more: Any) -> Iterator[Site]:
    """A site that is closed whatever happens; a failure shows what its processes said."""
    site = Site.of(folder, **more)
    try:
        yield site
    except BaseException:
        for host in site.hosts:
            sys.stderr.write(f"--- {' '.join(map(str, host.process.args))}\n{host.words}\n")  # type: ignore[arg-type]
        raise
    finally:
        site.close()


def rounds_of(site: Site, run: str) -> int:
    """How many lines the metrics of a run have."""
    path = site.folder / run / "metrics.jsonl"
    return len(path.read_text().splitlines()) if path.exists() else 0


def here_of(site: Site, request: Request, keys: str) -> tuple[Simulation, Progress]:
    """The same run in this process, on the same clients."""
    request = site.request(request, keys=keys, run="here")
    prepared = prepared_for(request, site.settings(request))
    people = replace(prepared.population, load=people_of(request).load)
    facts = prepared.round, people, prepared.module, prepared.objective
    told = prepared.request.description
    run = simulate(*facts, rounds=request.rounds, seed=request.seed, plan=Plan(), description=told)
    *_, progress = run
    return run, progress
