"""Each key of node.toml refuses and allows, at its boundary, and before any record is loaded."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from sfumato import (
    AddNoise,
    Clip,
    DpSgd,
    Everyone,
    Gaussian,
    NoiseShare,
    PerClient,
    Poisson,
    RealisedMean,
    SecureSum,
    SharedMask,
    Shuffler,
    Sum,
)
from sfumato.account.event import Relation, Unit
from sfumato.data.population import Client, Population, PublicData
from sfumato.federation.node.answer import Node
from sfumato.federation.node.journal import Journal
from sfumato.federation.terms import Agreement, Terms
from sfumato.federation.wire import Letter
from sfumato.ledger.ledger import Budget
from tests.federation.node.helpers import PEOPLE, ledger_of, letter_of, policy_of, question_of, terms_of
from tests.helpers import dp_round


class Recorded:
    """A node whose loader says that it was called."""

    def __init__(self, folder: Path, **changed: Any) -> None:
        self.loads: list[int] = []
        self.log: list[str] = []
        self.now = 1e9
        self.folder = folder
        policy = policy_of(folder, **changed)
        self.node = Node(policy, data=self.find, log=self.log.append, clock=lambda: self.now)

    def find(self) -> Population:
        return Population("set", 1, self.load, is_fixed=True)

    def load(self, number: int) -> Client:
        self.loads.append(number)
        return PEOPLE.client(1)

    def refuses(self, terms: Terms, **changed: Any) -> str:
        """The code of a refusal, before anything is loaded or spent."""
        spent = ledger_of(self.folder).count if (self.folder / "set" / "ledger.sqlite").exists() else 0
        found = [self.node(letter_of(terms, kind, **changed)) for kind in ("check", "train")]
        assert not self.loads and not any(reply.tensors or reply.facts for reply in found)
        assert found[0].kind == found[1].kind
        if (self.folder / "set" / "ledger.sqlite").exists():
            assert ledger_of(self.folder).count == spent
        assert found[0].kind in self.log[-1]
        return found[0].kind

    def allows(self, terms: Terms, **changed: Any) -> bool:
        checked, trained = (self.node(letter_of(terms, kind, **changed)) for kind in ("check", "train"))
        assert checked.kind == trained.kind, self.log
        allowed = trained.kind == "ok" and len(self.loads) == 1
        self.loads.clear()
        self.node.loaded._last = None
        return allowed


def test_a_new_file_allows_nothing(tmp_path: Path) -> None:
    one = Recorded(tmp_path, recipes=())
    assert one.refuses(terms_of()) == "refused.recipe"
    assert "lists no recipes" in one.log[-1]


def test_recipes(tmp_path: Path) -> None:
    one = Recorded(tmp_path, recipes=("dp-fedsam",))
    assert one.refuses(terms_of("dp-fedavg")) == "refused.recipe"
    assert one.allows(terms_of("dp-fedsam"))
    assert one.refuses(terms_of("dp-fedsam", round=dp_round())) == "refused.recipe"  # it only says so
    calibrated = terms_of("dp-fedsam", options={"noise_multiplier": 3.0})
    assert one.allows(replace(calibrated, options={}, run="other"))  # noise that was found for a budget
    assert one.refuses(replace(terms_of("dp-fedavg", run="third"), recipe="")) == "refused.recipe"


def test_any_round(tmp_path: Path) -> None:
    assert Recorded(tmp_path).allows(replace(terms_of(round=dp_round()), recipe=""))


def test_the_librarys_models_and_those_that_are_listed(tmp_path: Path) -> None:
    assert Recorded(tmp_path, models=("library",)).allows(terms_of(model="mlp"))
    assert Recorded(tmp_path, models=("logistic",)).refuses(terms_of(model="mlp")) == "refused.model"
    assert Recorded(tmp_path, models=()).refuses(terms_of()) == "refused.model"


@pytest.mark.parametrize("path", ["trap_module:net", "logistic:net"])
def test_nothing_is_imported_that_is_not_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    """Neither as the model, nor as that of a teacher deep in the Round, nor as an option."""
    sprung = tmp_path / "sprung"
    for name in ("trap_module", "logistic"):
        (tmp_path / f"{name}.py").write_text(
            f"import pathlib, torch\npathlib.Path({str(sprung)!r}).touch()\n"
            "def net(input_shape, outputs):\n    return torch.nn.Linear(6, outputs)\n"
        )
    monkeypatch.syspath_prepend(tmp_path)
    public = PublicData("asked", PEOPLE.client(0).train)
    votes = terms_of("pate-fl", public=public, options={"queries": 4, "classes": 3, "teacher": "mlp"})
    letter, one = letter_of(votes, public=public), Recorded(tmp_path)
    taught = votes.round.replace("'mlp'", repr(path))
    assert taught != votes.round
    for changed in ({"model": path}, {"round": taught}, {"options": {"deep": [{"teacher": path}]}}):
        assert one.node(replace_terms(letter, **changed)).kind == "refused.model"
        assert path in one.log[-1] and not sprung.exists()
    assert one.node(letter).kind == "ok"


def test_an_import_path_that_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine_listed.py").write_text(
        "import torch\ndef net(outputs):\n    return torch.nn.Linear(6, outputs)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    terms = terms_of(model="mine_listed:net")
    assert Recorded(tmp_path / "a").refuses(terms) == "refused.model"
    assert Recorded(tmp_path / "b", models=("mine_listed:net",)).allows(terms)


def replace_terms(letter: Letter, **changed: Any) -> Letter:
    text = replace(Terms.read(str(letter.facts["terms"])), **changed).text
    return Letter(letter.kind, {**letter.facts, "terms": text}, letter.tensors)


@pytest.mark.parametrize(
    ("features", "allowed"),
    [("unit-norm", True), ("trap:map", False), ("pca:2", False), ("hog:x", False), ("resize", False)],
)
def test_features(tmp_path: Path, features: str, allowed: bool) -> None:
    one = Recorded(tmp_path)
    if allowed:
        assert one.allows(terms_of(features=features))
    else:
        assert one.refuses(terms_of(features=features)) == "refused.features"
    assert Recorded(tmp_path, features=("hog",)).refuses(terms_of(features="unit-norm")) == "refused.features"


def test_features_that_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine_map.py").write_text("def double(x):\n    return 2 * x\n")
    monkeypatch.syspath_prepend(tmp_path)
    one = Recorded(tmp_path, features=("mine_map:double",))
    assert one.allows(terms_of(features="mine_map:double"))


def test_the_smallest_noise(tmp_path: Path) -> None:
    one = Recorded(tmp_path, smallest_noise=1.1)
    assert one.refuses(terms_of(options={"noise_multiplier": 1.0999})) == "refused.noise"
    assert one.allows(terms_of(options={"noise_multiplier": 1.1}))
    steps = DpSgd(2, Poisson(0.5), 5, law=Gaussian(2.0))
    own = PerClient(steps, {1: steps.with_noise(1.0)})
    for round in (
        dp_round(local=own, client=(), aggregate=RealisedMean(), server=(), unit=Unit.RECORD),
        dp_round(local=steps.with_noise(1.0), server=(AddNoise(Gaussian(2.0)),)),
    ):  # this client's own noise, and that which hides what its owner has a budget for
        of_records = {"set": Budget(1e6, 1e-5, Unit.RECORD)}
        one = Recorded(tmp_path / str(round.unit), smallest_noise=1.1, budgets=of_records)
        assert one.refuses(terms_of(round=round)) == "refused.noise"
    nothing = Recorded(tmp_path / "b", smallest_noise=1e-9, nonprivate=True)
    assert nothing.refuses(terms_of("fedavg")) == "refused.noise"


def test_the_smallest_cohort(tmp_path: Path) -> None:
    one = Recorded(tmp_path, smallest_cohort=3)
    assert one.refuses(terms_of(options={"sample": "poisson:0.7"})) == "refused.cohort"
    assert one.allows(terms_of(options={"sample": "poisson:0.75"}))
    shares = {"sample": "everyone", "relation": "replace", "smallest": 2}
    assert one.refuses(terms_of("dp-fedavg-shares", options=shares, run="b")) == "refused.cohort"


def test_how_often(tmp_path: Path) -> None:
    one, terms = Recorded(tmp_path, rounds_per_day=2), terms_of(rounds=10)
    assert one.allows(terms, number=0)
    one.now += 3600
    assert one.allows(terms, number=1)
    assert one.refuses(terms, number=2) == "refused.often"
    assert one.refuses(terms_of(run="another")) == "refused.often"  # of all runs
    assert one.node(letter_of(terms, number=1)).kind == "ok"  # its reply is stored
    one.now += 23 * 3600 - 1
    assert one.refuses(terms, number=2) == "refused.often"
    one.now += 2
    assert one.allows(terms, number=2)


def test_how_often_in_two_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node of two federations is two processes with one folder: neither may count while the other is about to answer."""
    both, counted = threading.Barrier(2), Journal.within_a_day

    def waits(journal: Journal, now: float) -> int:
        found = counted(journal, now)
        with suppress(threading.BrokenBarrierError):
            both.wait(0.5)
        return found

    recorded = [Recorded(tmp_path, rounds_per_day=1) for _ in range(2)]
    nodes = [one.node for one in recorded]
    letters = [letter_of(terms_of(rounds=10), number=number) for number in range(2)]
    for one in recorded:
        assert (
            one.node(letter_of(terms_of(rounds=10), "check")).kind == "ok"
        )  # models are built one at a time in a process
    monkeypatch.setattr(Journal, "within_a_day", waits)
    with ThreadPoolExecutor(2) as pool:
        found = sorted(reply.kind for reply in pool.map(lambda node, letter: node(letter), nodes, letters))
    assert found == ["ok", "refused.often"], [one.log for one in recorded]


