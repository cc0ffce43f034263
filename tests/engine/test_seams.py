"""What a piece of one's own can do: messages of another length, students, cycles, state, keys of earlier rounds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from sfumato import (
    AdaptiveClip,
    AddNoise,
    Clip,
    Everyone,
    Gaussian,
    Key,
    LaplacianSmoothing,
    Mean,
    Plan,
    PublicData,
    Records,
    SharedMask,
    TopK,
    calibrate,
    classification,
)  # fmt: skip
from sfumato.account import accountant
from sfumato.account.event import Event, GaussianEvent, Nothing, Relation, Repeated, Unit
from sfumato.claim import Claim, Reach, Release
from sfumato.engine.checkpoint import Checkpoint
from sfumato.engine.keys import Keys
from sfumato.engine.simulate import simulate
from sfumato.errors import BadValue, BudgetExceeded, SfumatoError
from sfumato.ledger.ledger import Ledger
from sfumato.local.task import Task
from sfumato.pieces.context import Context, StepContext
from sfumato.pieces.protocol import ClientPiece, LocalPiece, Optimizer, Sampler, ServerPiece, State, Turn
from sfumato.update import Layout
from tests.helpers import dp_round, linear, made_up_population

SIZES = [5, 1, 0, 12, 7, 3, 9, 4]
PEOPLE = made_up_population(SIZES)


def ready(round: Any, rounds: int = 4, **options: Any) -> Any:
    settings: dict[str, Any] = {"seed": 0, "plan": Plan(), **options}
    return simulate(round, PEOPLE, linear(), classification(3), rounds=rounds, **settings)


@dataclass(frozen=True)
class Histogram(LocalPiece):
    """Each client counts its labels: the message is no model's row."""

    classes: int

    def message_length(self, layout: Layout) -> int:
        return self.classes

    def train(self, task: Task) -> torch.Tensor:
        return torch.stack([torch.bincount(one.y, minlength=self.classes).float() for one in task.clients])

    def carry(self, claim: Claim) -> Claim:
        return claim


