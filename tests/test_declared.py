"""Every package that the code imports is declared in pyproject.toml: what another one brings along today, it may not tomorrow."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
NAMES = {"PIL": "pillow", "mlflow": "mlflow-skinny", "sklearn": "scikit-learn"}  # where they are not the package's own
LOADERS = ("import_module", "importorskip")
# What needs an extra: imported by nothing else before it has looked whether the extra is there.
NEEDS = {
    "data/tables.py": "parquet",  # for files of that kind alone
    "data/usps.py": "usps",
    "engine/ray_cluster.py": "ray",
    "federation": "flower",
    "ui": "ui",
}
MADE_BY_TESTS = {"hers", "mine_data"}  # modules that a test writes into its folder


def _in_types(tree: ast.Module) -> set[ast.AST]:
    """What only a type checker reads."""
    blocks = [node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)]
    return {inner for block in blocks for inner in ast.walk(block)}


def imported(source: str) -> Iterator[str]:
    """The top names of the modules that a file imports, in whatever way."""
    tree = ast.parse(source)
    for node in set(ast.walk(tree)) - _in_types(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield str(node.module).partition(".")[0]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in LOADERS:
            yield from (str(one.value).partition(".")[0] for one in node.args[:1] if isinstance(one, ast.Constant))


def packages(folder: Path, own: set[str]) -> dict[str, set[str]]:
    """The packages from elsewhere that the files of a folder import, by file."""
    found = {}
    for path in sorted(folder.rglob("*.py")):
        names = set(imported(path.read_text())) - own - set(sys.stdlib_module_names)
        found[path.relative_to(folder).as_posix()] = {NAMES.get(name, name.replace("_", "-")) for name in names}
    return found


def declared(*extras: str) -> set[str]:
    """The packages that an installation with these extras asks for by name."""
    found, left = set[str](), [*PROJECT["dependencies"], *(one for extra in extras for one in EXTRAS[extra])]
    while left:
        name, inner = re.match(r"([\w-]+)(?:\[([\w,-]+)\])?", left.pop()).groups()  # type: ignore[union-attr]
        if name == PROJECT["name"]:
            left += [one for extra in inner.split(",") for one in EXTRAS[extra]]
        else:
            found.add(name)
    return found


def extra_of(path: str) -> tuple[str, ...]:
    return tuple(extra for place, extra in NEEDS.items() if path == place or path.startswith(f"{place}/"))


SOURCES = packages(ROOT / "src", {"sfumato"})


def test_the_library_imports_what_it_declares() -> None:
    for path, names in SOURCES.items():
        assert names <= declared(*extra_of(path.removeprefix("sfumato/"))), path


@pytest.mark.parametrize("folder", ["tests", "examples"])
def test_tests_import_what_their_extras_declare(folder: str) -> None:
    known = declared("test", "flower", "oracle")
    for path, names in packages(ROOT / folder, {"sfumato", "tests", *MADE_BY_TESTS}).items():
        assert names <= known, path


def test_nothing_is_declared_that_is_not_imported() -> None:
    used = {name for names in SOURCES.values() for name in names}
    assert declared(*NEEDS.values()) == used


def test_click_would_be_missed() -> None:
    assert not set(imported("def f():\n    import click.core\n")) <= declared()
    assert set(imported("import_module('pandas.io')")) == {"pandas"}
    assert not set(imported("if TYPE_CHECKING or loaded:\n    from jaxtyping import Float"))
