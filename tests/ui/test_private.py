"""Released values only, and nothing from outside the folder: every way that we could think of to ask for more."""

from __future__ import annotations

import http.client
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest

from sfumato.errors import BadValue, DataError
from sfumato.ui.app import application
from sfumato.ui.folder import Runs
from sfumato.ui.ledgers import every
from tests.report.runs import proven
from tests.ui.asking import Asker
from tests.ui.conftest import MARK
from tests.ui.serving import served

SEED = "918273"  # of the runs that were only written down
PRIVATE = (
    "first/diagnostics-not-private/rounds.jsonl", "first/audit-not-private/rmia.json", "first/personal-1.safetensors",
    "first/notes.txt",
    "real/params.safetensors", "real/checkpoint.safetensors", "real/diagnostics-not-private/rounds.jsonl",
    "first/run.json", "first/run.toml", "real/run.toml", "real/ledger.sqlite", "people.sqlite",
    "../outside.txt", "../elsewhere/notes.txt",
    "../elsewhere", "first/diagnostics-not-private", "first/audit-not-private",
    "..", ".", "", "/etc/passwd", "first/..", "real/../../elsewhere",
)  # fmt: skip


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    with served(folder) as found:
        yield found


def _ways(name: str) -> Iterator[str]:
    """A file's name in every place of a request where one could stand, plain, escaped, and escaped twice."""
    escaped = quote(name, safe="")
    for one in {name, escaped, quote(escaped, safe=""), name.replace("../", "..%2f")}:
        for before in ("", "/", "page/", "page/../", "page/..%2f..%2f", "runs/", "report/"):
            yield f"/{before}{one}"
        for question in ("/report?run", "/api/run?name", "/api/ledger?delta=0.1&name"):
            yield f"{question}={one}"
            yield f"{question}=first/../{one}"
            yield f"{question}=first%00/{one}"


def test_no_private_file_is_served_by_any_path(address: str, folder: Path) -> None:
    where = urlsplit(address)
    connection = http.client.HTTPConnection(where.hostname or "", where.port)
    connection.request("GET", f"/?{where.query}")
    answer = connection.getresponse()
    answer.read()
    cookie = {"Cookie": (answer.getheader("set-cookie") or "").partition(";")[0]}
    files = [(folder / name).read_bytes() for name in PRIVATE if (folder / name).is_file()]
    asked = sorted({way for name in PRIVATE for way in _ways(name)})
    assert len(asked) > 1000
    for way in asked:
        connection.putrequest("GET", way.replace(" ", "%20"), skip_host=False)  # sent as it is, dots and all
        connection.putheader("Cookie", cookie["Cookie"])
        connection.endheaders()
        answer = connection.getresponse()
        content = answer.read()
        assert answer.status < 500, way
        assert MARK.encode() not in content and SEED.encode() not in content, way
        assert content not in files and b"root:" not in content, way
    connection.close()


def test_what_is_answered_holds_neither_seeds_nor_private_state(client: Asker) -> None:
    runs = [run["name"] for run in client.get("/api/runs").json()["runs"]]
    assert sorted(runs) == ["first", "group/second", "real"]
    paths = [
        "/api/runs",
        "/api/ledgers",
        *(f"/api/run?name={name}" for name in runs),
        *(f"/report?run={name}" for name in runs),
    ]
    paths += [
        "/report?run=first&run=group/second",
        "/api/ledger?name=real",
        "/api/ledger?name=shared: people.sqlite&delta=0.001",
    ]
    for path in paths:
        answer = client.get(path)
        assert answer.status_code == 200 and "refused" not in answer.text, path
        assert SEED not in answer.text and MARK not in answer.text, path


def _client(root: Path) -> Asker:
    return Asker(application(Runs.under(root)))


def test_a_link_to_a_run_elsewhere_is_no_run(tmp_path: Path) -> None:
    proven(tmp_path / "elsewhere")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "runs" / "up").symlink_to(tmp_path)
    assert not Runs.under(tmp_path / "runs").all()


@pytest.mark.parametrize("name", ["run.json", "run.toml", "metrics.jsonl", "audit.json", "ledger.sqlite", "run.lock"])
@pytest.mark.parametrize("inside", [True, False])
def test_a_run_whose_files_are_links_is_not_read(tmp_path: Path, name: str, inside: bool) -> None:
    run = proven(tmp_path / "runs" / "first")
    target = run / "diagnostics-not-private" / "rounds.jsonl" if inside else tmp_path / "outside"
    target.parent.mkdir(exist_ok=True)
    target.write_text(MARK)
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(target)
    client = _client(tmp_path / "runs")
    for path in ("/api/runs", "/api/run?name=first", "/report?run=first", "/api/ledger?name=first"):
        answer = client.get(path)
        assert MARK not in answer.text, path
        assert "not read" in answer.text or (name != "ledger.sqlite" and "no ledger" in answer.text), path


def test_a_pipe_in_place_of_a_file_does_not_hold_the_page_up(tmp_path: Path) -> None:
    run = proven(tmp_path / "runs" / "first")
    (run / "metrics.jsonl").unlink()
    os.mkfifo(run / "metrics.jsonl")
    assert "not read" in _client(tmp_path / "runs").get("/api/runs").text


def test_a_shared_ledger_that_is_a_link_is_not_offered(folder: Path, tmp_path: Path) -> None:
    shutil.copy(folder / "people.sqlite", tmp_path / "outside.sqlite")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "link.sqlite").symlink_to(tmp_path / "outside.sqlite")
    (tmp_path / "runs" / "other.sqlite").write_text("no ledger")
    assert not every(Runs.under(tmp_path / "runs"))
    assert list(every(Runs.under(tmp_path / "runs", (tmp_path / "outside.sqlite",)))) == ["shared: outside.sqlite"]


def test_two_shared_ledgers_of_one_name_are_both_offered(folder: Path, tmp_path: Path) -> None:
    paths = [tmp_path / place / "people.sqlite" for place in ("a", "b", "runs")]
    for path in paths:
        path.parent.mkdir()
        shutil.copy(folder / "people.sqlite", path)
    found = every(Runs.under(tmp_path / "runs", tuple(paths[:2])))
    assert found == {f"shared: {path.parent.name}/people.sqlite": path.resolve() for path in paths}


def test_a_folder_that_is_not_one_of_runs_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(BadValue, match="no such folder"):
        Runs.under(tmp_path / "nowhere")
    with pytest.raises(BadValue, match="is a run itself"):
        Runs.under(folder / "first")
    with pytest.raises(BadValue, match="no such file"):
        Runs.under(folder, (tmp_path / "nothing.sqlite",))
    with pytest.raises(DataError, match="there is no run"):
        Runs.under(folder).find("../elsewhere")
