"""The notebooks of the tutorial: run from top to bottom, each in a kernel of its own."""

from __future__ import annotations

import re
import sys
import warnings
from pathlib import Path
from typing import Any

import nbformat
import pytest

FOLDER = Path(__file__).parent.parent.parent / "docs" / "learn"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def executed(path: Path, where: Path) -> Any:
    """The notebook with the outputs of a fresh run that stands in the folder `where`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Jupyter's own parts, about each other
        from nbclient import NotebookClient

        notebook = nbformat.read(path, as_version=4)
        settings: dict[str, Any] = {"kernel_name": "python3", "record_timing": False, "timeout": 120}
        NotebookClient(notebook, resources={"metadata": {"path": str(where)}}, **settings).execute()
    return notebook


def says(cell: Any) -> str:
    """What a cell printed and gave back, as text; pictures are named by their kind only."""
    parts = []
    for output in cell.get("outputs", []):
        kinds = sorted(output.get("data", {}))
        pictures = [kind for kind in kinds if kind.startswith("image/")]
        parts.append(output.get("text", "") or " ".join(pictures) or output["data"].get("text/plain", ""))
    return "".join(parts)


def alike(stored: str, now: str) -> bool:
    """The same words, and the same numbers but for what another machine may round in another way."""
    return len(stored.split()) == len(now.split()) and all(map(_alike, stored.split(), now.split()))


def _alike(stored: str, now: str) -> bool:
    number = r"[-+]?\d+\.?\d*(?:e[-+]?\d+)?"
    if re.sub(number, "#", stored) != re.sub(number, "#", now):
        return False
    pairs = zip(re.findall(number, stored), re.findall(number, now), strict=True)
    return all(float(a) == pytest.approx(float(b), rel=2e-3, abs=6e-3) for a, b in pairs)


def store(path: Path, where: Path) -> None:
    """Run a notebook and keep what it gave, without what differs from run to run."""
    notebook = executed(path, where)
    notebook.metadata = nbformat.from_dict(
        {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        }
    )
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.execution_count = None
            for output in cell.outputs:
                if output.output_type == "execute_result":
                    output.execution_count = None
    nbformat.validate(notebook)
    nbformat.write(notebook, path)
    print(f"{path.name}: {sum(len(says(cell)) for cell in notebook.cells)} characters", file=sys.stderr)
