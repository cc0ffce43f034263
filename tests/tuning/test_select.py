"""`tune --pay`: what it costs, in which order it pays and runs, and what nobody ever sees."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from scipy.stats import chisquare, kstest, norm
from torch import nn

from sfumato.account import accountant
from sfumato.account.event import GaussianEvent, Relation, Unit, compose
from sfumato.account.selected import Selected
from sfumato.budget.budgets import Budgets
from sfumato.calibration import noise_and_clip
from sfumato.data.population import Population
from sfumato.errors import BadValue, BudgetExceeded, DataError, LedgerError, NotFinite
from sfumato.key import Key
from sfumato.ledger.ledger import Budget, Ledger
from sfumato.objective import regression
from sfumato.run.prepare import Prepared
from sfumato.tuning import select as home
from sfumato.tuning.candidates import Settings
from sfumato.tuning.score import Score
from sfumato.tuning.select import Law, Selection
from tests.engine.crash import Kill, train
from tests.tuning.made_up import OPTIONS, prepared

LAW = Law(0.2)
RATES: tuple[Settings, ...] = ({"options.server_lr": 0.5}, {"options.server_lr": 2.0})
FILES = {"ledger.sqlite", "metrics.jsonl", "params.safetensors", "run.json", "run.lock", "run.toml", "tune.json"}
WAL = {"ledger.sqlite-wal", "ledger.sqlite-shm"}


@pytest.fixture(scope="module")
def ready() -> Selection:
    return Selection.of(prepared(seed=0), RATES, LAW)


def finished(selection: Selection, folder: Path, seed: int | None) -> dict[str, Any]:
    """What run.json says."""
    selection.run(folder, seed)
    found: dict[str, Any] = json.loads((folder / "run.json").read_text())
    return found


class Numbered(nn.Identity):
    """A model that is known by the number of its run."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def stubbed(monkeypatch: pytest.MonkeyPatch, ready: Selection, score: Callable[[int], float]) -> list[int]:
    """Runs that train nothing and have this score, by their number; the list gets the place of each one's settings."""
    calls: list[int] = []
    trained = home._simulation(ready.candidates[0], 0, ready.plan)

    def once(selection: Selection, candidate: Prepared, key: Key, seeded: bool) -> Any:
        calls.append(selection.candidates.index(candidate))
        return trained, Numbered(len(calls) - 1), score(len(calls) - 1)

    monkeypatch.setattr(Selection, "_once", once)
    return calls


def winner(selection: Selection, seed: int) -> int:
    _, module, _, _ = selection._best(Key.from_seed(seed), True)
    assert isinstance(module, Numbered)
    return module.number


# The price


@pytest.mark.parametrize("words", ["everyone", "poisson:0.5 replace", "fixed:3"], ids=lambda w: w)
def test_the_price_is_that_of_the_derivation_and_meets_the_budget(words: str, tmp_path: Path) -> None:
    sample, _, relation = words.partition(" ")
    target = prepared(options={**OPTIONS, "sample": sample, "relation": relation}, seed=0)
    selection = Selection.of(target, RATES, LAW)
    summary = finished(selection, tmp_path / "run", 0)
    for one in selection.candidates:
        trained = one.round.derive(population=12, dimension=21).primary
        scored = selection.scoring.derive(population=12, dimension=1).primary
        assert trained.relation is scored.relation
        event = Selected(compose(trained.after(2), scored.after(1)), LAW.gamma, LAW.eta)
        ledger = Ledger(tmp_path / "run" / "ledger.sqlite", None)
        (entry,) = ledger.entries()
        assert entry.costs[Unit.CLIENT].world == event and entry.costs[Unit.CLIENT].relation is trained.relation
        assert entry.costs[Unit.CLIENT].server is None and entry.settled
        epsilon = accountant().epsilon(event, 1e-3)
        assert 4.0 * 0.999 <= epsilon <= 4.0 and summary["epsilon"] == pytest.approx(epsilon, rel=1e-9)
        assert noise_and_clip(one.round)[0] == summary["noise_multiplier"], "what is priced is what runs"
    assert summary["epsilon_server"] is None
    plain = accountant().epsilon(trained.after(2), 1e-3)
    assert plain < 4.0, "the choice is paid for with noise"