def test_a_promise(tmp_path: Path) -> None:
    one = Recorded(tmp_path, promise="refused")
    assert one.refuses(terms_of("dp-fedavg")) == "refused.promise"
    assert "the server promises to add" in one.log[-1]
    private = terms_of("perturb-model", run="b")
    assert one.allows(private)


def test_a_promise_for_a_unit_that_no_budget_is_about(tmp_path: Path) -> None:
    """Records are hidden by private local steps; clients by the server's noise, on which nothing rests here."""
    round = dp_round(local=DpSgd(2, Poisson(0.5), 5, 1.0, Gaussian(1.0)))
    budget = Budget(1e3, 1e-5, Unit.RECORD)
    one = Recorded(tmp_path / "a", promise="refused", budgets={"set": budget})
    assert one.allows(terms_of(round=round))
    clients = Recorded(tmp_path / "b", promise="refused", budgets={"set": replace(budget, unit=Unit.CLIENT)})
    assert clients.refuses(terms_of(round=round)) == "refused.promise"
    both = Recorded(tmp_path / "c", promise="refused", budgets={"set": budget}, total=Budget(9.0, 1e-5))
    assert both.refuses(terms_of(round=round)) == "refused.promise"


def test_a_budget_for_what_is_not_proven(tmp_path: Path) -> None:
    terms = terms_of("prifedsync", options={"records": 5, "batch": "poisson:0.5", "steps": 1})
    assert Recorded(tmp_path / "a", budgets={"set": Budget(9.0, 1e-5)}).refuses(terms) == "refused.unit"
    assert Recorded(tmp_path / "b", total=Budget(9.0, 1e-5)).refuses(terms) == "refused.unit"
    assert Recorded(tmp_path / "c", budgets={"set": Budget(1e3, 1e-5, Unit.RECORD)}).allows(terms)


