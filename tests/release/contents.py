"""What must be in a wheel and an sdist, whatever else is."""

from __future__ import annotations

import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
SOURCE = ROOT / "src"


def of_wheel(path: Path) -> set[str]:
    """The files of a wheel."""
    with zipfile.ZipFile(path) as archive:
        return set(archive.namelist())


def of_sdist(path: Path) -> set[str]:
    """The files of an sdist, without the folder that they lie in."""
    with tarfile.open(path) as archive:
        return {name.partition("/")[2] for name in archive.getnames()}


def of_package() -> set[str]:
    """Every file of the package as it lies here: code, styles, pages, types."""
    kept = (path for path in (SOURCE / "sfumato").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(SOURCE).as_posix() for path in kept}


def metadata(path: Path) -> str:
    """What a wheel says of itself."""
    with zipfile.ZipFile(path) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return archive.read(name).decode()
