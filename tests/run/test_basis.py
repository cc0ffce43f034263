"""A basis of clients' own records is paid for before it is drawn, once, and counts in everything that a run says of its cost."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy.optimize import brentq
from scipy.stats import norm

from sfumato import Relation, Unit, load
from sfumato.account import accountant
from sfumato.account.event import GaussianEvent, Repeated, compose
from sfumato.cli import run as sfumato
from sfumato.errors import BadValue, BudgetExceeded, LedgerError, SfumatoError
from sfumato.features import Features, Parted, PrivatePCA, PrivateWord, parse_features
from sfumato.key import Key
from sfumato.ledger.ledger import Budget, Ledger
from sfumato.local.second_moments import SecondMoments
from sfumato.run.basis import basis_round
from sfumato.run.prepare import prepare
from sfumato.run.request import Request
from sfumato.run.request import resolved as read_resolved
from sfumato.run.run import Run
from tests.engine.crash import Kill, reservations, train
from tests.features.law import law_of_single_records

FEATURES = "pixels,private-pca:8,unit-norm:3"


def asked(recipe: str = "dp-fedavg", features: str = FEATURES, **more: Any) -> Request:
    request = replace(Request.of_recipe(recipe), rounds=3, seed=7, epsilon=4.0)
    if recipe != "dp-sgd":
        request = request.with_value("data.clients", 40)
    if recipe in ("dp-fedavg", "dp-fedavg-adaptive"):
        request = request.with_value("options.epochs", 1)
    for key, value in {"data.features": features, **more}.items():
        request = request.with_value(key, value)
    return request


def entries(folder: Path) -> list[int]:
    """The rounds in a ledger; -1 is the basis."""
    return [entry.round for entry in Ledger(folder / "ledger.sqlite", None).entries()]


def exact_epsilon(mu: float, delta: float) -> float:
    """Of N(0, 1) against N(mu, 1), by the two normal tails."""

    def above(epsilon: float) -> float:
        return float(norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu) - delta)

    return float(brentq(above, 0.0, 200.0, xtol=1e-13))


MODULE = """
import torch

def clients():
    x = torch.ones(4, 1)
    return [(x, torch.tensor([0, 1, 0, 1])) for _ in range(3)]
