"""A node that is killed by -9 after it has reserved: what was reserved counts, and only a stored reply costs nothing new."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from sfumato.federation.node.answer import Node
from sfumato.federation.terms import Terms
from sfumato.federation.wire import Letter
from sfumato.ledger.ledger import Ledger
from tests.federation.node.helpers import ledger_of, letter_of, policy_of, store_records, terms_of
from tests.patience import PATIENCE

PRIVATE = terms_of("prifedsync", options={"records": 5, "batch": "poisson:0.5", "steps": 2})
PROMISED = terms_of("dp-fedavg")


@pytest.mark.parametrize(
    ("terms", "when"),
    [(PRIVATE, "training"), (PRIVATE, "replying"), (PROMISED, "training")],
    ids=["own, in training", "own, before the reply", "promised"],
)
def test_killed_between_reservation_and_reply(tmp_path: Path, terms: Terms, when: str) -> None:
    folder, letter = tmp_path / "node", tmp_path / "asked.letter"
    store_records(folder)
    letter.write_bytes(letter_of(terms).to_bytes())
    words = [sys.executable, "-m", "tests.federation.node.crash", str(folder), str(letter), when]
    assert subprocess.run(words, timeout=PATIENCE, check=False).returncode == -signal.SIGKILL

    def reserved() -> set[int]:
        return {ledger_of(folder).count, Ledger(folder / "total.sqlite", None).count}

    assert reserved() == {1}
    replies = [Node(policy_of(folder))(letter_of(terms)) for _ in range(2)]
    if when == "replying":
        replies.append(Letter.from_bytes(letter.with_suffix(".reply").read_bytes()))
    assert {reply.kind for reply in replies} == {"ok"}
    assert reserved() == {2 if (terms, when) == (PRIVATE, "training") else 1}  # killed before its reply was stored
    assert all(torch.equal(reply.tensors["row"], replies[0].tensors["row"]) for reply in replies)
