"""The peers' environments: `python -m benchmarks.peers [--peers DIR]` makes those that are missing.

pfl needs another dp-accounting than we do, so no peer shares an environment with us. The folder is `--peers`, else the
variable PEERS, else `.peers` in the project; requirement lists are in `benchmarks/peers/`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
SCRIPTS = Path(__file__).parent / "peers"
NAMES = ("pfl", "flower", "kymatio", "opacus", "jax_privacy", "tensorflow_privacy", "hugging_face")


def add_option(parser: argparse.ArgumentParser) -> None:
    """The option that every benchmark with peers has."""
    default = Path(os.environ.get("PEERS", ROOT / ".peers"))
    parser.add_argument("--peers", type=Path, default=default, help="folder of the peers' environments")


def python(name: str, folder: Path) -> Path:
    """The interpreter of a peer's environment, which is made if it is not there."""
    interpreter = folder.resolve() / name / "bin" / "python"
    if not interpreter.exists():
        make(name, folder.resolve())
    return interpreter


def make(name: str, folder: Path) -> None:
    """A new environment, whole or not at all. Torch comes first, so that nothing pulls another one."""
    print(f"making the environment of {name} in {folder / name} ...", file=sys.stderr, flush=True)
    path = folder / name
    requirements = (SCRIPTS / f"{name}.txt").read_text().split()
    try:
        subprocess.run([sys.executable, "-m", "venv", str(path)], check=True)
        pip = [str(path / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        torch = [line for line in requirements if line.startswith("torch==")]
        for step in filter(None, (torch, requirements)):
            subprocess.run([*pip, *step], check=True)
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise


def main(arguments: list[str] | None = None) -> None:
    """Make what is missing and say where it is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_option(parser)
    folder = parser.parse_args(arguments).peers
    for name in NAMES:
        print(name, python(name, folder))


if __name__ == "__main__":
    main()
