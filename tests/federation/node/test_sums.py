"""Nodes in a secure sum whose server does what it likes with sessions and questions."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sfumato import recipes
from sfumato.exact_round import secure
from sfumato.federation.node.answer import Node
from sfumato.federation.node.server import Signing
from sfumato.federation.question import Question
from sfumato.federation.summing import Summing, sum_settings
from sfumato.federation.terms import Agreement, Terms
from sfumato.federation.wire import Letter
from sfumato.ledger.ledger import Budget, Ledger
from sfumato.report.ledgers import guarantees
from sfumato.secure_sum import GaveUp, Power
from tests.federation.loopback import Loopback
from tests.federation.node.helpers import SIZES, ledger_of, policy_of, question_of, store_records, terms_of

EVERYBODY = range(len(SIZES))
OPTIONS = {"sample": "everyone", "relation": "replace", "smallest": 3, "noise_multiplier": 1.0, "epochs": 1}


def summed(power: Power) -> Terms:
    round = secure(recipes.build("dp-fedavg-shares", len(SIZES), OPTIONS))
    return terms_of("dp-fedavg-shares", round=round, secure=True, options=OPTIONS, sum={"power": power.value})


@dataclass
class Nodes:
    """Four nodes that know each other's keys, and a server that asks them as it likes."""

    folder: Path
    power: Power
    changed: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        keys = {client: Ed25519PrivateKey.generate() for client in EVERYBODY}
        self.verifying = {client: key.public_key().public_bytes_raw() for client, key in keys.items()}
        self.said: list[str] = []
        self.terms = summed(self.power)
        self.agreement = Agreement.of(self.terms)
        self.nodes: dict[int, Node] = {}
        for client in EVERYBODY:
            store_records(self.folder / str(client), client)
            policy = policy_of(self.folder / str(client), client, **self.changed)
            self.nodes[client] = Node(policy, log=self.said.append, signing=Signing(keys[client], self.verifying))

    def question(self, client: int, **changed: Any) -> Question:
        return question_of(self.terms, client=client, **changed)

    def sum_of(
        self, clients: Sequence[int], session: bytes | None = None, told: dict[int, Question] | None = None
    ) -> torch.Tensor:
        questions = {client: self.question(client) for client in clients} | (told or {})
        opening = questions[clients[0]].opening
        settings = sum_settings(self.agreement, opening, session or os.urandom(32), clients)
        wire = Loopback({client: self.nodes[client] for client in clients})
        return Summing(wire, 1.0, self.verifying).total(settings, questions)[0].rows

    def spent(self, client: int) -> int:
        return ledger_of(self.folder / str(client)).count


@pytest.mark.parametrize("power", Power)
def test_two_sums_of_one_question_do_not_show_who_is_in_one_of_them_only(tmp_path: Path, power: Power) -> None:
    """With the same noise in both, their difference is a row with one share: less noise than anybody has paid for."""
    nodes = Nodes(tmp_path, power)
    assert not torch.equal(nodes.sum_of(EVERYBODY), nodes.sum_of(EVERYBODY))
    nodes.sum_of([0, 1, 3])
    assert [nodes.spent(client) for client in EVERYBODY] == [3, 3, 2, 3]


def test_a_session_more_than_the_budget_is_refused(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, Power.ACTIVE)
    nodes.sum_of(EVERYBODY)
    spent = Budget(float("inf"), 1e-5)
    budget = ledger_of(tmp_path / "0").spent(next(iter(nodes.agreement.derivation.units)))
    assert budget is not None
    limit = spent.spent(budget.world, by=ledger_of(tmp_path / "0").price) * 1.01
    strict = Nodes(tmp_path / "strict", Power.ACTIVE, {"budgets": {"set": Budget(limit, 1e-5)}})
    strict.sum_of(EVERYBODY)
    with pytest.raises(GaveUp):
        strict.sum_of([0, 1, 3])
    assert [strict.spent(client) for client in EVERYBODY] == [1, 1, 1, 1]
    assert any("refused.epsilon" in line for line in strict.said)


@pytest.mark.parametrize("power", Power)
def test_a_session_is_begun_once_also_after_a_restart(tmp_path: Path, power: Power) -> None:
    nodes, session = Nodes(tmp_path, power), os.urandom(32)
    nodes.sum_of(EVERYBODY, session)
    again = Nodes(tmp_path, power)
    with pytest.raises(GaveUp):
        again.sum_of(EVERYBODY, session)
    assert all("begun before" in line for line in again.said) and again.spent(0) == 1


def test_a_server_that_follows_the_protocol_promises_to(tmp_path: Path) -> None:
    """Nothing that a node sees tells whether the other clients are there, or are played by the server."""
    strict = {"promise": "refused"}
    with pytest.raises(GaveUp):
        Nodes(tmp_path / "a", Power.FOLLOWS, strict).sum_of(EVERYBODY)
    distrusting = Nodes(tmp_path / "b", Power.ACTIVE, strict)
    distrusting.sum_of(EVERYBODY)
    assert distrusting.spent(0) == 1


@pytest.mark.parametrize("power", Power)
def test_a_ledger_says_whether_it_believes_that_servers_follow_the_protocol(tmp_path: Path, power: Power) -> None:
    """One that does not could play all the other clients, and see a row with a single share."""
    nodes = Nodes(tmp_path, power)
    nodes.sum_of(EVERYBODY)
    for path in ("0/set/ledger.sqlite", "0/total.sqlite"):
        said = str(guarantees(Ledger(tmp_path / path, None), 1e-5)["client"]["server"])
        assert ("have followed the protocol" in said) == (power is Power.FOLLOWS)


@pytest.mark.parametrize("power", Power)
def test_who_was_told_something_else_is_in_no_sum_with_the_others(tmp_path: Path, power: Power) -> None:
    """Another round, or terms that differ in what no setting of the sum names: its keys do not fit, and it sends no row."""
    nodes = Nodes(tmp_path, power)
    terms = replace(nodes.terms, delta=nodes.terms.delta / 2)
    for told in (question_of(nodes.terms, client=2, number=1), question_of(terms, client=2)):
        assert nodes.nodes[2](told.letter("check")).kind == "ok"
        assert bool(nodes.sum_of(EVERYBODY, told={2: told}).isfinite().all())
    assert [nodes.spent(client) for client in EVERYBODY] == [2, 2, 0, 2]


@pytest.mark.parametrize("session", ["", "00" * 31, "AB" * 32, "ab " * 32, "zz" * 32, 7])
def test_a_session_is_32_bytes_written_in_one_way(tmp_path: Path, session: str | int) -> None:
    nodes = Nodes(tmp_path, Power.FOLLOWS)
    letter = nodes.question(1).letter("sum.keys")
    asked = torch.arange(len(SIZES))
    sent = Letter("sum.keys", {**letter.facts, "session": session}, {**letter.tensors, "asked": asked})
    assert nodes.nodes[1](sent).kind == "refused.letter"