def test_no_budget_no_answer(tmp_path: Path) -> None:
    one = Recorded(tmp_path, budgets={"other": Budget(9.0, 1e-5)})
    assert one.refuses(terms_of()) == "refused.epsilon"
    assert "[allow.data.set]" in one.log[-1]


def test_what_hides_nothing(tmp_path: Path) -> None:
    assert Recorded(tmp_path / "a").refuses(terms_of("fedavg")) == "refused.nonprivate"
    allowed = Recorded(tmp_path / "b", nonprivate=True)
    assert allowed.allows(terms_of("fedavg"))
    limited = Recorded(tmp_path / "c", nonprivate=True, budgets={"set": Budget(1e6, 0.1)})
    assert limited.refuses(terms_of("fedavg")) == "refused.epsilon"


def test_what_is_not_proven(tmp_path: Path) -> None:
    terms = terms_of("dp-fedsam-top-k", options={"mask": "published"}, unproven=True)
    assert Recorded(tmp_path / "a").refuses(terms) == "refused.unproven"
    assert Recorded(tmp_path / "b", unproven=True).allows(terms)


def test_shared_keys(tmp_path: Path) -> None:
    terms = terms_of(keys="shared")
    keys = (question_of(terms).opening.key,) * 2
    assert Recorded(tmp_path / "a").refuses(terms, shared_keys=keys) == "refused.keys"
    one = Recorded(tmp_path / "b", shared_keys=True)
    assert one.refuses(terms) == "refused.keys"  # they are not there
    assert one.refuses(terms_of(), shared_keys=keys) == "refused.keys"  # they must not be
    assert one.allows(terms, shared_keys=keys)
    assert ledger_of(tmp_path / "b").seeded


def test_another_client(tmp_path: Path) -> None:
    one = Recorded(tmp_path)
    assert one.refuses(terms_of(), client=2) == "refused.client"
    assert Recorded(tmp_path, client=4).refuses(terms_of(), client=4) == "refused.client"  # there are four


def test_another_hash(tmp_path: Path) -> None:
    one = Recorded(tmp_path)
    assert one.refuses(terms_of(), hash="0" * 32) == "refused.hash"
    other = Agreement.of(terms_of(model_seed=1)).hash
    assert one.refuses(terms_of(), hash=other) == "refused.hash"


