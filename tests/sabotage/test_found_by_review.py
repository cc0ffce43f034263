"""Ways that were found to an epsilon that is not proven. Each stays closed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from sfumato import (
    AddNoise,
    Clip,
    DpSgd,
    Everyone,
    FixedSize,
    Gaussian,
    HelperBlend,
    Mean,
    Objective,
    Plan,
    Poisson,
    Population,
    RealisedMean,
    Relation,
    Unit,
    UnsoundRound,
    WeightByExamples,
    classification,
)  # fmt: skip
from sfumato.engine.clients import Clients
from sfumato.engine.cohort import Cohort
from sfumato.engine.simulate import simulate
from sfumato.errors import BadValue, LedgerError
from sfumato.gradients import ClippedSum
from sfumato.key import Key
from sfumato.ledger.ledger import Ledger
from sfumato.pieces.after_noise import LaplacianSmoothing
from sfumato.pieces.channel import SecureSum
from sfumato.pieces.clip import AdaptiveClip
from sfumato.pieces.mask import TopK
from sfumato.pieces.noise import NoiseShare
from sfumato.update import Layout
from tests.helpers import dp_round, linear, made_up_population

REPLACE = Poisson(0.5, Relation.REPLACE)
NOISE = AddNoise(Gaussian(2.0))


@pytest.mark.parametrize("piece", [NOISE, Clip(1e-6), Poisson(1e-4), Mean(1e6)], ids=lambda piece: type(piece).__name__)
def test_a_piece_in_the_channel_slot_would_be_credited_and_never_run(piece: Any) -> None:
    with pytest.raises(UnsoundRound, match="does not belong in the channel slot"):
        dp_round(channel=piece)


@pytest.mark.parametrize(
    "piece", [Clip(1.0), TopK(0.5), AdaptiveClip(), WeightByExamples(5)], ids=lambda p: type(p).__name__
)
def test_client_pieces_do_not_work_at_the_server(piece: Any) -> None:
    with pytest.raises(UnsoundRound, match="move it to the client slot"):
        dp_round(client=(), server=(piece, NOISE))


def test_server_pieces_do_not_work_at_the_client() -> None:
    with pytest.raises(UnsoundRound, match="move it to the server slot"):
        dp_round(client=(Clip(1.0), LaplacianSmoothing(1.0)))


def test_a_clip_before_the_adaptive_one_bounds_nothing_after_it() -> None:
    proof = dp_round(client=(Clip(0.001), AdaptiveClip(0.1))).derive(population=100, dimension=5).primary
    assert proof.sensitivity is not None
    assert proof.sensitivity >= 1.0 / 5


@pytest.mark.parametrize(("shares", "smallest"), [(10, 0), (1000, 0), (9, 2)])
def test_noise_is_divided_among_those_who_are_sure_to_reply(shares: int, smallest: int) -> None:
    client = (Clip(1.0), NoiseShare(Gaussian(4.0), shares))
    with pytest.raises(UnsoundRound, match="less noise than is accounted"):
        dp_round(sample=FixedSize(10), client=client, channel=SecureSum(smallest), server=())


@pytest.mark.parametrize(
    "changed",
    [
        {"client": (Clip(1.0), NOISE, WeightByExamples(50))},
        {"client": (Clip(1.0), NOISE), "aggregate": RealisedMean("examples")},
    ],
    ids=["weights", "mean"],
)
def test_numbers_of_records_are_not_read_again_after_the_noise(changed: dict[str, Any]) -> None:
    with pytest.raises(UnsoundRound, match="records"):
        dp_round(sample=REPLACE, server=(), **changed)


def test_shares_are_not_weighed_by_examples() -> None:
    client = (Clip(1.0), NoiseShare(Gaussian(4.0), 9))
    with pytest.raises(UnsoundRound, match="sized without them"):
        dp_round(
            sample=FixedSize(10), client=client, channel=SecureSum(), server=(), aggregate=RealisedMean("examples")
        )


def test_two_noises_at_the_client_are_not_the_same_noise() -> None:
    drawn: list[str] = []
    stream = Key.stream

    def spy(self: Key, size: int) -> bytes:
        drawn.append(self.path)
        return stream(self, size)

    round = dp_round(
        sample=REPLACE, client=(Clip(1.0), NOISE, TopK(0.5), Clip(1.0), AddNoise(Gaussian(3.0))), server=()
    )
    simulation = simulate(
        round, made_up_population([3] * 6), linear(), classification(3), rounds=1, seed=0, plan=Plan()
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Key, "stream", spy)
        next(iter(simulation))
    assert len(drawn) == len(set(drawn))


def test_shares_after_paid_noise_are_refused() -> None:
    client = (Clip(1.0), AddNoise(Gaussian(0.5)), TopK(0.5), NoiseShare(Gaussian(4.0), 9))
    with pytest.raises(UnsoundRound, match="already paid for"):
        dp_round(sample=FixedSize(10), client=client, channel=SecureSum(), server=())


class RunningMean(nn.Module):
    """Keeps a mean that starts at zero, in a buffer or as a plain number."""

    def __init__(self, plain: bool) -> None:
        super().__init__()
        self.layer, self.plain, self.seen = nn.Linear(6, 3), plain, 0.0
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training and self.plain:
            self.seen = 0.9 * self.seen + 0.1 * float(x.mean())
        elif self.training:
            self.mean.mul_(0.9).add_(0.1 * x.detach().mean(0))  # type: ignore[operator]
        return self.layer(x)  # type: ignore[no-any-return]


@pytest.mark.parametrize("plain", [False, True])
def test_state_that_starts_at_zero_is_state(plain: bool) -> None:
    with pytest.raises(UnsoundRound, match="state outside the row"):
        simulate(dp_round(), made_up_population([3] * 6), RunningMean(plain), classification(3), rounds=1)


class DividesByTheLargest(nn.Module):
    """Mixes records, but not on small inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x / x.abs().max().clamp(min=10.0))  # type: ignore[no-any-return]