def test_records_of_one_holder(tmp_path: Path) -> None:
    one = Population.from_list([prepared().population.client(0).train], name="one")
    options = {"batch": "poisson:0.5", "records": 4, "clip": 1.0, "lr": 0.1, "momentum": 0.9}
    selection = Selection.of(prepared(one, recipe="dp-sgd", options=options), ({"options.lr": 0.1},), LAW)
    (cost,) = selection.costs.values()
    assert cost.relation is Relation.ADD_REMOVE
    assert 4.0 * 0.999 <= accountant().epsilon(cost.world, 1e-3) <= 4.0
    assert selection.scoring.local == Score(4, Relation.ADD_REMOVE)
    summary = finished(selection, tmp_path / "run", 0)
    assert summary["unit"] == "record" and summary["epsilon"] <= 4.0
    assert abs(json.loads((tmp_path / "run" / "tune.json").read_text())["score"]) < 20, "a mean over records"


@pytest.mark.parametrize(
    "tried",
    [
        ({"rounds": 2}, {"rounds": 3}),
        ({"rounds": 3},),
        ({"options.sample": "everyone"}, {"options.sample": "poisson:0.5"}),
        ({"options.relation": "add_remove"}, {"options.relation": "replace"}),
    ],
    ids=str,
)
def test_settings_that_cost_more_are_refused(tried: tuple[Settings, ...]) -> None:
    with pytest.raises(
        BadValue, match="must all cost the same, and these do not. Vary learning rates, clip or momentum"
    ):
        Selection.of(prepared(), tried, LAW)


def test_clip_and_momentum_cost_nothing() -> None:
    clips = (0.1, 0.3, 1e4, 7.7)  # ratios of noise to these differ in their last bits
    tried = tuple({"options.clip": clip, "options.server_optimizer": "momentum"} for clip in clips)
    found = [noise_and_clip(one.round) for one in Selection.of(prepared(), tried, LAW).candidates]
    assert [clip for _, clip in found] == list(clips) and len({noise for noise, _ in found}) == 1


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (lambda: prepared(epsilon=None), "plans for a budget. Give --epsilon, and no --noise-multiplier"),
        (lambda: prepared(options={**OPTIONS, "noise_multiplier": 0.5}), "plans for a budget"),
        (lambda: prepared(secure=True), "with --budgets, private-pca, --secure or --diagnostics nothing is built"),
        (lambda: prepared(diagnostics=True), "with --budgets, private-pca, --secure or --diagnostics nothing is built"),
        (
            lambda: replace(prepared(), budgets=Budgets.of({"default": {"epsilon": 1.0, "delta": 1e-3}}, 12)),
            "with --budgets, private-pca, --secure or --diagnostics nothing is built",
        ),
        (
            lambda: prepared(recipe="dp-fedavg-shares", options={**OPTIONS, "sample": "fixed:4"}),
            "whoever adds up the rows sees every run, so it must be trusted",
        ),
    ],
)  # fmt: skip
def test_what_has_no_price_is_refused(target: Any, said: str) -> None:
    with pytest.raises(BadValue, match=said):
        Selection.of(target(), RATES, LAW)


def test_targets_that_are_no_classes_are_refused_before_anything_is_paid() -> None:
    people = Population.from_list([(torch.ones(2, 6), torch.ones(2, 3))] * 4, name="numbers")
    with pytest.raises(BadValue, match="are no classes"):
        Selection.of(prepared(people, objective=regression()), RATES, LAW)


# What is seen


