"""`python -m tests.federation.puppet ORDERS COMMAND ...`: the command line of Sfumato, which does what a file orders when it comes
to a place: be killed there, wait, or say something else than it would.

A line of the file is a place, what to do there, and perhaps a number; it is taken off the file before it is done. A place is
the kind of a letter that a node answers (`train`), or one that a server comes to (`stored`). Every time that a server draws the
noise of a round, it notes so in a file, on disk before anything of it can be seen.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that started the tests may have it ignored

import torch  # noqa: E402

from sfumato.digest import digest  # noqa: E402
from sfumato.federation.wire import Letter  # noqa: E402

_last: dict[str, Letter] = {}


class Orders:
    """The file, read anew at each place."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def at(self, place: str) -> list[str]:
        """The order for this place, if it is the next, as words."""
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        if not lines or lines[0].split()[0] != place:
            return []
        temporary = self.path.with_suffix(".taken")
        temporary.write_text("".join(f"{line}\n" for line in lines[1:]))
        temporary.replace(self.path)
        return lines[0].split()[1:]

    def note(self, words: str) -> None:
        """A line that is on disk when this returns."""
        with self.path.with_name("noise.log").open("a") as file:
            file.write(words + "\n")
            file.flush()
            os.fsync(file.fileno())


def do(order: list[str]) -> None:
    """What any process can be ordered to do."""
    if order and order[0] in ("kill", "stop"):
        os.kill(os.getpid(), signal.SIGKILL if order[0] == "kill" else signal.SIGINT)
    if order and order[0] == "wait":
        time.sleep(float(order[1]))
    if order and order[0] == "fill":  # from here on, no file may grow beyond so many bytes, as on a disk that is full
        import resource

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(order[1]), resource.RLIM_INFINITY))


def said(order: str, answer: Letter, before: Letter) -> Letter:
    """What a node says in place of its answer."""
    row = answer.tensors.get("row", torch.zeros(1))
    changed = {
        "nan": lambda: Letter("ok", answer.facts, {"row": row * torch.nan}),
        "shape": lambda: Letter("ok", answer.facts, {"row": torch.cat([row, row])}),
        "long": lambda: Letter("ok", answer.facts, {"row": 1e6 * torch.ones_like(row)}),
        "replay": lambda: before,
        "nonsense": lambda: Letter("ok", {"weight": "much"}, {}),
    }
    return changed[order]() if order in changed else answer


def of_node(orders: Orders) -> None:
    """Places of a node: each kind of letter, before it is answered; and `KIND.after`, when its answer is ready."""
    from sfumato.federation.node.answer import Node

    real = Node.__call__

    def call(self: Node, letter: Letter) -> Letter:
        order = orders.at(letter.kind)
        do(order)
        if order[:1] == ["hash"]:
            letter = Letter(letter.kind, {**letter.facts, "hash": "0" * 32}, letter.tensors)
        answer = real(self, letter)
        do(orders.at(f"{letter.kind}.after"))
        before, _last[letter.kind] = _last.get(letter.kind, answer), answer
        return said(order[0], answer, before) if order else answer

    Node.__call__ = call  # type: ignore[method-assign]
    _pushes(orders)


def _pushes(orders: Orders) -> None:
    """The place `push`: a reply leaves twice, or without its last part."""
    from sfumato.federation.flower import node
    from sfumato.federation.flower.calls import CallFailed

    real = node.call
    cut: list[bool] = []

    def call(method: Any, request: Any) -> Any:
        if method.__name__ == "PushMessages":
            order = orders.at("push")
            cut[:] = [True] if order == ["cut"] else []
            if order == ["twice"]:
                real(method, request)
        if method.__name__ == "PushObject" and cut:
            raise CallFailed("push", ValueError("cut"))
        return real(method, request)

    node.call = call  # type: ignore[assignment]


def of_server(orders: Orders) -> None:
    """Places of a server, in the order in which it comes to them in a round."""
    from sfumato.engine.checkpoint import Checkpoint
    from sfumato.engine.clients import Total
    from sfumato.engine.keys import Keys
    from sfumato.engine.simulation import Simulation
    from sfumato.engine.slots import Opening
    from sfumato.federation.cohort import Federation
    from sfumato.federation.flower.server import FlowerWire
    from sfumato.federation.server import Served
    from sfumato.ledger.spending import Spending
    from sfumato.run.run import Run

    link: list[FlowerWire] = []

    def come(place: str) -> None:
        order = orders.at(place)
        if order[:1] == ["superlink"]:
            os.kill(link[-1]._child.pid, signal.SIGKILL)
        do(order)

    def before(owner: Any, name: str, place: str) -> None:
        _wrap(owner, name, lambda *given: come(place), lambda *given: None)

    def after(owner: Any, name: str, place: str) -> None:
        _wrap(owner, name, lambda *given: None, lambda *given: come(place))

    def noted(run: Simulation, now: Checkpoint, total: Total, opening: Opening, keys: Keys) -> None:
        orders.note(f"{opening.number} {keys.server.digest} {digest(total.rows, total.weight, now.params)}")

    def replace(source: Any, target: Any) -> None:
        if Path(target).suffix in (".safetensors", ".json", ".html"):
            come(f"storing.{Path(target).stem}")
        real(source, target)

    real, os.replace = os.replace, replace  # type: ignore[assignment]
    _wrap(FlowerWire, "_start", lambda wire, *given: link.append(wire), lambda *given: None)
    before(Served, "check", "check")
    after(Served, "check", "checked")
    after(Spending, "reserve", "reserved")
    _wrap(Simulation, "_serve", noted, lambda *given: come("noise"))
    before(Checkpoint, "write", "storing")
    after(Checkpoint, "write", "stored")
    before(Spending, "settle", "settling")
    before(Federation, "released", "released")
    before(Run, "_write", "between")
    before(Run, "finish", "finish")
    before(Served, "end", "end")
    _phases(come)


def _phases(come: Callable[[str], None]) -> None:
    """Places of questions, e.g. `asked.train`: once somebody has been sent one of its kind."""
    from sfumato.federation.flower.asking import Asking
    from sfumato.federation.flower.server import FlowerWire

    kinds: list[str] = []
    _wrap(
        FlowerWire, "ask", lambda wire, letters, *more: kinds.extend({one.kind for one in letters.values()}), _nothing
    )
    _wrap(Asking, "post", _nothing, lambda *given: come(f"asked.{kinds[-1]}") if kinds else None)


def _nothing(*given: Any) -> None:
    return None


def _wrap(owner: Any, name: str, first: Callable[..., object], then: Callable[..., object]) -> None:
    real = getattr(owner, name)

    def wrapped(*given: Any, **named: Any) -> Any:
        first(*given, *named.values())
        result = real(*given, **named)
        then(*given)
        return result

    setattr(owner, name, wrapped)


def _end_with(parent: int) -> None:
    """A test that is killed leaves no puppet."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    orders = Orders(Path(sys.argv.pop(1)))
    of_node(orders) if sys.argv[1] == "node" else of_server(orders)
    from sfumato.__main__ import main as sfumato

    sfumato()


if __name__ == "__main__":
    main()
