"""The tutorial runs as it is stored, and what it shows is what it gives."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from tests.site.notebooks import NOTEBOOKS, alike, executed, says


def test_the_path_has_five_steps() -> None:
    assert [path.name[:2] for path in NOTEBOOKS] == ["1-", "2-", "3-", "4-", "5-"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_small_and_ends_with_what_comes_next(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
    assert 10 <= len(notebook.cells) <= 24
    assert notebook.cells[0].source.startswith(f"# {path.name[0]}. ")
    assert "](" in notebook.cells[-1].source


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_gives_what_it_shows(path: Path, tmp_path: Path) -> None:
    stored = nbformat.read(path, as_version=4)
    now = executed(path, tmp_path)
    for before, after in zip(stored.cells, now.cells, strict=True):
        assert alike(says(before), says(after)), f"{before.source}\nshows\n{says(before)}\ngives\n{says(after)}"


def test_a_stale_output_is_noticed() -> None:
    assert alike("epsilon 2.0001, accuracy 0.92", "epsilon 2.0003, accuracy 0.92")
    assert not alike("epsilon 2.0001", "epsilon 2.1")
    assert not alike("accuracy 0.92", "accuracy 0.90")
    assert not alike("refused", "accepted")