"""


def test_one_number_and_one_client_the_ledger_says_the_exact_pair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one number of a record a client's moments are 1, or 0 without it: N(0, z) against N(1, z). Training is Gaussian too."""
    (tmp_path / "theirs_of_one.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    more = {"options.noise_multiplier": 5.0, "options.sample": "everyone", "epsilon": None, "delta": 1e-3}
    data = {"data.name": "theirs_of_one:clients", "data.clients": 3, "data.records_per_client": 0, "data.outputs": 2}
    run = Run(prepare(asked(features="private-pca:1:0:2.5", **more, **data)), None)
    shown = [progress.epsilon(1e-3) for progress in run]
    exact = exact_epsilon(math.sqrt(1 / 2.5**2 + 3 / 5.0**2), 1e-3)
    assert shown == pytest.approx(
        [exact] * 3, rel=1e-6
    )  # the plan holds the step and all rounds, from the first one on
    (release,) = [entry for entry in run.ledger.entries() if entry.round == -1]
    assert release.costs[Unit.CLIENT].world == GaussianEvent(2.5) and run.prepared.basis is not None
    assert run.guarantee(1e-3).epsilon == pytest.approx(shown[-1])
    run.close()


def test_the_noise_that_is_drawn_is_the_noise_that_is_paid_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 2,080 coordinates; it would not pass at 2/3 or 3/2 of the right scale."""
    released: list[torch.Tensor] = []
    learn = PrivatePCA.learn

    def seen(moments: torch.Tensor, *facts: Any) -> PrivatePCA:
        released.append(moments)
        return learn(moments, *facts)

    monkeypatch.setattr(PrivatePCA, "learn", staticmethod(seen))
    stddevs = []
    for noise in (3.0, 1e-6):
        features = f"pixels,private-pca:8:0.5:{noise}"
        run = Run(prepare(asked(features=features, epsilon=None, **{"options.noise_multiplier": 2.0})), None)
        assert run.prepared.basis is not None
        stddevs.append(run.prepared.basis.proof.stddev)
        run.close()
    drawn = (released[0] - released[1]).triu(1)[torch.triu(torch.ones(64, 64), 1).bool()] * math.sqrt(2)
    assert stddevs[0] == 3.0 and float(drawn.std()) == pytest.approx(3.0, rel=0.06)


@pytest.mark.parametrize("recipe", ["dp-fedavg", "dp-sgd", "dp-fedavg-adaptive"])
def test_every_number_of_a_run_counts_both(recipe: str, tmp_path: Path) -> None:
    request = asked(recipe)
    run = Run(prepare(request), tmp_path / "run")
    lines = [run.epsilon(progress) for progress in run]
    basis = run.prepared.basis
    assert basis is not None
    proof, delta = run.derivation.primary, request.chosen_delta if recipe != "dp-sgd" else run.delta
    by_hand = accountant("auto").epsilon(compose(basis.event, Repeated(proof.world, 3)), delta)
    assert lines == pytest.approx([by_hand] * 3) and by_hand > accountant("auto").epsilon(
        Repeated(proof.world, 3), delta
    )
    assert lines[-1] is not None and 0.995 * 4.0 < lines[-1] <= 4.0
    found = json.loads((tmp_path / "run/run.json").read_text())
    assert found["epsilon"] == pytest.approx(lines[-1]) and found["basis"]["epsilon_alone"] < found["epsilon"]
    mechanism = found["guarantees"][found["unit"]]["world"]["mechanism"]
    assert mechanism.startswith(f"Gaussian noise, standard deviation {basis.noise:.6g} x sensitivity; then ")
    assert entries(tmp_path / "run") == [-1, 0, 1, 2] and basis.proof.relation is proof.relation
    trusted = {"the server is trusted"}  # in dp-sgd that is the holder
    assert set(basis.proof.assumptions) <= {*proof.assumptions} | trusted
    run.close()


def test_the_basis_takes_its_share_of_the_budget() -> None:
    for recipe in ("dp-fedavg", "dp-sgd"):
        found = prepare(asked(recipe))
        assert found.basis is not None and isinstance(found.basis.event, GaussianEvent)
        mu = 1 / (0.4 * found.basis.event.ratio)
        assert exact_epsilon(mu, found.request.chosen_delta) == pytest.approx(4.0, rel=1e-6)


def test_swapped_clients_cost_root_two() -> None:
    trained = prepare(asked(**{"options.sample": "fixed:10"}))
    assert trained.basis is not None and trained.basis.proof.relation is Relation.REPLACE
    assert (
        trained.basis.proof.sensitivity
        == pytest.approx(math.sqrt(2))
        == trained.basis.proof.stddev / trained.basis.noise
    )


RESERVE, SETTLE, RENAME = "sfumato.ledger.ledger:Ledger.reserve", "sfumato.ledger.ledger:Ledger.settle", "os:replace"
WORDS = ["dp-sgd", "--features", FEATURES, "--rounds", "3", "--epsilon", "4", "--quiet"]
SEEDED = [*WORDS, "--seed", "2"]


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A simulation that was killed before its basis: nothing is spent."""
    place = tmp_path_factory.mktemp("begun")
    assert train([*SEEDED, "--out", "run"], place, Kill("before", RESERVE)) == -9
    assert reservations(place / "run") == 0
    return place / "run"


@pytest.fixture(scope="module")
def whole(begun: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run, uninterrupted."""
    folder = Path(shutil.copytree(begun, tmp_path_factory.mktemp("whole") / "run"))
    assert train(["--resume", "run", "--quiet"], folder.parent) == 0
    return folder


@pytest.mark.parametrize(
    ("kill", "reserved"),
    [
        (Kill("after", RESERVE), 1),
        (Kill("before", SETTLE), 1),
        (Kill("after", SETTLE), 1),
        (Kill("before", "sfumato.run.basis:Basis.learn"), 1),
        (Kill("after", "sfumato.features.private_basis:PrivatePCA.to_bytes"), 1),
        (Kill("before", "sfumato.run.prepare:Prepared.with_basis"), 1),
        (Kill("after", RESERVE, 2), 2),
        (Kill("before", "sfumato.run.run:Run.finish"), 4),
    ],
    ids=lambda value: (
        f"{value.when} {value.function.rpartition(':')[2]} {value.call}" if isinstance(value, Kill) else ""
    ),
)
def test_killed_on_the_way_it_pays_once_and_ends_the_same(
    kill: Kill, reserved: int, begun: Path, whole: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(begun, tmp_path / "run"))
    assert train(["--resume", "run", "--quiet"], tmp_path, kill) == -9
    assert reservations(folder) == reserved
    assert train(["--resume", "run", "--quiet"], tmp_path) == 0
    assert entries(folder) == entries(whole) == [-1, 0, 1, 2]
    for name in ("basis.safetensors", "params.safetensors", "metrics.jsonl"):
        assert (folder / name).read_bytes() == (whole / name).read_bytes(), name
    assert json.loads((folder / "run.json").read_text())["epsilon"] <= 4.0


def test_other_data_after_a_crash_are_paid_for_again(tmp_path: Path) -> None:
    """The same noise never falls on two matrices: their difference would hold none."""
    data = tmp_path / "data"
    data.mkdir()
    for client in range(4):
        torch.save({"x": torch.ones(3, 2), "y": torch.tensor([0, 1, 0])}, data / f"{client}.pt")
    words = ["dp-fedavg", "--data", str(data), "--clients", "4", "--outputs", "2", "--rounds", "1", "--epochs", "1"]
    words += ["--features", "private-pca:1", "--delta", "0.01", "--epsilon", "8", "--quiet", "--out", "run"]
    assert train(words, tmp_path, Kill("after", RESERVE)) == -9
    torch.save({"x": torch.eye(2), "y": torch.tensor([0, 1])}, data / "0.pt")
    status = train(["--resume", "run", "--quiet"], tmp_path)
    assert entries(tmp_path / "run")[:2] == [-1, -1] and status == 0  # the budget was for one of them: it ends early


def test_a_basis_that_was_interrupted_counts_twice_and_stays_within_the_budget(tmp_path: Path) -> None:
    words = ["dp-sgd", "--features", FEATURES, "--rounds", "8", "--epsilon", "4", "--quiet", "--out", "run"]
    assert train(words, tmp_path, Kill("before", SETTLE, 2)) == -9  # the first stores where it begins
    assert train(["--resume", "run", "--quiet"], tmp_path) in (0, 3)
    found = json.loads((tmp_path / "run" / "run.json").read_text())
    assert entries(tmp_path / "run")[:2] == [-1, -1] and found["epsilon"] <= 4.0 and found["rounds"] < 8


def test_a_shared_budget_is_kept_before_the_basis_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = tmp_path / "shared.sqlite"
    request = asked(**{"ledger": str(shared), "force_ledger": True})
    first = prepare(request)
    list(Run(first, tmp_path / "first"))
    ledger = Ledger(shared, None)
    assert [entry.round for entry in ledger.entries()] == [-1, 0, 1, 2]
    assert len({entry.run for entry in ledger.entries()}) == 1
    spent = ledger.spent(Unit.CLIENT)
    assert spent is not None
    epsilon = accountant("auto").epsilon(spent.world, 1e-3)
    ledger.set_budget(Budget(epsilon * 1.0001, 1e-3))
    drawn: list[int] = []
    monkeypatch.setattr(SecondMoments, "train", lambda self, task: drawn.append(1))
    with pytest.raises(BudgetExceeded, match="would bring all runs"):
        Run(prepare(replace(request, seed=8)), tmp_path / "second")
    assert not drawn and not (tmp_path / "second").exists() and ledger.count == 4


def test_a_basis_over_the_budget_is_refused() -> None:
    with pytest.raises(BudgetExceeded, match="the basis alone would cost epsilon"):
        prepare(asked(features="pixels,private-pca:8:0.5:0.1"))
    with pytest.raises(BudgetExceeded, match="the basis alone would cost epsilon"):
        prepare(asked(features="pixels,private-pca:8:0.5:0.1", **{"options.noise_multiplier": 3.0}))


def test_the_ledger_stops_it_too_before_it_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sfumato.run.basis._check_affordable", lambda *_: None)
    prepared = prepare(asked(features="pixels,private-pca:8:0.5:0.1", **{"options.noise_multiplier": 3.0}))
    drawn: list[int] = []
    monkeypatch.setattr("sfumato.engine.cohort.Cohort.total", lambda *_: drawn.append(1))
    with pytest.raises(BudgetExceeded, match="the step before the first round would bring epsilon to"):
        Run(prepared, tmp_path / "run")
    assert not drawn and not (tmp_path / "run").exists()


def test_a_refused_run_has_not_paid(tmp_path: Path) -> None:
    request = asked(**{"model.name": "cnn-mnist"})
    with pytest.raises(SfumatoError):
        Run(prepare(request), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(BadValue, match="device"):
        Run(prepare(asked(device="tpu")), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_what_was_paid_for_stays_if_training_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise BadValue("no")

    with monkeypatch.context() as patch:
        patch.setattr("sfumato.run.prepare.Prepared.with_basis", broken)
        with pytest.raises(BadValue, match="no"):
            Run(prepare(asked()), tmp_path / "run")
    assert entries(tmp_path / "run") == [-1]
    request, found = Request.from_toml(tmp_path / "run/run.toml"), read_resolved(tmp_path / "run/run.toml")
    list(Run(prepare(request, found, folder=tmp_path / "run"), tmp_path / "run", resume=True))
    assert entries(tmp_path / "run") == [-1, 0, 1, 2]


def test_it_goes_on_evaluates_and_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["--features", "pixels,private-pca:32,unit-norm:3", "--epsilon", "8", "--rounds", "15", "--seed", "1"]
    words += ["--out", "run"]
    assert sfumato(["train", *words, "--quiet"]) == 0
    found = json.loads(Path("run/run.json").read_text())
    assert found["accuracy"] > 0.8 and found["epsilon"] <= 8.0 and 2 <= found["basis"]["above_noise"] <= 32
    basis = Path("run/basis.safetensors").read_bytes()
    capsys.readouterr()
    monkeypatch.setattr(SecondMoments, "train", None)  # nobody's records are asked again
    assert sfumato(["evaluate", "run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] == pytest.approx(found["accuracy"])
    assert load("run")(torch.zeros(1, 32)).shape == (1, 10)
    assert sfumato(["report", "run"]) == 0
    assert sfumato(["train", "--resume", "run", "--rounds", "16"]) == 3  # the noise was found for 15
    assert "over the budget of 8" in capsys.readouterr().err and entries(Path("run")) == [-1, *range(15)]
    assert Path("run/basis.safetensors").read_bytes() == basis
    Path("run/basis.safetensors").unlink()
    assert sfumato(["evaluate", "run"]) == 2 and "basis.safetensors is gone" in capsys.readouterr().err


def test_a_ledger_that_lost_the_basis_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    Run(prepare(asked()), folder).close()
    request, found = Request.from_toml(folder / "run.toml"), read_resolved(folder / "run.toml")
    for part in folder.glob("ledger.sqlite*"):
        part.unlink()
    with pytest.raises(LedgerError):
        Run(prepare(request, found, folder=folder), folder, resume=True)
    (folder / "basis.safetensors").unlink()
    with pytest.raises(LedgerError):
        Run(prepare(request, found, folder=folder), folder, resume=True)
    assert not (folder / "ledger.sqlite").exists()


def test_a_run_prices_the_basis_that_its_ledger_holds(tmp_path: Path) -> None:
    """Not one that somebody wrote into run.toml meanwhile: 1.99 was printed for it where 2.17 is spent."""
    folder, more = tmp_path / "run", {"options.noise_multiplier": 4.0, "epsilon": None}
    run = Run(prepare(asked(features="pixels,private-pca:8:0.5:5", **more)), folder)
    spent = [run.epsilon(progress) for progress in run]
    toml = folder / "run.toml"
    toml.write_text(toml.read_text().replace("basis_noise_multiplier = 5.0", "basis_noise_multiplier = 500.0"))
    request, found = replace(Request.from_toml(toml), rounds=5), read_resolved(toml)
    with pytest.raises(LedgerError, match="basis_noise_multiplier=500.0"):
        Run(prepare(request, found, folder=folder), folder, resume=True)
    request, found = request, {**found, "basis_noise_multiplier": 5.0}
    resumed = Run(prepare(request, found, folder=folder), folder, resume=True)
    *_, last = (resumed.epsilon(progress) for progress in resumed)
    assert last == resumed.guarantee().epsilon and last is not None and spent[-1] is not None and last > spent[-1]


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (asked(features="pixels,private-pca:65"), "a record has 64 numbers before it"),
        (asked(features="resize:40,private-pca:65"), "Bring it to 1500 or fewer first"),
        (asked(features="private-pca:4,private-pca:2"), "one basis is learnt from clients' records"),
        (asked(features="private-pca:4,pca:2"), "none from public ones after it"),
        (asked(features="private-pca"), "is no whole number above 0"),
        (asked(features="private-pca:4:2"), "must lie from 0"),
        (asked(features="private-pca:4:x"), "behind the dimension stand"),
        (asked(features="private-pca:4:0.5:0"), "behind the dimension stand"),
        (asked(features="private-pca:4:0.5:1:1"), "behind the dimension stand"),
        (asked(**{"options.noise_multiplier": 3.0}), "nobody knows how much of it the basis needs"),
        (asked(secure=True), "--secure with private-pca"),
        (asked(epsilon=None, unproven=True), "--unproven with private-pca"),
        (asked("prifedsync", **{"options.records": 7, "options.batch": "poisson:0.5"}), "prifedsync is of another kind"),
        (asked("udp-fl", **{"options.records": 7}), "udp-fl is of another kind"),
        (asked("perturb-model"), "perturb-model is of another kind"),
        (asked("dp-fedavg-shares"), "dp-fedavg-shares is of another kind"),
        (asked("fedavg", epsilon=None), "fedavg is of another kind"),
        (asked("knn-fl", **{"data.public_records": 600}), "knn-fl is of another kind"),
        (replace(asked(epsilon=None), budgets={"default": {"epsilon": 2.0, "delta": 1e-3}}), "--budgets with private-pca"),
    ],
)  # fmt: skip
def test_refusals(request_: Request, words: str) -> None:
    with pytest.raises(SfumatoError, match=words):
        prepare(request_)


def test_outside_a_run_it_is_refused() -> None:
    with pytest.raises(BadValue, match="paid for within a run"):
        parse_features("hog,private-pca:4")
    assert Parted.of(None) == Parted(None) and Parted.of("hog,pca:3") == Parted("hog,pca:3")


def test_the_steps_of_a_basis_are_a_map_of_single_records(tmp_path: Path) -> None:
    moments = Key.from_seed(1).normal(16, 16)
    step = PrivatePCA.learn(moments @ moments.T, 0.1, PrivateWord(5), (1, 4, 4))
    x = Key.from_seed(2).normal(9, 1, 4, 4).float()
    law_of_single_records(Features((step,)), x)
    (tmp_path / "basis").write_bytes(step.to_bytes())
    again = PrivatePCA.read(tmp_path / "basis")
    assert again == step and hash(again) == hash(step) and torch.equal(again(x), step(x))
    assert step != PrivatePCA.learn(moments @ moments.T, 0.1, PrivateWord(5, 0.25), (1, 4, 4))
    values, vectors = torch.linalg.eigh(moments @ moments.T)
    slow = x.flatten(1).double() @ vectors[:, -5:].flip(1) / (values[-5:].flip(0) / values[-1]) ** 0.25
    assert torch.allclose(slow.abs(), step(x).double().abs(), atol=1e-5)
    with pytest.raises(SfumatoError, match="records of shape"):
        step(torch.zeros(1, 16))


def test_noise_alone_is_not_whitened() -> None:
    noise = Key.from_seed(3).normal(80, 80)
    noise = (noise + noise.T) / 2  # standard deviation 1 on the diagonal, and 1 / sqrt 2 elsewhere
    step = PrivatePCA.learn(noise, 1.0, PrivateWord(40), (80,))
    assert step.above <= 2 and float(step.scales.min()) > 0.9


def test_the_round_hides_what_training_hides() -> None:
    trained = prepare(asked("dp-sgd"))
    round = basis_round(trained.round, 1, 64, 2.0, 1400)
    assert round.unit is Unit.RECORD and Unit.CLIENT in round.derive(population=1, dimension=1).refused
