"""What a node answers: the stored reply to a request that arrives again, fresh noise to any other, and in codes only."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from sfumato import PoissonPerClient, Presence
from sfumato.account.event import Unit
from sfumato.data.population import Client, Population, Records
from sfumato.errors import BadValue, DataError
from sfumato.federation.node.answer import Node
from sfumato.federation.node.memory import Memory
from sfumato.federation.node.own_data import own_data
from sfumato.federation.terms import Terms
from sfumato.federation.wire import Letter
from sfumato.key import Key
from sfumato.ledger.ledger import Budget
from tests.federation.node.helpers import (
    PEOPLE,
    ledger_of,
    letter_of,
    node_of,
    policy_of,
    question_of,
    store_records,
    terms_of,
)
from tests.helpers import dp_round

PRIVATE = terms_of("perturb-model", options={"noise_multiplier": 1.0}, rounds=9)
HELPED = terms_of("prifedsync", options={"records": 5, "batch": "poisson:0.5", "steps": 2}, rounds=9)


def row(node: Node, **changed: Any) -> torch.Tensor:
    reply = node(letter_of(changed.pop("terms", PRIVATE), **changed))
    assert reply.kind == "ok"
    return reply.tensors["row"]


def test_a_request_that_arrives_again_gets_the_stored_reply_and_counts_once(tmp_path: Path) -> None:
    first = row(node_of(tmp_path))
    assert torch.equal(first, row(node_of(tmp_path))) and ledger_of(tmp_path).count == 1  # also after a restart
    node = node_of(tmp_path)
    assert torch.equal(first, row(node)) and ledger_of(tmp_path).count == 1
    assert not torch.equal(first, row(node, planned=12)) and ledger_of(tmp_path).count == 2  # another request


def test_a_reply_is_stored_until_the_next_round(tmp_path: Path) -> None:
    node = node_of(tmp_path)
    first, second = row(node), row(node, number=1)
    assert torch.equal(row(node, number=1), second) and ledger_of(tmp_path).count == 2
    assert (row(node) - first).abs().max() > 0.01 and ledger_of(tmp_path).count == 3
    assert len(list((tmp_path / "set" / "replies").iterdir())) == 1


def test_any_other_question_gets_other_noise_and_is_paid_for(tmp_path: Path) -> None:
    node, question = node_of(tmp_path), question_of(PRIVATE)
    step = torch.zeros_like(question.params)
    step[0] = 1e-6
    other_key = replace(question.opening, key=question.opening.key.child("other"))
    shared = replace(question.opening, kept={"client.0": torch.ones(1)})
    prepared = replace(question.opening, prepared={0: torch.ones(1)})
    local = replace(question.opening, local=torch.ones(1))
    others: list[dict[str, Any]] = [
        {},
        {"number": 1},
        {"attempt": 1},
        {"params": question.params + step},
        {"opening": other_key},
        {"opening": shared},
        {"opening": prepared},
        {"opening": local},
        {"terms": replace(PRIVATE, run="another")},
        {"terms": replace(PRIVATE, rounds=10)},
    ]
    rows = [row(node, **other) for other in others]
    for place, one in enumerate(rows):
        assert all((one - other).abs().max() > 0.01 for other in rows[:place]), others[place]
    assert ledger_of(tmp_path).count == len(others)


def test_another_node_draws_other_noise(tmp_path: Path) -> None:
    assert (row(node_of(tmp_path / "a")) - row(node_of(tmp_path / "b"))).abs().max() > 0.01


def test_changed_data_are_read_for_the_next_answer(tmp_path: Path) -> None:
    """Files that are as they were are not read again; what was replied before is not computed from the new ones."""
    log: list[str] = []
    node, records = node_of(tmp_path, log=log), PEOPLE.client(1).train
    first = row(node)
    torch.save({"x": records.x[:, :5], "y": records.y}, tmp_path / "records.pt")
    assert torch.equal(row(node), first) and ledger_of(tmp_path).count == 1
    assert not any("count as zero" in line for line in log)
    row(node, number=1)
    assert any("of 8 count as zero" in line for line in log)


@pytest.mark.parametrize(("is_fixed", "loads"), [(True, 1), (False, 3)])
def test_data_that_may_change_are_loaded_for_every_answer(tmp_path: Path, is_fixed: bool, loads: int) -> None:
    loaded: list[int] = []

    def load(number: int) -> Client:
        loaded.append(number)
        return PEOPLE.client(1)

    node = node_of(tmp_path, data=lambda: Population("set", 1, load, is_fixed=is_fixed))
    for number in range(3):
        row(node, number=number)
    assert len(loaded) == loads and ledger_of(tmp_path).count == 3


def test_data_that_change_while_they_are_read(tmp_path: Path) -> None:
    node = node_of(tmp_path)
    find, changed = node.loaded.find, [False]

    def load(number: int) -> Client:
        client = find().client(number)
        if not changed[0]:
            changed[0] = True
            torch.save({"x": client.train.x[1:], "y": client.train.y[1:]}, tmp_path / "records.pt")
        return client

    node.loaded.find = lambda: replace(find(), load=load)
    assert node(letter_of(PRIVATE)).kind == "refused.changed"
    assert node(letter_of(PRIVATE)).kind == "ok"
    assert ledger_of(tmp_path).count == 2


@pytest.mark.parametrize(
    "records",
    [
        Records(torch.zeros(5, 7), torch.zeros(5, dtype=torch.int64)),
        Records(torch.zeros(5, 6), torch.zeros(5, 1, dtype=torch.int64)),
        Records(torch.zeros(5, 6), torch.full((5,), 0.5)),
        Records(torch.zeros(5, 6, dtype=torch.complex64), torch.zeros(5, dtype=torch.int64)),
        Records(
            (torch.zeros(5, 2), torch.zeros(5, 4)), torch.zeros(5, dtype=torch.int64)
        ),  # rows of the declared shape
    ],
    ids=["inputs", "targets", "type of targets", "type of inputs", "several inputs"],
)
def test_records_that_are_not_as_declared_count_as_zero_and_only_the_owner_is_told(
    tmp_path: Path, records: Records
) -> None:
    log: list[str] = []
    node = node_of(tmp_path, log=log, data=lambda: Population("set", 1, lambda number: Client(records), is_fixed=True))
    reply = node(letter_of(PRIVATE))
    assert (reply.kind, reply.facts) == ("ok", {"weight": 1.0})
    assert any("records 0, 1, 2, 3, 4 of 5 count as zero" in line for line in log)


def test_numbers_of_another_type_that_are_as_declared_are_taken(tmp_path: Path) -> None:
    records, log = PEOPLE.client(1).train, list[str]()
    other = Records(records.x.half(), records.y.float())
    node = node_of(tmp_path, log=log, data=lambda: Population("set", 1, lambda number: Client(other), is_fixed=True))
    row(node)
    assert not any("count as zero" in line for line in log)


@pytest.mark.parametrize(("terms", "kind"), [(PRIVATE, "ok"), (HELPED, "failed")], ids=["client", "record"])
def test_records_that_cannot_be_loaded(tmp_path: Path, terms: Terms, kind: str) -> None:
    """Hiding a client hides that too. Where single records are hidden, all of them must not become zero: the client drops out."""

    def load(number: int) -> Client:
        raise RuntimeError("patient 4711 has no left eye")

    log: list[str] = []
    node = node_of(tmp_path, log=log, data=lambda: Population("set", 1, load, is_fixed=True))
    reply = node(letter_of(terms))
    assert reply.kind == kind and (kind == "ok" or not (reply.facts or reply.tensors))
    errors = tmp_path / "errors" / "errors.log"
    assert b"4711" not in reply.to_bytes() and not any("4711" in line for line in log) and str(errors) in log[0]
    assert "4711" in errors.read_text() and errors.stat().st_mode & 0o077 == 0
    assert ledger_of(tmp_path).count == 1  # it counts


def test_every_answer_but_ok_is_a_code_alone(tmp_path: Path) -> None:
    node, good = node_of(tmp_path), letter_of(PRIVATE)
    bad = [
        Letter("train"),
        Letter("dance", good.facts, good.tensors),
        Letter("train", {**good.facts, "terms": "no terms"}, good.tensors),
        Letter("train", {**good.facts, "terms": "[" * 10**5}, good.tensors),
        Letter("train", {**good.facts, "key": "12"}, good.tensors),
        Letter("train", {**good.facts, "round": -1}, good.tensors),
        Letter("train", {**good.facts, "attempt": -1}, good.tensors),
        Letter("train", good.facts),
        Letter("released", {**good.facts, "hash": "other"}, good.tensors),
    ]
    replies = [node(letter) for letter in bad]
    kinds = [reply.kind for reply in replies]
    assert kinds == [
        "refused.letter",
        "refused.kind",
        "refused.letter",
        "refused.letter",
        "refused.letter",
        "refused.letter",
        "refused.letter",
        "refused.letter",
        "refused.hash",
    ]
    assert not any(reply.facts or reply.tensors for reply in replies)
    assert node(good).kind == "ok"


def test_a_handler_for_a_further_kind(tmp_path: Path) -> None:
    node = node_of(tmp_path)
    node.handlers["keys"] = lambda letter: Letter("ok", {"kind": letter.kind})
    assert node(Letter("keys")).facts == {"kind": "keys"}


def test_a_check_spends_and_loads_nothing(tmp_path: Path) -> None:
    node = node_of(tmp_path, data=lambda: Population("set", 1, lambda number: pytest.fail("loaded"), is_fixed=True))
    assert node(letter_of(PRIVATE, "check")).kind == "ok"
    assert ledger_of(tmp_path).count == 0
    assert node(letter_of(replace(PRIVATE, delta=0.1), "check")).kind == "ok"  # nor does it bind the run's name


def test_the_log_is_a_file_in_words(tmp_path: Path) -> None:
    store_records(tmp_path)
    node = Node(policy_of(tmp_path, smallest_noise=1.5))
    node(letter_of(PRIVATE))
    node(letter_of(replace(terms_of("perturb-model"), run="louder")))
    lines = (tmp_path / "node.log").read_text().splitlines()
    assert "train: refused.noise: a noise multiplier of 1, below 1.5" in lines[0]
    assert "train: answered round 1 of 'louder'" in lines[1]


def test_what_a_client_remembers_is_that_of_the_round_before(tmp_path: Path) -> None:
    """A round that is asked for again begins where it began, whatever was kept after it."""
    node, terms = node_of(tmp_path, shared_keys=True), replace(HELPED, keys="shared")
    keys = Key.from_seed(1).child("clients"), Key.from_seed(1).child("lasting")  # so that randomness is the same again
    of_run: dict[str, Any] = {"terms": terms, "shared_keys": keys}
    first = row(node, **of_run)
    second_before = row(node, number=1, **of_run)
    new = question_of(terms).params + 0.5
    assert node(letter_of(terms, "released", params=new, shared_keys=keys)).kind == "ok"
    assert torch.equal(row(node, **of_run), first)
    second = row(node, number=1, **of_run)
    assert (second - second_before).abs().max() > 1e-4
    kept = Memory(next((tmp_path / "set" / "memory").iterdir())).before(1)["start"]
    trained = question_of(terms).params + first
    assert torch.allclose(kept, 0.9 * trained + 0.1 * new, atol=1e-6)
    assert torch.equal(row(node_of(tmp_path, shared_keys=True), number=1, **of_run), second)  # also after a restart


def test_only_what_was_trained_in_that_very_round_is_kept(tmp_path: Path) -> None:
    node = node_of(tmp_path)
    row(node, terms=HELPED, attempt=1)
    for changed in ({"attempt": 0}, {"attempt": 1, "number": 1}):
        assert node(letter_of(HELPED, "released", **changed)).kind == "ok"
    memory = Memory(next((tmp_path / "set" / "memory").iterdir()))
    assert memory.before(9) == {}
    assert node(letter_of(HELPED, "released", attempt=1)).kind == "ok"
    assert set(memory.before(1)) == {"start"} and memory.before(0) == {}


def test_few_versions_are_kept(tmp_path: Path) -> None:
    memory = Memory(tmp_path)
    for number in range(12):
        memory.wait(number, 0, {"start": torch.full((2,), float(number))})
        memory.keep(number, {"start": torch.full((2,), float(number))})
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"{kind}-0-{number}.safetensors" for kind in ("kept", "trained") for number in (10, 11, 9)
    ]
    assert memory.before(11)["start"].tolist() == [10.0, 10.0]
    assert memory.trained(11, 0) is not None and memory.trained(11, 1) is None


def test_what_is_heard_at_the_end_counts(tmp_path: Path) -> None:
    """A client that was never drawn could have been: what the run cost everybody, it cost this one."""
    terms = terms_of("dp-fedavg", rounds=4)
    node = node_of(tmp_path / "a")
    assert node(letter_of(terms, "end", number=3, attempt=1, planned=6)).kind == "ok"
    spent = ledger_of(tmp_path / "a").spent(Unit.CLIENT)
    assert spent is not None and getattr(spent.world, "times", 1) == 6
    poor = node_of(tmp_path / "b", budgets={"set": Budget(1e-3, 1e-5)})
    assert poor(letter_of(terms, "end", number=3)).kind == "ok"
    assert ledger_of(tmp_path / "b").count == 0  # it would have refused every round
    refused = node_of(tmp_path / "c", recipes=())
    assert refused(letter_of(terms, "end", number=3)).kind == "refused.recipe"


def test_a_promise_covers_every_answer(tmp_path: Path) -> None:
    """A server that asks for one round again and again, with other parameters, begins more rounds than it says."""
    node, terms = node_of(tmp_path), terms_of("dp-fedavg", rounds=2)
    params = question_of(terms).params
    for step in (0, 0, 1, 1, 2, 0):  # one that arrives again at once has its stored reply
        assert node(letter_of(terms, params=params + step)).kind == "ok"
    spent = ledger_of(tmp_path).spent(Unit.CLIENT)
    assert spent is not None and getattr(spent.world, "times", 1) == 4


def test_a_client_that_was_to_stop_and_is_asked_on_pays_for_every_round(tmp_path: Path) -> None:
    sample = PoissonPerClient(Presence(0.5), {1: Presence(0.5, rounds=2)})
    node, terms = node_of(tmp_path), terms_of(round=dp_round(sample=sample), rounds=9)
    for number, times in ((0, 2), (1, 2), (2, 9)):
        assert node(letter_of(terms, number=number)).kind == "ok"
        spent = ledger_of(tmp_path).spent(Unit.CLIENT)
        assert spent is not None
        assert sum(getattr(part, "times", 0) for part in spent.world.walk()) == times


def test_agreements_are_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sfumato.federation.node import rules

    built: list[str] = []
    agreed = rules.Agreement.of
    monkeypatch.setattr(
        rules.Agreement, "of", lambda terms, public=None: built.append(terms.run) or agreed(terms, public)
    )
    letters = {name: letter_of(replace(PRIVATE, run=name)) for name in "abcdef"}
    node = node_of(tmp_path)
    built.clear()
    for name in "aababcdcda":
        node(letters[name])
    assert "".join(built) == "abcd"
    node(letters["e"])
    node(letters["a"])
    assert "".join(built) == "abcdea"


def test_own_data_are_one_client(tmp_path: Path) -> None:
    folder = tmp_path / "records"
    store_records(folder)
    from_file, from_folder = own_data(str(folder / "records.pt"))(), own_data(str(folder))()
    assert from_file.is_fixed and from_folder.is_fixed
    assert torch.equal(from_file.client(0).train.x, PEOPLE.client(1).train.x)
    torch.save({"x": torch.zeros(1), "y": torch.zeros(1)}, folder / "second.pt")
    for path in (folder, tmp_path / "nowhere", tmp_path / "nowhere.pt"):
        with pytest.raises(DataError, match="A node holds one client"):
            own_data(str(path))()
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="0 files of records"):
        own_data(str(tmp_path / "empty"))()


MINE = """
import torch
calls = []
def one():
    calls.append(1)
    return torch.ones(4, 6), torch.zeros(4, dtype=torch.int64)
