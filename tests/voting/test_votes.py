"""What votes state, the numbers that follow, and explicit pairs of ballots that a bolder statement would not survive."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from typer.testing import CliRunner

from sfumato import (
    AddNoise,
    Clip,
    Everyone,
    FixedSize,
    Gaussian,
    Laplace,
    NoiseShare,
    Poisson,
    PublicData,
    Records,
    Round,
    SecureSum,
    Shuffler,
    Sum,
)  # fmt: skip
from sfumato.account import accountant
from sfumato.account.event import GaussianEvent, PoissonSampled, Relation, Repeated, Unit
from sfumato.commands.answers import read_setting
from sfumato.commands.app import app
from sfumato.errors import BadValue, UnsoundRound
from sfumato.local.task import Task
from sfumato.pieces.sampler import parse_drawn
from sfumato.voting.queries import Queries
from sfumato.voting.votes import Bounds, Voter, Votes


@dataclass(frozen=True)
class Labels(Voter):
    """Each client answers with the mean of its first `k` labels, whatever the question."""

    k: int = 1

    def ballots(self, task: Task, questions: Tensor, classes: int) -> Tensor:
        found = [F.one_hot(one.y[: self.k], classes).sum(0) / self.k for one in task.clients]
        return torch.stack(found)[:, None].expand(-1, len(questions), -1)

    def bounds(self, classes: int) -> Bounds:
        return Bounds.of_labels(classes).shared_by(self.k)


def voting(queries: int = 500, stddev: float = 25.0, k: int = 1, **changed: Any) -> Round:
    slots: dict[str, Any] = {
        "local": Votes(Labels(k), Queries(None, queries), 10),
        "sample": Everyone(),
        "aggregate": Sum(),
        "server": (AddNoise(Gaussian(stddev / math.sqrt(queries))),),
    }
    return Round(**{**slots, **changed})


def epsilon(round: Round, unit: Unit, delta: float = 1e-5, clients: int = 100, view: str = "world") -> float:
    event = getattr(round.derive(population=clients, dimension=7).units[unit], view)
    return float(accountant("auto").epsilon(event, delta))


def test_what_a_round_of_votes_costs() -> None:
    """PRIVACY A4 and R10: without the two facts replace and record would cost 8.721."""
    replaced = voting(sample=Everyone(Relation.REPLACE))
    assert epsilon(voting(), Unit.CLIENT, 1e-3) == pytest.approx(2.735, abs=6e-4)
    assert epsilon(voting(), Unit.CLIENT) == pytest.approx(3.849, abs=6e-4)
    assert epsilon(replaced, Unit.CLIENT) == epsilon(voting(), Unit.RECORD) == pytest.approx(5.759, abs=6e-4)
    assert epsilon(voting(k=10), Unit.RECORD) == pytest.approx(0.440, abs=6e-4)
    assert voting().derive(population=100, dimension=7).primary.stddev == pytest.approx(25.0)
    clipped = replace(replaced, client=(Clip(math.sqrt(500)),))  # a piece that says nothing of distances
    assert epsilon(clipped, Unit.CLIENT) == pytest.approx(8.721, abs=6e-4)


def test_ten_rounds_cost_what_one_of_all_queries_does() -> None:
    one, ten = (voting(many).derive(population=100, dimension=7).primary.world for many in (500, 50))
    cost = accountant("auto").epsilon
    assert cost(Repeated(ten, 10), 1e-3) == pytest.approx(cost(one, 1e-3), rel=1e-9)


def test_votes_by_shares_hold_against_the_server_too() -> None:
    """R3: by shares the distance is sqrt 2 under replace and 1 under zero-out; add/remove is refused."""
    share = (NoiseShare(Gaussian(25 / math.sqrt(500)), clients=99),)
    by_shares = {"client": share, "channel": SecureSum(), "server": ()}
    for relation, wanted in ((Relation.REPLACE, 5.759), (Relation.ZERO_OUT, 3.849)):
        round = voting(sample=Everyone(relation), **by_shares)
        for view in ("world", "server", "chooser"):
            assert epsilon(round, Unit.CLIENT, view=view) == pytest.approx(wanted, abs=6e-4)
    with pytest.raises(UnsoundRound, match="adds no share"):
        voting(**by_shares).derive(population=100, dimension=7)


def exact_delta(rate: float, rows: tuple[complex, complex], stddev: float, epsilon: float) -> float:
    """The hockey-stick divergence of two mixtures in the plane: a round without the client, or with one of two rows."""
    grid = np.linspace(-9 * stddev, 9 * stddev + 2, 1601)
    at = grid[None, :] + 1j * grid[:, None]

    def density(row: complex) -> np.ndarray:
        normal = lambda centre: np.exp(-(np.abs(at - centre) ** 2) / (2 * stddev**2)) / (2 * math.pi * stddev**2)  # noqa: E731
        return np.asarray((1 - rate) * normal(0) + rate * normal(row))

    cell = (grid[1] - grid[0]) ** 2
    return float(np.maximum(density(rows[0]) - math.exp(epsilon) * density(rows[1]), 0).sum() * cell)


@pytest.mark.parametrize("k", [1, 10])
@pytest.mark.parametrize("sample", [Poisson(0.3, Relation.REPLACE), FixedSize(30)], ids=["poisson", "fixed"])
def test_no_pair_of_ballots_beats_what_is_stated(sample: Any, k: int) -> None:
    """Votes e1 and e2 are as long as a row may be: the zero of a round without the client does not lie between them."""
    round, stddev = voting(1, 0.4, k, sample=sample), 0.4
    proof = round.derive(population=100, dimension=7).units[Unit.RECORD].world
    rows = (1.0 + 0j, 1j) if k == 1 else (1.0 + 0j, 1 - 1 / k + 1j / k)
    cost = accountant("auto").epsilon
    for wanted in (0.01, 0.1):
        assert exact_delta(0.3, rows, stddev, cost(proof, wanted)) <= wanted
    if isinstance(sample, Poisson):  # the bolder statement, a pair of closer rows on one line, is false
        bold = PoissonSampled(0.3, GaussianEvent(stddev / abs(rows[0] - rows[1])), Relation.REPLACE)
        assert any(exact_delta(0.3, rows, stddev, cost(bold, wanted)) > 1.02 * wanted for wanted in (0.01, 0.1))


def test_answers_lie_where_their_bounds_say() -> None:
    """Random answers of each kind; the distances are reached."""
    rng = np.random.default_rng(0)
    for classes, most in ((2, 0), (10, 0), (40, 4), (5, 4), (3, 3)):
        found = Bounds.of_labels(classes, most)
        answers = rng.dirichlet(np.full(classes, 0.1), 300) * rng.random((300, 1))
        if most:
            answers = np.array(
                [np.isin(np.arange(classes), rng.choice(classes, most, False)) for _ in range(300)], float
            )
            answers[1] = np.arange(classes) < most
            answers[2] = (np.arange(classes) >= most) & (np.arange(classes) < 2 * most)
        else:
            answers[1], answers[2] = np.eye(classes)[0], np.eye(classes)[1]
        apart = answers[:, None] - answers[None]
        l2, l1 = np.linalg.norm(apart, axis=2).max(), np.abs(apart).sum(2).max()
        assert l2 <= found.apart.l2 + 1e-9 and l1 <= found.apart.l1 + 1e-9
        assert l2 >= 0.99 * found.apart.l2 and l1 >= 0.99 * found.apart.l1
        assert np.linalg.norm(answers, axis=1).max() <= found.norm.l2 + 1e-9


def test_a_pool_is_asked_in_turn() -> None:
    queries = Queries(PublicData("five", Records(torch.zeros(5, 1), torch.zeros(5))), 2)
    state, seen = queries.start(), []
    for _ in range(4):
        asked = queries.chosen(state)
        seen.append(asked.tolist())
        state = {**state, "asked": state["asked"].index_add(0, asked, torch.ones(2, dtype=torch.int64))}
    assert seen == [[0, 1], [2, 3], [4, 0], [1, 2]]
    with pytest.raises(BadValue, match="Ask fewer"):
        replace(queries, count=6)
    with pytest.raises(BadValue, match="--public"):
        Queries(None, 3).start()


@pytest.mark.parametrize("words", ["label", "knn:7", "attributes:4"])
@pytest.mark.parametrize("sample", ["everyone", "poisson:0.2", "fixed:20/100"])
@pytest.mark.parametrize("relation", ["add-remove", "replace", "zero-out"])
def test_what_account_prices_is_what_a_round_derives(words: str, sample: str, relation: str) -> None:
    kind, _, number = words.partition(":")
    bounds = Bounds.of_labels(10, 4) if kind == "attributes" else Bounds.of_labels(10).shared_by(int(number or 1))

    @dataclass(frozen=True)
    class Stated(Labels):
        def bounds(self, classes: int) -> Bounds:
            return bounds

    sampler = parse_drawn(sample, relation).sampler
    round = voting(1, 25.0, sample=sampler, local=Votes(Stated(), Queries(None, 1), 10))
    proof = replace(round, server=(AddNoise(Gaussian(25.0 / bounds.norm.l2)),)).derive(population=100, dimension=7)
    for unit in ("client", "record"):
        setting = read_setting("gaussian:25", sample, 3, unit, relation if unit == "client" else None, votes=words)
        assert setting.claim().world == proof.units[Unit(unit)].world
        assert setting.claim().stddev == pytest.approx(25.0)


def test_noise_of_account_is_in_votes_whatever_the_norm_of_an_answer() -> None:
    """PRIVACY A4: noise 50 on at most four attributes costs what 25 on a label does. In L1 four attributes move four votes."""
    cost = accountant("auto").epsilon
    attributes = read_setting("gaussian:50", "everyone", 500, votes="attributes:4")
    assert cost(attributes.event(), 1e-3) == pytest.approx(2.735, abs=6e-4)
    laplace = read_setting("laplace:50", "everyone", 1, votes="attributes:4").claim()
    assert laplace.stddev == pytest.approx(50 * math.sqrt(2)) and laplace.noise_sensitivity == 4.0
    assert cost(laplace.world, 1e-12) == pytest.approx(4 / 50, rel=1e-6)


def test_options_of_account_that_votes_do_not_have_are_refused() -> None:
    with pytest.raises(BadValue, match="--shuffle"):
        read_setting("laplace:25", "everyone:9", 1, shuffle=True, votes="label")
    for relation in ("add-remove", "zero-out"):
        with pytest.raises(BadValue, match="--relation"):
            read_setting("gaussian:25", "everyone", 1, "record", relation, votes="knn:5")


def test_a_shuffler_hides_no_record_among_messages_that_look_like_others() -> None:
    """A record moves its client's answer from (1, 0) to (0.9, 0.1), and all others answer (0, 1): nobody looks like it.

    The clones' chance is e^-epsilon for the epsilon between any two clients' messages, here 20, and not the record's own 2.
    """
    clients, scale, k = 1000, 0.1, 10
    noise = (AddNoise(Laplace(scale)),)
    round = voting(1, k=k, sample=Everyone(Relation.REPLACE), client=noise, channel=Shuffler(), server=())
    proof = round.derive(population=clients, dimension=7).units[Unit.RECORD]

    def beyond(row: tuple[float, float]) -> float:
        """How likely a message lies at (1, 0) or further out in both coordinates."""
        return math.exp(-(1 - row[0]) / scale) / 2 * math.exp(-row[1] / scale) / 2

    others = (1 - beyond((0.0, 1.0))) ** (clients - 1)
    seen, unseen = (1 - (1 - beyond(row)) * others for row in ((1.0, 0.0), (1 - 1 / k, 1 / k)))
    stated = accountant("auto").epsilon(proof.world, 1e-5)
    assert math.log((seen - 1e-5) / unseen) <= stated <= 2.001
    assert any("two messages may be apart" in words for words in proof.assumptions)


@pytest.mark.parametrize("words", ["knn", "knn:0", "label:3", "plurality", "attributes:x"])
def test_votes_that_nobody_casts_are_refused(words: str) -> None:
    with pytest.raises(BadValue, match="--votes"):
        read_setting("gaussian:25", "everyone", 1, votes=words)


def test_everyone_votes_in_a_plan_unless_voters_are_drawn() -> None:
    words = ["plan", "--votes", "knn:5", "--clients", "100", "--noise", "gaussian:25", "--delta", "1e-3", "--no-table"]
    found = CliRunner().invoke(app, [*words, "--epsilon", "2.74"])
    assert found.exit_code == 0 and "at most 501 queries" in found.output, found.output
    drawn = CliRunner().invoke(app, [*words, "--rounds", "3", "--sample", "poisson:0.5"])
    assert drawn.exit_code == 0 and "anew for each query" in drawn.output, drawn.output
