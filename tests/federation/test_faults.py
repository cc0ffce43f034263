"""Faults under a real run: whoever is killed, late, broken or out of disk, training goes on or stops with a sentence, no round is
counted less than it cost, and the run can be finished.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

pytest.importorskip("flwr", reason="sfumato[flower] is not installed")
if not Path("/proc/self/environ").exists():
    pytest.skip("looks for processes in /proc", allow_module_level=True)

from sfumato.engine.checkpoint import Checkpoint
from tests.federation.network import children, until
from tests.federation.site import Host, Site, asked, opened, rounds_of
from tests.federation.soak import check_spent, check_whole
from tests.patience import PATIENCE

pytestmark = pytest.mark.processes

DEADLINE = 8.0


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with opened(tmp_path_factory.mktemp("faults"), federation={"deadline": DEADLINE, "wait": 30.0}) as site:
        site.nodes()
        yield site


@pytest.fixture(autouse=True)
def nothing_from_before(site: Site) -> None:
    """Neither orders nor notes of a test that failed."""
    for path in site.folder.glob("*.orders"):
        path.write_text("")
    (site.folder / "noise.log").unlink(missing_ok=True)


def check_run(site: Site, run: str, rounds: int, lost: int = 0) -> None:
    """What holds of every run that is over: whole files, and at least as many reservations as noise was drawn."""
    entries, drawn = check_spent(site, run)
    assert {entry.round for entry in site.entries(run)} == set(range(rounds))
    assert entries >= drawn >= rounds - lost
    folder = site.folder / run
    told = json.loads((folder / "run.json").read_text())
    assert told["rounds"] == rounds
    params = load_file(folder / "params.safetensors")
    assert all(bool(torch.isfinite(value).all()) for value in params.values())
    assert check_whole(site, run) == rounds == rounds_of(site, run)
    (site.folder / "noise.log").unlink(missing_ok=True)


def finished(host: Host, seconds: float = PATIENCE) -> str:
    assert host.wait(seconds) == 0, host.words
    assert "Traceback" not in host.words
    return host.words


def tallies(words: str) -> dict[int, str]:
    """What the server said of each round."""
    return {int(found[1]): found[2] for found in re.finditer(r"^round (\d+): (\d+ of .*)$", words, re.MULTILINE)}


def test_replies_that_cannot_be_used(site: Site) -> None:
    broken = {
        "nan": "not-finite",
        "shape": "wrong-shape",
        "hash": "refused.hash",
        "long": "too-long",
        "nonsense": "wrong",
    }
    site.order("node-3", *(f"train {what}" for what in broken), "train replay", "push twice", "push cut")
    words = finished(site.server("broken", site.request(asked(seed=None, rounds=7, sample="everyone"))))
    said = tallies(words)
    for number, code in enumerate(broken.values(), 1):
        assert said[number].startswith("2 of 3 replied, 1 ") and code in said[number]
    assert 6 not in said and said[7] == "2 of 3 replied, 1 late"  # said twice, and cut short
    assert site.orders("node-3") == []
    site.at(2).process.kill()  # its SuperNode waits for the rest of that reply for a minute
    site.node(2)
    check_run(site, "broken", 7)


def test_a_node_is_late_another_is_killed_and_both_come_back(site: Site) -> None:
    site.order("node-1", f"train wait {DEADLINE + 4}")
    site.order("node-2", "train kill")
    server = site.server("late", site.request(asked(seed=None, rounds=4, sample="everyone")))
    assert site.at(1).wait(PATIENCE) == -signal.SIGKILL
    site.node(1)
    said = tallies(finished(server))
    assert "1 of 3 replied" in said[1] and "late" in said[1]
    assert 4 not in said or "1 of 3" not in said[4]  # they are back
    check_run(site, "late", 4)


def test_supernodes_and_superlink_are_killed(site: Site) -> None:
    site.order(
        "server", "check superlink", "asked.train superlink", "noise superlink", "between superlink", "end superlink"
    )
    server = site.server("links", site.request(asked(seed=None, rounds=5, sample="everyone")))
    until(lambda: rounds_of(site, "links") >= 3 or not server.alive, PATIENCE)
    for number in range(2):
        for pid in children(site.at(number).process.pid):
            os.kill(pid, signal.SIGKILL)
    finished(server)
    assert site.orders("server") == []
    check_run(site, "links", 5)


PLACES = ("asked.train", "storing", "stored", "end")  # python -m tests.federation goes to all of them


def test_the_server_is_killed_everywhere_and_goes_on(site: Site) -> None:
    request = site.request(asked(seed=None, rounds=4, sample="everyone"))
    for nth, place in enumerate(PLACES):
        site.order("server", f"{place} kill")
        killed = site.server("killed", None if nth else request)
        assert killed.wait(PATIENCE) == -signal.SIGKILL, f"{place}: {killed.words}"
        check_whole(site, "killed")
        check_spent(site, "killed")
    finished(site.server("killed"))
    assert (
        len(site.entries("killed")) == 4 + 2
    )  # asked, storing: nothing of these two rounds was stored, and each counts
    check_run(site, "killed", 4)


def test_ctrl_c_on_the_server_and_on_a_node_that_comes_back_with_other_records(site: Site) -> None:
    server = site.server("stopped", site.request(asked(seed=None, rounds=60, sample="everyone")))
    until(lambda: rounds_of(site, "stopped") >= 1 or not server.alive, PATIENCE)
    server.signal(signal.SIGINT)
    assert server.wait() == 130
    assert "go on with: sfumato server --resume" in server.words and "Traceback" not in server.words
    site.at(2).signal(signal.SIGINT)
    assert site.at(2).wait() == 130
    assert "Traceback" not in site.at(2).words
    (site.owner(2) / "data" / "records.safetensors").write_bytes(
        (site.owner(0) / "data" / "records.safetensors").read_bytes()
    )
    site.node(2)
    done = rounds_of(site, "stopped")
    finished(site.server("stopped", rounds=done + 1))
    check_run(site, "stopped", done + 1)


@contextmanager
def small_disk(folder: Path, size: str = "1m") -> Iterator[None]:
    """A file system that can be filled; what was in the folder stays as it was."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "tmpfs", str(folder)], check=False)
    if mounted.returncode:
        pytest.skip("no file system may be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def filled(folder: Path) -> Iterator[None]:
    """A disk without a byte left."""
    path = folder / "filler"
    try:
        with path.open("wb", buffering=0) as file:
            while True:
                file.write(b"\0" * 512)
    except OSError:
        pass
    try:
        yield
    finally:
        path.unlink()


def test_a_full_disk_under_the_servers_ledger(site: Site) -> None:
    disk = site.folder / "disk"
    with small_disk(disk):
        server = site.server("disk/run", site.request(asked(seed=None, rounds=100, sample="everyone")))
        until(lambda: rounds_of(site, "disk/run") >= 1 or not server.alive, PATIENCE)
        with filled(disk):
            assert server.wait(PATIENCE) == 2
            assert re.search("full|space", server.words.lower()) and "Traceback" not in server.words, server.words
        last = Checkpoint.read(disk / "run")
        assert last is not None
        finished(site.server("disk/run", rounds=last.round + 2))
        check_run(site, "disk/run", last.round + 2)


def test_a_full_disk_under_a_nodes_ledger(site: Site) -> None:
    site.at(0).signal(signal.SIGTERM)
    site.at(0).wait()
    state = site.owner(0) / "state" / "digits"
    with small_disk(state):
        site.node(0)
        request = site.request(
            asked("prifedsync", seed=None, rounds=60, sample="everyone", records=12, batch="fixed:4", steps=2)
        )
        server = site.server("full", request)
        until(lambda: rounds_of(site, "full") >= 1 or not server.alive, PATIENCE)
        with filled(state):
            until(lambda: "1 refused.full" in server.words or not server.alive, PATIENCE)
        done = rounds_of(site, "full")
        until(lambda: rounds_of(site, "full") >= done + 3 or not server.alive, PATIENCE)
        server.signal(signal.SIGINT)
        assert server.wait() == 130
        said = tallies(server.words)
        assert max(said) < rounds_of(site, "full"), server.words  # it answers again
        site.at(0).signal(signal.SIGTERM)
        site.at(0).wait()
    site.node(0)


@pytest.mark.parametrize("kind", ["sum.row"])
def test_a_secure_sum_is_left_by_a_node_and_by_the_server(site: Site, kind: str) -> None:
    request = replace(asked("dp-fedavg-shares", seed=None, rounds=2, sample="everyone", smallest=2), secure=True)
    site.order("server", f"asked.{kind} kill")
    assert site.server("sum", site.request(request)).wait(PATIENCE) == -signal.SIGKILL
    site.order("node-2", f"{kind} kill")
    server = site.server("sum")
    assert site.at(1).wait(PATIENCE) == -signal.SIGKILL
    site.node(1)
    finished(server)
    assert [(entry.round, entry.attempt) for entry in site.entries("sum")] == [(0, 0), (0, 1), (1, 1)]
    check_run(site, "sum", 2, lost=2)
