"""`sfumato deploy`: everything that a federation needs, in one folder for each host; or all of it on this machine, as a trial."""

from __future__ import annotations

import inspect
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sfumato.commands.answers import refusing
from sfumato.commands.asked import request_from
from sfumato.commands.options import option, signature
from sfumato.commands.paragraphs import print_lines
from sfumato.errors import BadValue
from sfumato.run.request import Request

_NOT_ASKED = {"resume", "auto", "seconds", "budgets", "clients", "diagnostics", "device", "quiet", "json", "out"}
_PATIENCE = 20.0  # seconds for a node to end by itself


def _deploy(recipe: str | None, **given: Any) -> None:
    chosen = {name: value for name, value in given.items() if value is not None and value != []}
    nodes, local = chosen.pop("nodes", None), chosen.pop("local", None)
    if (nodes is None) == (local is None):
        raise BadValue(
            "give --nodes N, to write the files of a federation, or --local N, to try all of it on this machine."
        )
    from sfumato.federation import needs_flower

    needs_flower()
    from sfumato.federation.deploy import Place, deploy

    port = chosen.pop("port", None) or (_free_port() if local else 9092)
    names = ("input_shape", "input_type", "target_shape", "target_type", "power")
    shapes = {name: _shape(name, chosen.pop(name)) for name in names if name in chosen}
    place = Place(chosen.pop("host", "127.0.0.1"), port, **shapes)
    out, config, settings = Path(chosen.pop("out", "federation")), chosen.pop("config", None), chosen.pop("set", [])
    request, _ = request_from(recipe, config, {**chosen, "clients": nodes or local}, settings)
    if local and request.data.name != "digits" and not _named(request):
        raise BadValue(
            f"--local {local}: a trial shares out a data set with a name, and {request.data.name} is with its owners."
        )
    files = deploy(request, nodes or local, out, place)
    print_lines(f"{out / 'README.md'} has the commands for the server and for each of {len(files)} nodes")
    if local:
        from sfumato.commands.server import serve_run

        with _nodes(files):
            serve_run(Request.from_toml(out / "server" / "run.toml"), {}, out / "server", out / "run")


def _named(request: Request) -> bool:
    from sfumato.data.load import NAMES

    return request.data.name in NAMES


def _shape(name: str, value: str) -> Any:
    """`1,28,28` as a shape; a type is a word."""
    if not name.endswith("shape"):
        return value
    parts = [part.strip() for part in value.split(",") if part.strip()]
    if not all(part.isdigit() for part in parts):
        raise BadValue(f"--{name.replace('_', '-')} {value}: whole numbers divided by commas, e.g. 1,28,28.")
    return tuple(map(int, parts))


@contextmanager
def _nodes(files: tuple[Path, ...]) -> Iterator[None]:
    """The nodes of a trial, each a process of its own, ended when the trial is over."""
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "sfumato", "node", "--config", str(file), "--quiet"], stdin=subprocess.DEVNULL
        )
        for file in files
    ]
    try:
        yield
    finally:
        for process in started:
            process.terminate()
        for process in started:
            try:
                process.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def deploy(**given: Any) -> None:
    """Write what a federation needs: run.toml, certificates, keys, node.toml for each owner, and the commands for each host.

    With --local N all of it runs on this machine, as a trial. It needs the extra 'flower'.
    """
    with refusing(False):
        _deploy(given.pop("recipe"), **given)


def _signature() -> inspect.Signature:
    panel = "Federation"
    asked = [one for one in signature().parameters.values() if one.name not in _NOT_ASKED]
    more = [
        option("nodes", int, "How many nodes there are; each is one client.", panel),
        option("local", int, "Try it with so many nodes on this machine.", panel),
        option("host", str, "Under which name or address nodes reach the server. Default: 127.0.0.1.", panel, "HOST"),
        option("port", int, "Its port. Default: 9092; with --local any that is free.", panel),
        option(
            "input_shape", str, "Of a record, where data are with their owners, e.g. 30 or 1,28,28.", panel, "N,..."
        ),
        option("input_type", str, "Its type. Default: float32.", panel),
        option("target_shape", str, "Of a target; a single number by default.", panel, "N,..."),
        option("target_type", str, "Its type: int64 (classes, the default) or float32 (regression).", panel),
        option("power", str, "Of the server in a secure sum: 'follows the protocol' (default) or active.", panel),
        option("out", str, "Folder of the federation, which must be new. Default: federation.", panel, "FOLDER"),
    ]
    return inspect.Signature([*asked, *more])


deploy.__signature__ = _signature()  # type: ignore[attr-defined]
deploy.__annotations__ = {p.name: p.annotation for p in _signature().parameters.values()}
