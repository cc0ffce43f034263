"""On a cluster of processes the same bits as in this one, also when workers die; no record, no key of the server's leaves."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from sfumato import (
    Clip,
    Everyone,
    FixedSize,
    HelperBlend,
    Mean,
    Median,
    Plan,
    Poisson,
    Population,
    RealisedMean,
    Round,
    Sgd,
    Unit,
    classification,
)  # fmt: skip
from sfumato.cli import run as sfumato
from sfumato.engine import ray_cluster
from sfumato.engine.checkpoint import Checkpoint
from sfumato.engine.on_ray import ray_workers
from sfumato.engine.ray_cluster import Cluster
from sfumato.engine.simulate import simulate
from sfumato.engine.simulation import Progress, Simulation
from sfumato.engine.workers import asked_shards
from sfumato.errors import BadValue, DataError
from sfumato.ledger.ledger import Ledger
from sfumato.local.dp_sgd import DpSgd
from tests.engine.far_people import WIDE, Deadly, crowd
from tests.helpers import dp_round, linear
from tests.patience import PATIENCE

pytestmark = pytest.mark.processes

PEOPLE = Population.from_import("tests.engine.far_people:people")
SUM = dp_round()
KEEPING = Round(
    sample=Everyone(), local=DpSgd(steps=2, batch=Poisson(0.5), records=5), aggregate=RealisedMean(),
    personal=HelperBlend(0.3), unit=Unit.RECORD,
)  # fmt: skip
GATHERS = Round(
    sample=FixedSize(7), local=Sgd(lr=0.1, epochs=1), client=(Clip(1.0),), aggregate=Median(), nonprivate=True
)
PLAN = Plan("stacked", 3, shards=3)


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[Any]:
    """One for all tests of this file; runs use it, and leave it as it is."""
    ours = Cluster("local", 2)
    yield ours.open()
    ours.close()


def ready(round: Round = SUM, people: Population = PEOPLE, **options: Any) -> Simulation:
    settings: dict[str, Any] = {"rounds": 3, "seed": 0, "plan": PLAN, **options}
    return simulate(round, people, linear(), classification(3), **settings)


def last(run: Simulation) -> Progress:
    *_, progress = run
    return progress


@pytest.mark.parametrize("round", [SUM, KEEPING, GATHERS], ids=["sum", "memory", "gathers"])
def test_the_bits_are_those_of_this_process(round: Round) -> None:
    far, near = ready(round, cohort=ray_workers("local", 2), diagnostics=True), ready(round, diagnostics=True)
    there, here = last(far), last(near)
    assert torch.equal(there.params, here.params)
    assert there.diagnostics == here.diagnostics, "in the order of the clients"
    assert there.memory.keys() == here.memory.keys() and bool(here.memory) == (round is KEEPING)
    assert all(torch.equal(there.memory[client]["start"], rows["start"]) for client, rows in here.memory.items())
    whole = last(ready(round, plan=replace(PLAN, shards=1)))
    assert torch.allclose(there.params, whole.params, atol=1e-5)


def test_a_worker_that_is_killed_is_started_again_to_the_same_bits(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    marker = tmp_path / "died"
    round = dp_round(sample=Everyone(), local=Deadly(str(marker)))
    run = ready(round, cohort=ray_workers("local", 2), folder=tmp_path / "run")
    there = last(run)
    assert int(marker.read_text()) != os.getpid(), "a worker was killed in the second round"
    assert torch.equal(there.params, last(ready(round)).params)
    assert [(one.round, one.attempt, one.settled) for one in run.ledger.entries()] == [(n, 0, True) for n in range(3)]
    time.sleep(1.0)  # by then Ray would have told it
    assert capfd.readouterr() == ("", "")


def test_data_that_change_under_a_worker_that_is_started_again_are_refused(tmp_path: Path) -> None:
    place = tmp_path / "people"
    place.mkdir()
    for number in range(8):
        torch.save({"x": PEOPLE.client(number).train.x, "y": PEOPLE.client(number).train.y}, place / f"{number}.pt")
    people, marker = Population.from_folder(place), tmp_path / "died"
    round = dp_round(sample=Everyone(), local=Deadly(str(marker)))
    run = ready(round, people, cohort=ray_workers("local", 2), folder=tmp_path / "run")
    rounds = iter(run)
    next(rounds)
    torch.save({"x": torch.ones(2, 6), "y": torch.zeros(2, dtype=torch.int64)}, place / "4.pt")
    with pytest.raises(DataError, match="the data on .* are not those of this run: 8 clients"):
        next(rounds)
    stored = Checkpoint.read(tmp_path / "run")
    assert stored is not None and stored.round == 1 and run.ledger.count == 2, "nothing was added, and the round counts"


def test_other_data_elsewhere_are_refused_before_anything_is_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAR_RECORD", "2.0")
    people = Population.from_import("tests.engine.far_people:other_elsewhere")
    with pytest.raises(DataError, match="the data on .* are not those of this run: 11 clients"):
        ready(people=people, cohort=ray_workers("local", 2))


def test_what_a_client_cannot_do_is_said_as_if_it_were_here() -> None:
    people = replace(PEOPLE, source="tests.engine.far_people:narrow_elsewhere")
    run = ready(dp_round(sample=Everyone()), people, cohort=ray_workers("local", 1))
    with pytest.raises(DataError, match=r"client 4: inputs have shape \(5,\)"):
        list(run)
    for _ in range(2):
        run.cohort.close()  # again, which is no mistake


class TestMemory:
    """Ten times the cohort needs no more memory: rows are added where they are trained, and forgotten."""

    peaks: dict[int, list[int]] = {}

    @pytest.mark.parametrize("cohort", [1_000, 10_000])
    def test_peaks(self, cohort: int) -> None:
        people = Population.from_import("tests.engine.far_people:crowd")
        assert people.size == crowd().size
        Path("/proc/self/clear_refs").write_text("5")  # the peak of this process begins anew
        before = peak("self")
        round = dp_round(sample=FixedSize(cohort), aggregate=Mean(over=1), local=Sgd(lr=0.1, epochs=1, batch_size=2))
        plan = Plan("stacked", 32, shards=2)
        run = simulate(
            round, people, nn.Linear(WIDE, 10), classification(10), rounds=1, seed=0, plan=plan,
            cohort=ray_workers("local", 2),
        )  # fmt: skip
        rounds = iter(run)
        next(rounds)
        workers = [peak(pid) for pid in processes("ray::_Worker")]
        assert len(workers) == 2
        TestMemory.peaks[cohort] = [peak("self") - before, *workers]

    def test_they_are_alike(self) -> None:
        rows = 4 * 10_000 * (WIDE + 1) * 10
        assert rows > 150e6
        for few, many in zip(self.peaks[1_000], self.peaks[10_000], strict=True):
            assert many - few < 30e6, self.peaks


def peak(pid: str) -> int:
    """The most memory that a process has had, in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def processes(title: str, token: str = "") -> list[str]:
    """Processes of our cluster with a title: those that know its token."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            words, environment = (place / "cmdline").read_bytes(), (place / "environ").read_bytes()
        except OSError:
            continue
        if words.startswith(title.encode()) and (token or os.environ["RAY_AUTH_TOKEN"]).encode() in environment:
            found.append(place.name)
    return found


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[dict[str, str]]:
    """An environment with a home and a folder for temporary files that are empty, and are again when all is over."""
    with tempfile.TemporaryDirectory() as home, tempfile.TemporaryDirectory() as temporary:
        known = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "OMP_NUM_THREADS") if name in os.environ}
        pictures = {"MPLCONFIGDIR": str(tmp_path)}  # of the report, as without a cluster
        yield {**known, **pictures, "HOME": home, "TMPDIR": temporary, "OURS": temporary}
        assert os.listdir(home) == os.listdir(temporary) == []
        assert not processes("", token=f"OURS={temporary}"), "nobody is left"


WORDS = [
    "train",
    "--clients",
    "40",
    "--epochs",
    "1",
    "--clip",
    "1",
    "--noise-multiplier",
    "4",
    "--sample",
    "poisson:0.5",
]


def test_an_interrupted_run_leaves_nobody_and_nothing_behind(bare: dict[str, str], tmp_path: Path) -> None:
    words = [
        sys.executable,
        "-m",
        "sfumato",
        *WORDS,
        "--ray",
        "local",
        "--workers",
        "2",
        "--rounds",
        "2000",
        "--out",
        "run",
    ]
    run = subprocess.Popen(words, cwd=tmp_path, env=bare, stderr=subprocess.PIPE, text=True, start_new_session=True)
    assert run.stderr is not None
    first = run.stderr.readline()
    os.killpg(run.pid, signal.SIGINT)  # as a terminal does it: everybody gets it
    _, told = run.communicate(timeout=PATIENCE)
    assert run.returncode == 130 and first.startswith("round 1/2000"), first + told
    *others, end = told.splitlines()
    assert end == "interrupted; go on with: sfumato train --resume run"
    assert all(line.startswith("round ") for line in others), told
    stored = Checkpoint.read(tmp_path / "run")
    assert stored is not None and stored.plan.shards == 2


def test_a_run_joins_a_cluster_by_its_address(cluster: Any, bare: dict[str, str], tmp_path: Path) -> None:
    address, token = cluster.get_runtime_context().gcs_address, os.environ["RAY_AUTH_TOKEN"]
    words = [sys.executable, "-m", "sfumato", *WORDS, "--ray", address, "--rounds", "2", "--out", "run"]
    known = {**bare, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token}
    done = subprocess.run([*words, "--json"], cwd=tmp_path, env=known, capture_output=True)
    assert done.stderr == b"" and json.loads(done.stdout).get("rounds") == 2, done
    assert "shards=2" in (tmp_path / "run" / "run.toml").read_text(), "as many as it has CPUs"


def test_a_run_goes_on_with_another_number_of_workers_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    seeded = [*WORDS, "--seed", "0", "--rounds", "2", "--quiet"]
    assert sfumato([*seeded, "--out", "far", "--ray", "local", "--workers", "2"]) == 0
    shutil.copytree("far", "near")
    assert sfumato(["train", "--resume", "far", "--rounds", "4", "--quiet", "--ray", "local", "--workers", "1"]) == 0
    assert sfumato(["train", "--resume", "near", "--rounds", "4", "--quiet"]) == 0
    assert Path("far", "params.safetensors").read_bytes() == Path("near", "params.safetensors").read_bytes()
    for name in ("far", "near"):
        ledger = Ledger(Path(name, "ledger.sqlite"), None, None)
        assert [(one.round, one.attempt) for one in ledger.entries()] == [(number, 0) for number in range(4)]


def test_options_that_mean_nothing_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    for words, refusal in (
        (["--workers", "2"], "--workers 2: only a cluster has some"),
        (["--shards", "2"], "--shards 2: only a cluster has some"),
        (["--ray", "nonsense"], "--ray nonsense: give local, or HOST:PORT"),
        (["--resume", "x", "--ray", "local", "--shards", "2"], "has the shards that it began with"),
        (["dp-sgd", "--ray", "local"], "one holder computes every round alone"),
        (["--device", "cuda", "--ray", "local"], "torch finds no CUDA"),
    ):
        monkeypatch.setattr("ray.is_initialized", lambda: False)
        assert sfumato(["train", *words]) == 2
        assert refusal in capsys.readouterr().err


def test_a_plan_of_threads_or_more_workers_than_shards_is_refused() -> None:
    for plan, words in (
        (
            Plan(workers=2, shards=2),
            r"a worker elsewhere has one thread.*Give Plan\(path='loop', block=1, workers=1, shards=2\)",
        ),
        (Plan(shards=1), "2 workers, and the plan of this run cuts a cohort into 1"),
    ):
        with pytest.raises(BadValue, match=words):
            ready(plan=plan, cohort=ray_workers("local", 2))
    with pytest.raises(BadValue, match="3 workers, and 2 CPUs of the cluster are free"):
        ready(cohort=ray_workers("local", 3))
    for numbers, words in (((0, None), "workers=0: at least 1"), ((3, 2), "3 workers, and 2 shards")):
        with pytest.raises(BadValue, match=words):
            ray_workers("local", *numbers)


def test_a_population_of_this_process_is_refused_with_what_to_do() -> None:
    held = replace(PEOPLE, source="")
    with pytest.raises(BadValue, match=r"lies in the memory of this process.*Population.from_folder"):
        ready(people=held, cohort=ray_workers("local", 2))


def test_a_plan_is_to_have_as_many_shards_as_workers_unless_more_are_asked_for() -> None:
    assert [asked_shards(ray_workers("local", *numbers)) for numbers in ((2, None), (1, 3))] == [2, 3]
    assert asked_shards(ray_workers("local")) == len(os.sched_getaffinity(0))


def test_ray_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(BadValue, match=r"Ray is not installed.*pip install 'sfumato\[ray\]'"):
        ray_workers("local", 2)


def test_an_address_without_a_cluster_is_refused_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_cluster, "_PATIENCE", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as other:
        speaks_otherwise = f"127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(BadValue, match=r"does not speak as a Ray cluster within 1 s"):
            ray_cluster._check_answers(speaks_otherwise)
    with pytest.raises(BadValue, match="nobody answers there"):
        ray_cluster._check_answers(speaks_otherwise)
    with pytest.raises(BadValue, match="give local, or HOST:PORT"):
        ray_cluster._check_answers("ray://nowhere")
