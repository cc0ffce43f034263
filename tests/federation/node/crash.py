"""A node in a process of its own that is killed between its reservation and its reply: `python -m tests.federation.node.crash`."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from sfumato.engine import clients
from sfumato.federation.node.answer import Node
from sfumato.federation.wire import Letter
from tests.federation.node.helpers import policy_of


def main(folder: Path, letter: Path, when: str) -> None:
    node = Node(policy_of(folder))
    asked = Letter.from_bytes(letter.read_bytes())
    if when == "training":
        clients.Clients.__call__ = _killed  # type: ignore[method-assign]
    letter.with_suffix(".reply").write_bytes(node(asked).to_bytes())
    _killed()


def _killed(*_: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