@dataclass(frozen=True)
class Student(Optimizer):
    """Trains on public inputs with labels drawn from the released histogram: post-processing."""

    public: PublicData

    def learn(
        self, params: torch.Tensor, state: State, update: torch.Tensor, context: StepContext
    ) -> tuple[torch.Tensor, State]:
        shares = update.clamp(min=0.0).double().cumsum(0)
        drawn = torch.from_numpy(context.key.uniform(self.public.records.count)) * shares[-1]
        labels = torch.searchsorted(shares, drawn).clamp(max=len(update) - 1)
        module = context.module(params)
        loss = context.objective.loss(module(self.public.records.x), labels).mean()
        gradients = torch.autograd.grad(loss, list(module.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(module.parameters(), gradients, strict=True):
                parameter -= gradient
        return context.layout.row(module), {"histogram": update}

    def carry(self, claim: Claim) -> Claim:
        return claim


def voting(**changed: Any) -> Any:
    public = PublicData("public", Records(Key.from_seed(5).normal(4000, 6).float(), torch.zeros(4000)))
    slots = {"sample": Everyone(), "local": Histogram(3), "client": (Clip(20.0),), "optimizer": Student(public)}
    return dp_round(**{**slots, "server": (AddNoise(Gaussian(0.001)),), "aggregate": Mean(1.0), **changed})


@pytest.mark.parametrize("plan", [Plan(), Plan("stacked", 3), Plan(workers=2), None], ids=str)
def test_a_histogram_is_released_and_a_student_learns_from_it(plan: Plan | None, tmp_path: Path) -> None:
    simulation = ready(voting(), rounds=3, plan=plan, folder=tmp_path)
    assert simulation.derivation.dimension == 3  # that of the message: the model has 21
    *_, progress = simulation
    counts = sum(torch.bincount(PEOPLE.client(client).train.y, minlength=3) for client in range(8))
    last = Checkpoint.read(tmp_path)
    assert last is not None and torch.allclose(last.state["histogram"], torch.as_tensor(counts).float(), atol=0.5)
    public = voting().optimizer.public.records.x
    shares = F.softmax(progress.module(public), dim=1).mean(0)
    before = F.softmax(linear()(public), dim=1).mean(0)
    wanted = torch.as_tensor(counts) / 41
    assert (shares - wanted).abs().sum() < (before - wanted).abs().sum()


@pytest.mark.parametrize(
    ("round", "words"),
    [
        (lambda: voting(optimizer=dp_round().optimizer), "sends 3 coordinates, and the model has 21"),
        (lambda: dp_round(client=(AdaptiveClip(), SharedMask(0.5))), "Put it before SharedMask and AdaptiveClip"),
        (lambda: dp_round(client=(SharedMask(0.5), TopK(0.5), Clip(1.0))), "Put it before SharedMask"),
        (
            lambda: dp_round(
                client=(SharedMask(0.5), Clip(1.0)),
                server=(LaplacianSmoothing(1.0, per_layer=True), AddNoise(Gaussian(1.0))),
            ),
            "Put it before SharedMask",
        ),
        (lambda: dp_round(client=(Shortens(), Clip(1.0))), "undone to 20"),
    ],
    ids=["length", "adaptive, mask", "mask, layers", "mask, smoothing", "not undone"],
)
def test_pieces_that_do_not_fit_are_refused_before_anything_is_spent(round: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(BadValue, match=words):
        ready(round(), folder=tmp_path)
    assert not list(tmp_path.iterdir())


@dataclass(frozen=True)
class Shortens(ClientPiece):
    """Drops a coordinate, and nothing puts it back."""

    def __call__(self, rows: torch.Tensor, context: Context) -> torch.Tensor:
        return rows[:, :-1]

    def carry(self, claim: Claim) -> Claim:
        return claim


def test_a_mask_and_then_an_adaptive_clip_is_fine() -> None:
    *_, progress = ready(dp_round(client=(SharedMask(0.5), AdaptiveClip())))
    assert progress.params.isfinite().all()


@dataclass(frozen=True)
class Cyclic(Sampler):
    """Clients are dealt into `groups` once, by a key of the run; the groups take turns.

    States: a client takes part in one of any `groups` consecutive rounds that begin a cycle, so one unsampled event pays for
    all of them. Where a client is dealt does not depend on who else is there.
    """

    groups: int
    relation: Relation = Relation.ADD_REMOVE

    def cohort(self, population: int, turn: Turn) -> np.ndarray:
        dealt = turn.run.integers(population) % np.uint64(self.groups)
        return np.flatnonzero(dealt == turn.round % self.groups)

    def expected(self, population: int) -> float:
        return population / self.groups

    def chance(self, claim: Claim) -> float:
        return 1.0  # who takes part is no secret

    def reach(self, claim: Claim, seen: bool) -> Reach:
        return claim.moved

    def amplified(self, release: Release, claim: Claim) -> Event:
        return release(claim.moved)

    def carry(self, claim: Claim) -> Claim:
        return replace(claim, sampling=self, every=self.groups)


def test_in_a_cycle_everybody_takes_part_once() -> None:
    turns = [Keys.of(Key.from_seed(3)).turn(number) for number in range(6)]
    drawn = [set(Cyclic(3).cohort(50, turn).tolist()) for turn in turns]
    assert set.union(*drawn[:3]) == set(range(50)) and sum(map(len, drawn[:3])) == 50
    assert drawn[:3] == drawn[3:]


def test_an_event_is_due_once_in_every_cycle() -> None:
    simulation = ready(dp_round(sample=Cyclic(3)), rounds=7, adaptive=True)
    proof = simulation.derivation.primary
    once = proof.world
    assert isinstance(once, GaussianEvent)
    assert [proof.at(number) for number in range(4)] == [once, Nothing(), Nothing(), once]
    assert proof.at(1, server=True) is None
    assert proof.after(0) == Nothing() and proof.after(1) == proof.after(3) == Repeated(once, 1)
    assert proof.after(7, start=1) == Repeated(once, 2) and proof.after(3, start=1) == Nothing()
    found = [progress.epsilon(1e-3) for progress in simulation]
    price = simulation.ledger.price
    assert found == pytest.approx([price.epsilon(Repeated(once, times), 1e-3) for times in (1, 1, 1, 2, 2, 2, 3)])
    plan = [progress.epsilon(1e-3) for progress in ready(dp_round(sample=Cyclic(3)), rounds=7)]
    assert plan == pytest.approx([accountant("auto").epsilon(Repeated(once, 3), 1e-3)] * 7)
    assert "as stated by" in str(simulation.guarantee(1e-3))


def test_calibration_and_budget_count_what_is_due() -> None:
    loud = calibrate(dp_round(sample=Cyclic(3)), epsilon=2.0, delta=1e-3, rounds=6, population=8)
    every = calibrate(dp_round(sample=Everyone()), epsilon=2.0, delta=1e-3, rounds=2, population=8)
    multiplier = [round.server[0].noise_and_norm()[0] for round in (loud, every)]  # type: ignore[index]
    assert multiplier[0] == pytest.approx(multiplier[1], rel=1e-2)
    once = ready(dp_round(sample=Cyclic(3))).derivation.primary.world
    budget = (accountant("auto").epsilon(Repeated(once, 2), 1e-3) * 1.001, 1e-3)
    simulation = ready(dp_round(sample=Cyclic(3)), rounds=9, budget=budget)
    with pytest.raises(BudgetExceeded, match="round 7"):
        list(simulation)


def test_a_resumed_run_begins_a_new_cycle(tmp_path: Path) -> None:
    round = dp_round(sample=Cyclic(3))
    first = ready(round, folder=tmp_path, seed=None)
    steps = iter(first)
    next(steps)
    checkpoint = Checkpoint.read(tmp_path)
    next(steps)
    assert checkpoint is not None
    steps.close()  # type: ignore[attr-defined]
    checkpoint.write(tmp_path, first.ledger, first.spending.run)  # as if killed in round 2, after it was reserved
    again = ready(round, rounds=7, folder=tmp_path, seed=None, resume=True)
    list(again)
    once = again.derivation.primary.world
    found = [entry.costs[Unit.CLIENT].world for entry in again.ledger.entries()]
    # rounds 1 and 2 of the first groups; then rounds 2 to 7 of others, which are a cycle from round 2 on
    assert found == [once, Nothing(), once, Nothing(), Nothing(), once, Nothing(), Nothing()]
    proof = again.derivation.primary
    assert proof.after(7, start=1, since=1) == Repeated(once, 2) == proof.after(6, start=0)


@dataclass(frozen=True)
class Differences(ServerPiece):
    """Adds z_n - z_(n-1): what was added in all the rounds is the last z alone. The noise is a function of keys only."""

    def _noise(self, context: Context, number: int, like: torch.Tensor) -> torch.Tensor:
        return context.stream_key(round=number).normal(len(like)) if number >= 0 else torch.zeros_like(like)

    def __call__(self, value: torch.Tensor, context: Context) -> torch.Tensor:
        return value + self._noise(context, context.round, value) - self._noise(context, context.round - 1, value)

    def carry(self, claim: Claim) -> Claim:
        return claim


def test_noise_of_earlier_rounds_is_drawn_again_and_never_stored(tmp_path: Path) -> None:
    quiet = dp_round(client=(Clip(1e-9),), server=(Differences(),), aggregate=Mean(1.0), unproven=True)
    simulation = ready(quiet, rounds=5, folder=tmp_path)
    *_, progress = simulation
    moved = progress.params - simulation.start.params
    stream = simulation.randomness.keys(0).stream(0)
    alone = stream.child("round", number=4).normal(21).float()
    assert torch.allclose(moved, alone, atol=1e-5)
    last = Checkpoint.read(tmp_path)
    assert last is not None and not last.kept and not last.state
    list(ready(quiet, rounds=2, folder=tmp_path / "parts"))
    *_, resumed = ready(quiet, rounds=5, folder=tmp_path / "parts", resume=True)
    assert torch.equal(resumed.params, progress.params)


@dataclass(frozen=True)
class Smoothed(ServerPiece):
    """Releases the running mean of what it was given."""

    def start(self) -> torch.Tensor:
        return torch.zeros(21, dtype=torch.float64)

    def __call__(self, value: torch.Tensor, context: Context) -> torch.Tensor:
        assert context.state is not None
        return 0.5 * context.state + 0.5 * value

    def follow(self, value: torch.Tensor, context: Context) -> torch.Tensor:
        return value

    def carry(self, claim: Claim) -> Claim:
        return claim


def test_a_server_piece_keeps_state_that_no_client_sees(tmp_path: Path) -> None:
    round = dp_round(server=(AddNoise(Gaussian(1.0)), Smoothed()))
    simulation = ready(round, folder=tmp_path)
    *_, whole = simulation
    last = Checkpoint.read(tmp_path)
    assert last is not None and list(last.kept) == ["server.1"] and last.kept["server.1"].norm() > 0
    opening = simulation.job.slots.open(4, simulation.randomness.keys(4).opening(4), last.kept)
    assert not opening.kept
    list(ready(round, rounds=2, folder=tmp_path / "parts"))
    *_, resumed = ready(round, folder=tmp_path / "parts", resume=True)
    assert torch.equal(resumed.params, whole.params)


def test_a_run_and_its_progress_are_one_short_line_and_run_once() -> None:
    simulation = ready(dp_round(), rounds=2)
    assert repr(simulation) == "Simulation(8 clients, rounds 0 to 2)"
    *_, progress = simulation
    assert repr(progress) == "Progress(round 2 of 2, 21 parameters)"  # no seconds, which tell how many were drawn
    with pytest.raises(SfumatoError, match="begun already"):
        list(simulation)
    assert isinstance(simulation.ledger, Ledger)
