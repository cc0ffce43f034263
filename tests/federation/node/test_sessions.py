"""What nodes put into secure sums, and what it costs them: a server that is active may begin as many sums as it likes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sfumato import recipes
from sfumato.exact_round import secure
from sfumato.federation.node.answer import Node
from sfumato.federation.node.server import Signing
from sfumato.federation.summing import Summing, sum_settings
from sfumato.federation.terms import Agreement
from tests.federation.loopback import Loopback
from tests.federation.node.helpers import SIZES, ledger_of, policy_of, question_of, store_records, terms_of

SHARES = {"sample": "everyone", "relation": "replace", "smallest": 3, "epochs": 1, "noise_multiplier": 8.0}
ROUND = secure(recipes.build("dp-fedavg-shares", len(SIZES), SHARES, None))
TERMS = terms_of("dp-fedavg-shares", round=ROUND, secure=True, sum={"power": "active"})


def test_the_same_question_in_another_session_has_other_noise_and_counts(tmp_path: Path) -> None:
    """Else a sum of all minus a sum of all but one would be that one's row with a single share of the noise."""
    signing = {client: Ed25519PrivateKey.generate() for client in range(len(SIZES))}
    known = {client: key.public_key().public_bytes_raw() for client, key in signing.items()}
    nodes = {}
    for client, key in signing.items():
        store_records(tmp_path / str(client), client)
        nodes[client] = Node(policy_of(tmp_path / str(client), client), log=print, signing=Signing(key, known))
    agreement = Agreement.of(TERMS)
    questions = {client: question_of(TERMS, client=client) for client in nodes}

    def total(who: Sequence[int]) -> torch.Tensor:
        settings = sum_settings(agreement, questions[0].opening, os.urandom(32), who)
        found, _ = Summing(Loopback(nodes), 5.0, known).total(settings, {client: questions[client] for client in who})
        return found.rows

    everybody = [0, 1, 2, 3]
    assert not torch.equal(total(everybody), total(everybody))
    total([0, 2, 3])
    assert [ledger_of(tmp_path / str(client)).count for client in nodes] == [3, 2, 3, 3]
