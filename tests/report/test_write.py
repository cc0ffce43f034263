from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sfumato.commands.app import app
from sfumato.errors import BadValue, DataError
from sfumato.report import write_pictures, write_report
from sfumato.report.curves import thinned

from .runs import baseline, lines, proven, summary, unproven, write_run

runner = CliRunner()


def test_one_run_is_written_into_its_folder_and_may_be_made_again(tmp_path: Path) -> None:
    folder = proven(tmp_path / "run")
    for _ in range(2):
        result = runner.invoke(app, ["report", str(folder)], catch_exceptions=False)
        assert result.exit_code == 0
        assert result.output.strip() == str(folder / "report.html")
    assert sorted(path.name for path in folder.iterdir()) == ["metrics.jsonl", "report.html", "run.json", "run.toml"]


def test_several_runs_are_written_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = [str(proven(tmp_path / "a")), str(unproven(tmp_path / "b"))]
    monkeypatch.chdir(tmp_path)
    result = runner.invoke(app, ["report", *folders], catch_exceptions=False)
    assert result.output.strip() == "comparison.html"
    assert "Comparison of 2 runs" in (tmp_path / "comparison.html").read_text()
    assert not (tmp_path / "a" / "report.html").exists()


def test_out_and_pictures(tmp_path: Path) -> None:
    folder, out, pictures = proven(tmp_path / "run"), tmp_path / "new" / "page.html", tmp_path / "pictures"
    arguments = ["report", str(folder), "--out", str(out), "--pictures", str(pictures)]
    for _ in range(2):
        result = runner.invoke(app, arguments, catch_exceptions=False)
        assert result.output.split() == [
            str(out),
            *(str(pictures / f"{name}.png") for name in ("accuracy", "loss", "epsilon")),
        ]
    for picture in pictures.iterdir():
        assert picture.read_bytes().startswith(b"\x89PNG")
        assert 10_000 < picture.stat().st_size < 300_000


def test_pictures_of_several_runs_carry_any_name(tmp_path: Path) -> None:
    folders = [proven(tmp_path / "_a$b$^{"), proven(tmp_path / "日本"), baseline(tmp_path / "c")]
    written = write_pictures(folders, tmp_path / "out")
    assert [path.name for path in written] == ["accuracy.png", "loss.png", "accuracy-against-epsilon.png"]


def test_a_curve_without_points_has_no_picture(tmp_path: Path) -> None:
    assert [path.name for path in write_pictures([unproven(tmp_path / "a")], tmp_path)] == ["accuracy.png", "loss.png"]


@pytest.mark.parametrize("content", [b"", b"<!doctype html><p>mine</p>", b"\xff\xfe"])
def test_a_file_of_the_users_is_kept(tmp_path: Path, content: bytes) -> None:
    folder, mine = proven(tmp_path / "run"), tmp_path / "mine.html"
    mine.write_bytes(content)
    with pytest.raises(BadValue, match=r"mine.html exists and was not made by sfumato report"):
        write_report([folder], mine)
    assert mine.read_bytes() == content
    (tmp_path / "epsilon.png").write_bytes(content)
    with pytest.raises(BadValue, match=r"epsilon.png exists"):
        write_pictures([folder], tmp_path)
    assert (tmp_path / "epsilon.png").read_bytes() == content
    assert not (tmp_path / "accuracy.png").exists()


def test_a_page_is_no_picture_and_a_folder_is_no_file(tmp_path: Path) -> None:
    folder = proven(tmp_path / "run")
    write_report([folder], tmp_path / "accuracy.png")
    with pytest.raises(BadValue, match="exists"):
        write_pictures([folder], tmp_path)
    with pytest.raises(BadValue, match="is a folder"):
        write_report([folder], tmp_path)


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    folder = proven(tmp_path / "run")
    with pytest.raises(DataError, match="cannot be written"):
        write_report([folder], folder / "run.json" / "page.html")


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("run.json", None, "holds an unfinished run. Finish it first: sfumato train --resume"),
        ("run.json", "{", "run.json is not JSON"),
        ("run.json", "[]", "holds no table of values"),
        ("run.json", '{"schema": 99}', "has schema 99, not 2"),
        ("run.json", '{"schema": 2, "recipe": "fedavg"}', "run.json lacks data, model, input_shape"),
        ("metrics.jsonl", '{"round": 1}\nno\n{"round": 3}\n', "metrics.jsonl, line 2, is not a round"),
        ("metrics.jsonl", '{"epsilon": 1}\n{"round": 3}\n', "metrics.jsonl, line 1, is not a round"),
        ("metrics.jsonl", '[1]\n{"round": 3}\n', "metrics.jsonl, line 1, is not a round"),
    ],
)
def test_a_broken_run_is_refused(tmp_path: Path, file: str, content: str | None, words: str) -> None:
    folder = proven(tmp_path / "run")
    (folder / file).unlink()
    if content is not None:
        (folder / file).write_text(content)
    with pytest.raises(DataError) as refusal:
        write_report([folder], folder / "report.html")
    assert words in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert not (folder / "report.html").exists()


def test_a_missing_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no such run folder"):
        write_report([proven(tmp_path / "a"), tmp_path / "b"], tmp_path / "out.html")
    with pytest.raises(DataError, match=r"holds no run: run.json is missing"):
        write_report([tmp_path], tmp_path / "out.html")
    with pytest.raises(BadValue, match="at least one run"):
        write_report([], tmp_path / "out.html")
    assert not (tmp_path / "out.html").exists()


def test_a_torn_last_line_is_left_out_and_the_last_word_on_a_round_counts(tmp_path: Path) -> None:
    torn = write_run(tmp_path / "run", summary(), [*lines(3), {"round": 3, "epsilon": 9.5, "accuracy": 0.5}])
    with (torn / "metrics.jsonl").open("a") as file:
        file.write('{"round": 4, "eps')
    assert "to 9.5 at 3." in write_report([torn], torn / "report.html").read_text()


def test_thinning_keeps_the_ends_and_the_extremes() -> None:
    points = [(float(i), float(i % 7)) for i in range(10_000)]
    points[1234], points[8765] = (1234.0, 99.0), (8765.0, -99.0)
    kept = thinned(points, 100)
    assert len(kept) <= 100
    assert {points[0], points[-1], points[1234], points[8765]} <= set(kept)
    assert kept == sorted(kept)
    assert thinned(points[:100], 100) == points[:100]


def test_no_torch_is_loaded(tmp_path: Path) -> None:
    folder = proven(tmp_path / "run")
    code = (
        "import sys; from pathlib import Path; from sfumato.commands.report import report; "
        "assert not {'torch', 'matplotlib'} & set(sys.modules); "
        f"report([Path({str(folder)!r})]); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, capture_output=True)
