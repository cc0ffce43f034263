from __future__ import annotations

from pathlib import Path

import pytest

from .runs import GUARANTEE, baseline, lines, proven, summary, unproven, write_run
from .test_page import page


def test_two_runs_side_by_side(tmp_path: Path) -> None:
    second = write_run(tmp_path / "second", summary(epsilon=6.0, clip=0.5, accuracy=0.93), lines(40, epsilon=6.0))
    found = page(proven(tmp_path / "first"), second)
    assert "Comparison of 2 runs" in found.text
    assert "first second Epsilon 1.988 6 Accuracy 90.56 % 93.00 % Loss 0.3471 0.3471 Clip norm 1 0.5" in found.text
    assert "In common: recipe dp-fedavg, data digits, model logistic, delta 0.00295, rounds 40" in found.text
    assert found.text.count(GUARANTEE) == 1 and "first, second dp-fedavg on digits" in found.text
    assert found.tags.count("svg") == 3
    assert found.source.count("stroke: var(--run-0)") >= 2
    assert found.source.count("stroke: var(--run-1)") >= 2
    assert "with care" not in found.text


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"relation": "replace"}, "relation differs here"),
        ({"unit": "record", "delta": 1e-6}, "unit and delta differ here"),
    ],
)
def test_epsilons_of_different_promises_are_marked(tmp_path: Path, change: dict[str, object], words: str) -> None:
    assert words in page(proven(tmp_path / "first"), proven(tmp_path / "second", **change)).text


def test_a_run_without_guarantee_is_a_level_among_those_that_have_one(tmp_path: Path) -> None:
    found = page(proven(tmp_path / "first"), unproven(tmp_path / "second"), baseline(tmp_path / "third"))
    assert "Dashed and level" in found.text
    assert "1.988 none proven none proven" in found.text
    assert "Not private" in found.text
    assert "A claim too far" in found.text


def test_without_any_epsilon_there_is_nothing_to_draw_against(tmp_path: Path) -> None:
    found = page(unproven(tmp_path / "first"), baseline(tmp_path / "second"))
    assert "No run has both an epsilon" in found.text
    assert found.tags.count("svg") == 2


def test_equal_folder_names_are_told_apart(tmp_path: Path) -> None:
    found = page(proven(tmp_path / "a" / "run"), proven(tmp_path / "b" / "run"))
    assert "a/run" in found.text
    assert "b/run" in found.text
    assert str(tmp_path) not in found.source


def test_the_same_folder_twice_is_one_run(tmp_path: Path) -> None:
    folder = proven(tmp_path / "run")
    assert "report of one run" in page(folder, folder).text


def test_twenty_long_runs_stay_a_page(tmp_path: Path) -> None:
    folders = [write_run(tmp_path / f"run-{i}", summary(), lines(2000, best=0.6 + i / 100)) for i in range(20)]
    found = page(*folders)
    assert len(found.source) < 600_000
    assert "And 14 further runs." in found.source