def balanced(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """A loss that looks at the whole batch."""
    weight = torch.tensor([1.0, 5.0, 9.0])[y]
    return nn.functional.cross_entropy(outputs, y, reduction="none") * weight / weight.mean()


@pytest.mark.parametrize("plan", [Plan("stacked", 8), Plan("vmapped", 8), Plan()], ids=lambda plan: plan.path)
@pytest.mark.parametrize(
    ("module", "objective"),
    [
        (DividesByTheLargest(), classification(3)),
        (linear(), Objective(loss=balanced)),
        (nn.Sequential(nn.BatchNorm1d(6, affine=False, track_running_stats=False), nn.Linear(6, 3)), classification(3)),
    ],
    ids=["module", "loss", "batch statistics"],
)
def test_one_client_never_moves_anothers_row(plan: Plan, module: nn.Module, objective: Objective) -> None:
    def rows(scale: float) -> torch.Tensor:
        clients = [(Key.from_seed(n).normal(4, 6).float(), torch.arange(4) % 3) for n in range(4)]
        clients[3] = (clients[3][0] * scale, torch.full((4,), 2))
        people = Population.from_list(clients, name="people")
        simulation = simulate(dp_round(), people, module, objective, rounds=1, seed=0, plan=plan)
        cohort = Cohort(Clients(simulation.job, people, plan))
        params, keys = simulation.start.params, simulation.randomness.keys(0)
        opening = cohort.open(params, 0, keys.opening(0))
        everyone = cohort.total(params, [0, 1, 2, 3], opening, keys.clients).rows
        return everyone - cohort.total(params, [3], opening, keys.clients).rows

    assert torch.allclose(rows(1.0), rows(1000.0), atol=1e-5)


@pytest.mark.parametrize(("module", "loss"), [(DividesByTheLargest(), classification(3).loss), (linear(), balanced)])
def test_one_record_never_moves_anothers_gradient(module: nn.Module, loss: Any) -> None:
    layout = Layout.of(module)
    row, x, y = layout.row(module), Key.from_seed(2).normal(8, 6).float(), torch.zeros(8, dtype=torch.int64)
    total = ClippedSum(module, layout, loss, 1.0)
    total(row, x, y)  # the first batch chooses the way
    for changed_x, changed_y in (
        (x.clone(), torch.cat([y[:7], torch.tensor([2])])),
        (torch.cat([x[:7], x[7:] * 1000]), y),
    ):
        moved = (total(row, changed_x, changed_y) - total(row, x, y)).norm()
        assert float(moved) <= 2.0 * 1.0001


def test_a_run_is_iterated_once() -> None:
    simulation = simulate(dp_round(), made_up_population([3] * 6), linear(), classification(3), rounds=1, plan=Plan())
    list(simulation)
    with pytest.raises(BadValue, match="begun already"):
        list(simulation)


def test_a_ledger_is_not_used_for_another_run(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"rounds": 1, "plan": Plan(), "folder": tmp_path}
    list(simulate(dp_round(), made_up_population([3] * 6), linear(), classification(3), **settings))
    with pytest.raises(BadValue):
        simulate(dp_round(), made_up_population([4] * 6), linear(), classification(3), **settings)


def test_rounds_without_their_checkpoint_stop_a_resume(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"rounds": 1, "plan": Plan(), "folder": tmp_path}
    list(simulate(dp_round(), made_up_population([3] * 6), linear(), classification(3), **settings))
    with Ledger(tmp_path / "ledger.sqlite", None).connected() as connection:
        connection.execute("DELETE FROM state")
    with pytest.raises(LedgerError):
        simulate(dp_round(), made_up_population([3] * 6), linear(), classification(3), resume=True, **settings)


def test_a_seed_that_is_forgotten_on_resume_is_still_an_assumption(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"plan": Plan(), "folder": tmp_path}
    people = made_up_population([3] * 6)
    list(simulate(dp_round(), people, linear(), classification(3), rounds=1, seed=7, **settings))
    run = simulate(dp_round(), people, linear(), classification(3), rounds=2, resume=True, **settings)
    list(run)
    assert any("simulation" in one for one in run.guarantee(1e-3).assumptions)
    assert [entry.seeded for entry in run.ledger.entries()] == [True, False]


def test_memory_and_displacement_have_no_proof_together() -> None:
    with pytest.raises(UnsoundRound, match="displaces others"):
        dp_round(sample=FixedSize(3, Relation.ADD_REMOVE), personal=HelperBlend(0.5))


def test_add_remove_is_never_claimed_against_the_server() -> None:
    client = (Clip(1.0), NoiseShare(Gaussian(4.0), 9))
    sampler = FixedSize(10, Relation.ADD_REMOVE)
    proof = dp_round(sample=sampler, client=client, channel=SecureSum(), server=()).derive(population=100, dimension=5)
    assert proof.units[Unit.CLIENT].server is None
    assert proof.units[Unit.RECORD].server is not None


@dataclass(frozen=True)
class SilentLaw(Gaussian):
    """Draws nothing."""

    def sample(self, shape: tuple[int, ...], stddev: float, key: Key) -> torch.Tensor:
        return torch.zeros(shape, dtype=torch.float64)


class EveryRecord(Poisson):
    """Draws all of them."""


def test_code_from_outside_is_named_wherever_it_hides() -> None:
    proof = dp_round(server=(AddNoise(SilentLaw(1.0)),)).derive(population=10, dimension=5).primary
    assert any("SilentLaw" in words for words in proof.assumptions)
    local = DpSgd(steps=2, batch=EveryRecord(0.1), records=10)
    proof = dp_round(local=local, unit=Unit.RECORD, client=(), server=(), aggregate=RealisedMean()).derive(
        population=10, dimension=5
    )
    assert any("EveryRecord" in words for words in proof.primary.assumptions)


def test_a_cohort_without_curious_clients_is_an_assumption() -> None:
    proof = dp_round(sample=FixedSize(3, curious=0)).derive(population=10, dimension=5).primary
    assert any("whether it was drawn" in words for words in proof.assumptions)


def test_zero_out_batches_are_refused_before_training() -> None:
    with pytest.raises(UnsoundRound, match="zero-out"):
        DpSgd(steps=1, batch=Poisson(0.5, Relation.ZERO_OUT), records=10)


def test_both_units_are_proven_where_both_are_defined() -> None:
    local = DpSgd(steps=2, batch=FixedSize(2), records=4, law=Gaussian(2.0))
    round = dp_round(sample=Everyone(), local=local)
    proof = round.derive(population=10, dimension=5)
    assert set(proof.units) == set(Unit)
    simulation = simulate(
        round, made_up_population([4] * 6), linear(), classification(3), rounds=1, seed=0, plan=Plan()
    )
    next(iter(simulation))
    assert simulation.guarantee(1e-3).epsilon is not None
    assert simulation.guarantee(1e-3, Unit.RECORD).epsilon is not None


def test_a_full_cohort_of_fixed_size_still_displaces_one(capsys: pytest.CaptureFixture[str]) -> None:
    from sfumato.cli import run

    words = "--noise gaussian:1 --relation add-remove --rounds 1 --delta 1e-5 --curious 0 --json"
    found = []
    for sample in ("fixed:100/100", "fixed:100/101"):
        assert run(["account", "--sample", sample, *words.split()]) == 0
        found.append(json.loads(capsys.readouterr().out)["epsilon"])
    assert found[0] >= found[1] > 9.9
