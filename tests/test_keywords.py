"""Where two arguments of one type could be swapped unseen, constructors are called by keyword."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import sfumato

SOURCE = Path(sfumato.__file__).parent
FILES = [SOURCE / "derive.py", *sorted((SOURCE / "engine").glob("*.py")), *sorted((SOURCE / "run").glob("*.py"))]
MOST = 3  # arguments by position


def by_position(source: str) -> Iterator[str]:
    """Calls of classes that pass more arguments by position, or a tuple of them."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not ast.unparse(node.func).rpartition(".")[2][:1].isupper():
            continue
        if len(node.args) > MOST or any(isinstance(one, ast.Starred) for one in node.args):
            yield f"line {node.lineno}: {ast.unparse(node)}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_constructors_are_called_by_keyword(path: Path) -> None:
    assert list(by_position(path.read_text())) == []


def test_a_tuple_of_arguments_would_be_seen() -> None:
    assert len(list(by_position("Derivation(1, 2, 3, 4)\nnn.Linear(*sizes)\nsum(1, 2, 3, 4)\nPair(1, *[2])"))) == 3