def test_each_run_draws_its_settings_and_their_number_follows_the_law(
    ready: Selection, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = stubbed(monkeypatch, ready, lambda number: 0.0)
    counts = []
    for seed in range(400):
        before = len(calls)
        ready._best(Key.from_seed(seed), True)
        counts.append(len(calls) - before)
    chances = [0.2 * 0.8**k for k in range(8)]
    seen = [counts.count(k + 1) for k in range(8)]
    expected = 400 * np.array([*chances, 1 - sum(chances)])
    assert chisquare([*seen, 400 - sum(seen)], expected).pvalue > 1e-3
    assert chisquare([calls.count(0), calls.count(1)]).pvalue > 1e-3


def test_the_best_wins_and_ties_are_decided_by_lot(ready: Selection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(home, "runs", lambda eta, gamma, key: 3)
    stubbed(monkeypatch, ready, lambda number: -abs(number % 3 - 1.0))
    assert {winner(ready, seed) % 3 for seed in range(20)} == {1}
    stubbed(monkeypatch, ready, lambda number: 0.5)
    winners = [winner(ready, seed) % 3 for seed in range(150)]
    assert chisquare([winners.count(place) for place in range(3)]).pvalue > 1e-3


def ledger_head(folder: Path) -> str:
    return str(json.loads((folder / "run.json").read_text())["ledger_head"])


def test_how_many_runs_there_were_is_nowhere(
    ready: Selection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The same best run, alone or before three others: every byte of what is left is the same, and no time tells them apart."""
    once, calls = Selection._once, 0

    def worse_every_time(*given: Any) -> Any:
        nonlocal calls
        calls, (simulation, module, _) = calls + 1, once(*given)
        (tmp_path / "last").touch()
        return simulation, module, 10.0 - calls

    monkeypatch.setattr(Selection, "_once", worse_every_time)
    left = []
    for count in (1, 4):
        monkeypatch.setattr(home, "runs", lambda eta, gamma, key, count=count: count)
        calls, folder = 0, tmp_path / "run"
        ready.run(folder, 5)
        assert calls == count
        last = (tmp_path / "last").stat().st_mtime_ns
        (time,) = {path.stat().st_mtime_ns for path in folder.iterdir()}
        assert time >= last, "no file is older than the last run"
        assert {path.name for path in folder.iterdir()} == FILES, "losers leave nothing"
        ledger = Ledger(folder / "ledger.sqlite", None)
        entries = [(one.run, one.round, one.attempt, one.settled, one.costs) for one in ledger.entries()]
        texts = {name: (folder / name).read_bytes() for name in sorted(FILES - {"ledger.sqlite"})}
        texts["run.json"] = texts["run.json"].replace(ledger_head(folder).encode(), b"")  # every ledger has a random id
        left.append((entries, texts, capfd.readouterr()))
        folder.rename(tmp_path / f"{count}")
    assert left[0] == left[1] and len(left[0][0]) == 1
    assert left[0][2] == ("", ""), "nothing is said meanwhile"
    told = json.loads(left[0][1]["tune.json"])
    assert set(told) == {"candidates", "runs_on_average", "settings", "score"}
    assert len(left[0][1]["metrics.jsonl"].splitlines()) == 1


def test_what_is_left_is_the_winner(ready: Selection, tmp_path: Path) -> None:
    summary = finished(ready, tmp_path / "run", 3)
    told = json.loads((tmp_path / "run" / "tune.json").read_text())
    rate = told["settings"]["options.server_lr"]
    assert told["candidates"] == [dict(one) for one in RATES] and told["runs_on_average"] == pytest.approx(5.0)
    assert f"server_lr = {rate}" in (tmp_path / "run" / "run.toml").read_text()
    assert summary["accuracy"] == json.loads((tmp_path / "run" / "metrics.jsonl").read_text())["accuracy"]
    assert not any("decide to end" in one for one in summary["assumptions"]), (
        "all rounds were run, and one payment is for all"
    )
    again = finished(ready, tmp_path / "again", 3)
    assert again == {**summary, "ledger_head": ledger_head(tmp_path / "again")}, "a seed gives the same"


def test_without_a_seed_runs_are_fresh(ready: Selection, tmp_path: Path) -> None:
    names = set()
    for name in ("one", "two"):
        selection = replace(
            ready, candidates=tuple(replace(one, request=replace(one.request, seed=None)) for one in ready.candidates)
        )
        summary = finished(selection, tmp_path / name, None)
        assert not any("seed" in words for words in summary["assumptions"])
        names.add(hashlib.sha256((tmp_path / name / "params.safetensors").read_bytes()).hexdigest())
    assert len(names) == 2


def test_the_test_split_does_not_choose(ready: Selection, tmp_path: Path) -> None:
    """Whatever it holds, the same run wins; without one there is nothing to report."""
    first = finished(ready, tmp_path / "with", 4)
    blind = replace(ready, candidates=tuple(replace(one, test=None) for one in ready.candidates))
    second = finished(blind, tmp_path / "without", 4)
    assert first["accuracy"] is not None and second["accuracy"] is None
    for name in ("params.safetensors", "tune.json"):
        assert (tmp_path / "with" / name).read_bytes() == (tmp_path / "without" / name).read_bytes()


# Runs that fail


def test_a_candidate_that_diverges_is_not_told_of(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    tried = ({"options.server_lr": 1.0}, {"options.server_lr": 3e38, "options.clip": 1e4})
    selection, diverged = Selection.of(prepared(seed=0), tried, LAW), []
    for seed in range(8):
        folder = tmp_path / str(seed)
        try:
            finished(selection, folder, seed)
        except NotFinite as error:
            diverged.append(str(error))
            assert {path.name for path in folder.iterdir()} <= {"ledger.sqlite", "run.lock", *WAL}
            assert settled(folder / "ledger.sqlite") == [False], "paid, whatever comes of it"
        else:
            assert json.loads((folder / "tune.json").read_text())["settings"] == tried[0]
    assert 0 < len(diverged) < 8 and capfd.readouterr() == ("", "")
    (said,) = set(diverged)
    assert said == "tune --pay: no run came to an end with finite parameters. Try smaller learning rates."


def test_broken_data_are_no_bad_luck(tmp_path: Path) -> None:
    def client(number: int) -> Any:
        if number == 7:
            raise OSError("unplugged")
        return torch.ones(3, 6), torch.zeros(3, dtype=torch.int64)

    people = Population.from_function(client, 12, name="broken")
    selection = Selection.of(prepared(people, seed=0), RATES, LAW)
    with pytest.raises(DataError, match="client 7 of 'broken' could not be loaded"):
        selection.run(tmp_path / "run", 0)


# The ledger


def test_it_pays_before_it_runs(ready: Selection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing_yet(*given: Any) -> Any:
        for path in (tmp_path / "run" / "ledger.sqlite", tmp_path / "shared.sqlite"):
            ledger = Ledger(path, None)
            assert [(one.settled, one.costs) for one in ledger.entries()] == [(False, dict(ready.costs))]
        raise KeyboardInterrupt

    monkeypatch.setattr(Selection, "_once", nothing_yet)
    with pytest.raises(KeyboardInterrupt):
        sharing(ready, tmp_path).run(tmp_path / "run", None)
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"ledger.sqlite", "run.lock"}


def sharing(selection: Selection, place: Path) -> Selection:
    """The same with a ledger that it shares with others, and no seed."""

    def shared(one: Prepared) -> Prepared:
        return replace(one, request=replace(one.request, ledger=str(place / "shared.sqlite"), seed=None))

    return replace(selection, candidates=tuple(map(shared, selection.candidates)))


def test_a_budget_stops_it_before_anything_is_trained(
    ready: Selection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    people = ready.candidates[0].population
    ledger = Ledger(tmp_path / "shared.sqlite", people.name, people.identity)
    ledger.set_budget(Budget(5.0, 1e-3))
    finished(sharing(ready, tmp_path), tmp_path / "first", None)
    assert ledger.count == 1
    monkeypatch.setattr(Selection, "_once", lambda *given: pytest.fail("it has begun"))
    with pytest.raises(BudgetExceeded):
        sharing(ready, tmp_path).run(tmp_path / "second", None)
    assert not (tmp_path / "second").exists() and ledger.count == 1
    with pytest.raises(LedgerError, match="its noise comes from a seed"):
        sharing(ready, tmp_path).run(tmp_path / "seeded", 1)
    assert not (tmp_path / "seeded").exists() and ledger.count == 1


def test_a_folder_with_something_in_it_is_refused(ready: Selection, tmp_path: Path) -> None:
    (tmp_path / "hers.txt").write_text("hers")
    with pytest.raises(BadValue, match="never overwritten"):
        ready.run(tmp_path, 0)
    assert os.listdir(tmp_path) == ["hers.txt"]


def test_killed_in_the_middle_it_is_paid_and_the_next_one_pays_again(tmp_path: Path) -> None:
    words = [
        "--pay",
        "--epsilon",
        "3",
        "--clients",
        "20",
        "--rounds",
        "2",
        "--features",
        "pixels,unit-norm:3",
        "--quiet",
    ]
    words += ["--ledger", "shared.sqlite", "--out"]
    for name, kill in (("first", "Selection._once"), ("second", "Selection._best")):
        assert train([*words, name], tmp_path, Kill("after", f"sfumato.tuning.select:{kill}"), command="tune") == -9
        assert {path.name for path in (tmp_path / name).iterdir()} <= {"ledger.sqlite", "run.lock", *WAL}
        assert settled(tmp_path / name / "ledger.sqlite") == [False]
    assert settled(tmp_path / "shared.sqlite") == [False, False]
    assert train([*words, "third"], tmp_path, command="tune") == 0
    assert settled(tmp_path / "shared.sqlite") == [False, False, True]
    assert settled(tmp_path / "third" / "ledger.sqlite") == [True]


def settled(path: Path) -> list[bool]:
    return [one.settled for one in Ledger(path, None).entries()]


# An attack


def test_whoever_sees_the_score_learns_no_more_than_is_printed() -> None:
    """One candidate that learns nothing, clients who are all right or all wrong: the exact law of the best score is known.

    Drawn scores follow it, and no test that tells 3 right clients from 4 by the score beats the epsilon that is printed.
    """
    x, y = torch.tensor([[9.0, 0.0, 0.0, 0.0, 0.0, 0.0]]), torch.tensor([0])
    clients = [(x, y if number < 4 else y + 1) for number in range(5)]
    people = Population.from_list(clients, name="zeros and ones")
    target = prepared(people, rounds=1, seed=0, options={**OPTIONS, "server_lr": 1e-12})
    with torch.no_grad():
        target.module.weight.copy_(torch.eye(3, 6))
        target.module.bias.zero_()
    selection = Selection.of(target, ({"options.server_lr": 1e-12},), LAW)
    noise = selection.scoring.derive(population=5, dimension=1).primary.stddev
    assert noise is not None

    def law(at: Any, right: int) -> Any:
        """The chance that the best score is at most so much: E F^K, geometric."""
        below = norm.cdf(at, right, noise)
        return 0.2 * below / (1 - 0.8 * below)

    drawn = [selection._best(Key.from_seed(seed), True)[3] * 5 for seed in range(50)]
    assert kstest(drawn, lambda at: law(at, 4)).pvalue > 1e-3
    assert kstest(drawn, lambda at: norm.cdf(at, 4, noise)).pvalue < 1e-2, "one run alone would be another law"

    edges = np.linspace(3.5 - 12 * noise, 3.5 + 12 * noise, 20_001)
    worlds = [np.diff(law(edges, right)) for right in (3, 4)]
    printed = accountant().epsilon(selection.costs[Unit.CLIENT].world, 1e-3)
    alone = accountant().epsilon(Selected(GaussianEvent(noise), 0.2), 1e-3)
    attained = max(_attained(p, q) for p, q in (worlds, worlds[::-1]))
    assert 0.3 * alone < attained <= alone <= printed <= 4.0


def _attained(p: Any, q: Any) -> float:
    """The epsilon at which the exact delta between two laws is 1e-3."""
    return float(brentq(lambda epsilon: np.maximum(p - math.exp(epsilon) * q, 0.0).sum() - 1e-3, 0.0, 20.0))
