"""UDP-FL from the command line: a law by its name, records set aside as public, and farms that say what is not hidden."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Command
from tests.data.files import write_wind

SMALL = ["--clients", "4", "--records-per-client", "100", "--records", "100", "--batch", "poisson:0.2", "--rounds", "2"]


def test_public_records_train_the_curve_and_are_counted(sfumato: Command) -> None:
    words = ["--aggregate", "mode-connectivity", "--public-records", "300", "--noise-multiplier", "1"]
    answer = sfumato("train", "udp-fl", *SMALL, *words, "--out", "run")
    assert answer.status == 0, answer.err
    summary = json.loads(Path("run/run.json").read_text())
    assert summary["counts"] == {"train": 1100, "test": 397, "public": 300} and summary["unit"] == "record"
    assert sfumato("train", "--resume", "run", "--rounds", "3").status == 0


def test_a_law_and_its_budget(sfumato: Command) -> None:
    answer = sfumato("train", "udp-fl", *SMALL, "--law", "laplace", "--epsilon", "4", "--delta", "1e-5", "--out", "run")
    assert answer.status == 0, answer.err
    assert 3.98 <= json.loads(Path("run/run.json").read_text())["epsilon"] <= 4.0
    assert "Laplace noise" in answer.out and "L1 sensitivity" in answer.out


def test_farms_by_default_and_what_hides_no_hour(sfumato: Command, tmp_path: Path) -> None:
    write_wind(tmp_path / "data" / "gefcom2012-wind", hours=11_400)
    words = [
        "--data",
        "gefcom2012-wind",
        "--data-dir",
        "data",
        "--model",
        "cnn-wind",
        "--records",
        "900",
        "--steps",
        "1",
    ]
    answer = sfumato("train", "udp-fl", *words, "--rounds", "1", "--noise-multiplier", "1", "--out", "run")
    assert answer.status == 0, answer.err
    summary = json.loads(Path("run/run.json").read_text())
    assert summary["data"] == "gefcom2012-wind/natural/7" and summary["outputs"] == 48
    assert "in up to 5 of them" in " ".join(answer.out.split()) and any(
        "overlap" in text for text in summary["assumptions"]
    )
    assert "mse" in summary["metrics"]
