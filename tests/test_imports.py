"""Rooms: arrows go down only. No cycle between folders, lazy imports included; what states a cost needs no torch."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCES = Path(__file__).parent.parent / "src" / "sfumato"
ABOVE_ALL = {"commands", "cli", "__main__", "__init__"}  # import everything, and are imported by nothing below


def _imports(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text())
    for_types = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node not in for_types and (node.module or "").startswith("sfumato"):
            _, *rest = (node.module or "").split(".")
            yield from [rest[0]] if rest else [alias.name for alias in node.names]


def _graph() -> dict[str, set[str]]:
    """Which room imports which; a file at the top is a room of its own."""
    found: dict[str, set[str]] = {}
    for path in SOURCES.rglob("*.py"):
        place = path.relative_to(SOURCES)
        room = place.parts[0].removesuffix(".py")
        found.setdefault(room, set()).update(name for name in _imports(path) if name != room)
    return found


def _cycle(graph: dict[str, set[str]]) -> list[str]:
    """Some cycle, as a list of rooms; empty if there is none."""
    done: set[str] = set()

    def visit(room: str, path: list[str]) -> list[str]:
        if room in path:
            return [*path[path.index(room) :], room]
        if room in done:
            return []
        for other in sorted(graph.get(room, ())):
            if found := visit(other, [*path, room]):
                return found
        done.add(room)
        return []

    return next((found for room in sorted(graph) if (found := visit(room, []))), [])


def test_there_is_no_cycle_between_rooms() -> None:
    graph = _graph()
    assert len(graph) > 20
    assert not _cycle({room: others for room, others in graph.items() if room != "__init__"})


def test_a_cycle_would_be_found() -> None:
    assert _cycle({"a": {"b"}, "b": {"c"}, "c": {"a"}}) == ["a", "b", "c", "a"]


@pytest.mark.parametrize("room", ["commands", "cli", "ui"])
def test_nothing_imports_what_people_see(room: str) -> None:
    assert not [other for other, names in _graph().items() if room in names and other not in ABOVE_ALL]


@pytest.mark.parametrize(
    "module",
    [
        "claim",
        "derive",
        "guarantee",
        "account.auto",
        "pieces.sampler",
        "pieces.law",
        "pieces.payment",
        "planning.solve",
    ],
)
def test_what_states_a_cost_needs_no_torch(module: str) -> None:
    code = f"import sys, sfumato.{module}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
