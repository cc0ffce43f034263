"""A connection to a Ray cluster, quiet and bounded; and a cluster of our own on this machine. Nothing else imports Ray."""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from typing import Any

from sfumato.errors import BadValue

LOCAL = "local"
_PATIENCE = 30.0  # seconds for a cluster to answer
_ROOM = 5.0  # seconds for the workers of another run to go
_TOKEN = secrets.token_hex(32)  # of a cluster of our own: who does not know it cannot reach the workers


class Cluster:
    """A connection to a cluster, and the cluster itself where it is ours: it ends with the last run that uses it.

    Ours sends no statistics, shows no dashboard, asks for a token that this process alone knows, and keeps its files in a
    folder that is removed with it.
    """

    def __init__(self, address: str, workers: int | None) -> None:
        self._address, self._workers = address, workers
        self._users, self._ours = 0, False
        self._folder: str | None = None
        self._before: dict[str, str | None] = {}

    def check(self) -> None:
        """Refuse, before anything else is done, where there is no Ray or no cluster."""
        if not import_ray().is_initialized() and self._address != LOCAL:
            _check_answers(self._address)

    def count(self) -> int:
        """How many CPUs there are."""
        if self._address == LOCAL:
            return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return max(1, int(self._connected().cluster_resources().get("CPU", 1)))

    def open(self) -> Any:
        """Ray, connected, for one more user."""
        found = self._connected()
        self._users += 1
        return found

    def close(self) -> None:
        """One user less; after the last, nothing is left behind."""
        self._users -= 1
        if self._users <= 0 and self._ours:
            self._end()

    def check_room(self, workers: int) -> None:
        """Refuse more workers than there are CPUs free: those without one would never begin."""
        end = time.monotonic() + _ROOM
        while (free := int(import_ray().available_resources().get("CPU", 0))) < workers:
            if time.monotonic() > end:
                raise BadValue(
                    f"{workers} workers, and {free} CPUs of the cluster are free: each takes one. Give fewer, or wait for them."
                )
            time.sleep(0.1)

    def _connected(self) -> Any:
        ray = import_ray()
        if not ray.is_initialized():
            self._ours = True
            try:
                self._start(ray) if self._address == LOCAL else ray.init(self._address, **_quiet())
            except BaseException:
                self._end()
                raise
        return ray

    def _start(self, ray: Any) -> None:
        self._folder = tempfile.mkdtemp(prefix="sfumato-", dir=_short_folder())
        self._before = {name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN")}
        os.environ["OMP_NUM_THREADS"] = "1"
        os.environ.setdefault("RAY_AUTH_TOKEN", _TOKEN)  # else Ray would write one into the user's home
        count = self._workers or self.count()
        ray.init(
            LOCAL,
            num_cpus=count,
            include_dashboard=False,
            _temp_dir=self._folder,
            _node_ip_address="127.0.0.1",
            **_quiet(),
        )

    def _end(self) -> None:
        import_ray().shutdown()
        self._ours, self._users = False, 0
        for name, word in self._before.items():
            if word is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = word
        self._before = {}
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


def _quiet() -> dict[str, Any]:
    return {"log_to_driver": False, "logging_level": logging.ERROR}


def _short_folder() -> str | None:
    """Where temporary folders are made, unless the names of sockets in them would be longer than the system takes."""
    return None if len(tempfile.gettempdir()) <= 20 or not os.path.isdir("/tmp") else "/tmp"


def _check_answers(address: str) -> None:
    """Refuse an address where no cluster answers: Ray itself would wait for it for ever."""
    host, colon, port = address.rpartition(":")
    if address != "auto":
        if not colon or not port.isdigit() or "/" in host:
            raise BadValue(f"--ray {address}: give local, or HOST:PORT of a cluster that runs, e.g. 10.0.0.1:6379.")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=5.0).close()
        except OSError as error:
            raise BadValue(
                f"--ray {address}: nobody answers there ({error}). Start a cluster with ray start --head --port {port}, or use "
                "--ray local."
            ) from None
    tried = "import logging, sys, ray; ray.init(sys.argv[1], log_to_driver=False, logging_level=logging.ERROR)"
    try:
        done = subprocess.run(
            [sys.executable, "-c", tried, address], capture_output=True, text=True, timeout=_PATIENCE, check=False
        )
    except subprocess.TimeoutExpired:
        raise BadValue(
            f"--ray {address}: what answers there does not speak as a Ray cluster within {_PATIENCE:g} s. Give the address that "
            "ray start --head has printed."
        ) from None
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise BadValue(
            f"--ray {address}: {reason}. Run this on a host of the cluster, with the same Ray; if it asks for a token, with "
            "RAY_AUTH_MODE=token and RAY_AUTH_TOKEN."
        )


def import_ray() -> Any:
    """Ray, if it is installed. It sends no statistics, and says nothing on standard output when it starts a worker again."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", r"_Worker\.|worker died|node with node id")
    try:
        import ray
    except ImportError:
        raise BadValue(
            "Ray is not installed, so there are no workers elsewhere. Install it with: pip install 'sfumato[ray]'."
        ) from None
    return ray