def two():
    return [one(), one()]
"""


def test_own_data_in_a_table(tmp_path: Path) -> None:
    """The owner declares its columns beside it, and no client: all rows are the owner's."""
    table, declared = tmp_path / "patients.csv", tmp_path / "patients.toml"
    table.write_text("age,ill\n10,no\n50,yes\n")
    declared.write_text('target = "ill"\nclasses = ["no", "yes"]\n[scale]\nage = [0, 100]\n')
    found = own_data(str(table))()
    assert found.size == 1 and found.client(0).train.y.tolist() == [0, 1] and found.client(0).train.x[1] == 0.0
    before = found.client(0).train.x
    table.write_text("age,ill\n20,no\n50,yes\n")
    assert not torch.equal(own_data(str(table))().client(0).train.x, before)
    declared.write_text('target = "ill"\nclient = "age"\nclasses = ["no", "yes"]\n')
    with pytest.raises(BadValue, match="a node holds one client"):
        own_data(str(table))()


def test_own_data_from_a_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine_data.py").write_text(MINE)
    monkeypatch.syspath_prepend(tmp_path)
    find = own_data("mine_data:one")
    assert find().client(0).train.count == 4 and find().is_fixed
    import mine_data  # type: ignore[import-not-found]

    assert mine_data.calls == [1]  # what is in memory is what is named
    with pytest.raises(BadValue, match=r"gives 2 clients|Declare at least 2"):
        own_data("mine_data:two")()