def test_a_run_has_one_set_of_terms_but_may_get_more_rounds(tmp_path: Path) -> None:
    one = Recorded(tmp_path)
    assert one.allows(terms_of())
    assert one.refuses(terms_of(options={"noise_multiplier": 2.0})) == "refused.terms"
    assert one.refuses(terms_of(delta=1e-6)) == "refused.terms"
    assert one.allows(terms_of(rounds=9))
    assert one.node(letter_of(terms_of(delta=1e-6), "end")).kind == "refused.terms"


@pytest.mark.parametrize("run", ["\x1b[8m", "a\nb", "\ud800"], ids=ascii)
def test_a_name_that_does_something_to_a_terminal(tmp_path: Path, run: str) -> None:
    """The owner reads the names of runs in the ledger, right above what they cost: the first of these makes that invisible."""
    assert Recorded(tmp_path).refuses(terms_of(run=run)) == "refused.terms"


def test_a_shuffler_between_machines(tmp_path: Path) -> None:
    round = dp_round(
        client=(Clip(1.0), AddNoise(Gaussian(1.0))), sample=Everyone(Relation.REPLACE), channel=Shuffler(), server=()
    )
    assert Recorded(tmp_path).refuses(terms_of(round=round)) == "refused.channel"


def test_a_row_does_not_leave_unmasked_where_a_secure_sum_was_agreed_on(tmp_path: Path) -> None:
    one = Recorded(tmp_path)
    terms = terms_of("dp-fedavg-shares", options={"sample": "everyone", "relation": "replace"}, sum={"threshold": 3})
    assert one.node(letter_of(terms)).kind == "refused.sum"
    assert not one.loads and not (tmp_path / "set" / "ledger.sqlite").exists()


@pytest.mark.parametrize(
    "mask",
    [
        torch.tensor([0, 0, 3]),
        torch.tensor([3, 1, 0]),
        torch.tensor([-1, 1, 2]),
        torch.tensor([1, 2, 21]),
        torch.tensor([0.0, 1.0]),
        torch.zeros(0, dtype=torch.int64),
        torch.tensor([[1, 2]]),
        torch.arange(9),
        torch.arange(21),
        None,
    ],
    ids=str,
)
def test_a_mask_that_would_make_norms_grow(tmp_path: Path, mask: torch.Tensor | None) -> None:
    """A coordinate that is sent often is longer than the clip; the noise is not. Shares of discrete noise were priced for as many
    coordinates as are due: more of them cost more.
    """
    client = (Clip(1.0), SharedMask(0.5), AddNoise(Gaussian(1.0)))
    terms = terms_of(
        round=dp_round(client=client, sample=Everyone(Relation.REPLACE), aggregate=RealisedMean(), server=())
    )
    one, question = Recorded(tmp_path), question_of(terms)
    prepared = {} if mask is None else {1: mask}
    opening = replace(question.opening, prepared=prepared)
    assert one.refuses(terms, opening=opening) == "refused.opening"
    assert one.allows(terms)


def test_parameters_of_another_model(tmp_path: Path) -> None:
    assert Recorded(tmp_path).refuses(terms_of(), params=torch.zeros(20)) == "refused.shape"


@pytest.mark.parametrize("changed", [{"input_shape": (2**15, 2**15)}, {"outputs": 2**30}, {"rounds": 0}])
def test_absurd_sizes_are_not_built(tmp_path: Path, changed: dict[str, Any]) -> None:
    one = Recorded(tmp_path)
    assert one.node(replace_terms(letter_of(terms_of()), **changed)).kind == "refused.shape"


def test_absurdly_many_rounds(tmp_path: Path) -> None:
    one = Recorded(tmp_path)
    assert one.refuses(terms_of(), planned=10**6 + 1) == "refused.rounds"
    assert one.refuses(terms_of(), number=2**62) == "refused.rounds"


def test_shares_without_a_secure_sum_are_a_promise(tmp_path: Path) -> None:
    """The server sees each message with one share: that it looks at the sum only, it promises."""
    shares = {"sample": "everyone", "relation": "replace"}
    assert (
        Recorded(tmp_path, promise="refused").refuses(terms_of("dp-fedavg-shares", options=shares)) == "refused.promise"
    )
    client = (Clip(1.0), NoiseShare(Gaussian(1.0), 3))
    alone = dp_round(client=client, sample=Everyone(Relation.REPLACE), server=())
    assert Recorded(tmp_path / "b", promise="refused").allows(terms_of(round=alone))  # priced at one share
    summed = replace(alone, channel=SecureSum(), aggregate=Sum())
    assert Recorded(tmp_path / "c", promise="refused").refuses(terms_of(round=summed)) == "refused.promise"
