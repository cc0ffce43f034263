"""Private local training: against its slow twin, by the laws for records, and what it refuses."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sfumato import (
    Adam,
    AddNoise,
    Clip,
    DpSgd,
    Everyone,
    FixedSize,
    Gaussian,
    GradientDescent,
    Key,
    Mean,
    Momentum,
    Objective,
    Plan,
    Poisson,
    RealisedMean,
    Records,
    Relation,
    Round,
    Unit,
    UnsoundRound,
    accountant,
    calibrate,
    classification,
    simulate,
)  # fmt: skip
from sfumato.account.event import FixedSizeSampled, GaussianEvent, Mixture, PoissonSampled, Repeated
from sfumato.calibration import noise_and_clip
from sfumato.errors import BadValue, DataError
from sfumato.gradients import OneByOne
from sfumato.local.task import Task
from sfumato.pieces.sampler import parse_sampler
from sfumato.recipes import build
from sfumato.testing import check_records
from sfumato.update import Layout
from tests.helpers import linear, made_up_population
from tests.local.slow_dp_sgd import SlowDpSgd


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def dp_sgd(**changed: Any) -> DpSgd:
    return DpSgd(**{"steps": 3, "batch": FixedSize(4), "records": 10, **changed})


def record_round(**changed: Any) -> Round:
    slots: dict[str, Any] = {
        "sample": Poisson(0.5),
        "local": dp_sgd(),
        "aggregate": RealisedMean(),
        "unit": Unit.RECORD,
    }
    return Round(**{**slots, **changed})


def network() -> nn.Module:
    with Key.from_seed(2).seeding_torch():
        return nn.Sequential(nn.Conv2d(1, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(3 * 16, 4))


def task_of(module: nn.Module, records: Records, round: int = 0) -> Task:
    layout = Layout.of(module)
    row = layout.row(module)
    starts = (row + 0.01 * Key.from_seed(9).normal(len(row)).float())[None]
    return Task(OneByOne(module), layout, classification(4).loss, row, starts, [records], [Key.from_seed(5)], round)


def images(count: int) -> Records:
    return Records(Key.from_seed(1).normal(count, 1, 6, 6).float(), torch.arange(count) % 4)


def slow(local: DpSgd) -> SlowDpSgd:
    return SlowDpSgd(**{part.name: getattr(local, part.name) for part in fields(local)})


@pytest.mark.parametrize(
    "local",
    [
        dp_sgd(clip=0.1, law=Gaussian(0.01), optimizer=GradientDescent(0.5)),
        dp_sgd(batch=Poisson(0.3), optimizer=Momentum(0.1), weight_decay=0.05, lr_decay=0.7),
        dp_sgd(batch=Everyone(), optimizer=Adam(0.01), proximal=2.0, clip=30.0, micro_batch=3),
    ],
    ids=["fixed", "poisson", "everyone"],
)
@pytest.mark.parametrize("round", [0, 3])
def test_it_is_its_slow_twin(local: DpSgd, round: int) -> None:
    task = task_of(network(), images(13), round)
    fast, twin = local.train(task), slow(local).train(task)
    assert torch.allclose(fast, twin, rtol=1e-4, atol=1e-6)
    assert not torch.allclose(fast, slow(replace(local, clip=local.clip * 0.9)).train(task), rtol=1e-3, atol=1e-5)


def test_a_record_whose_gradient_is_not_finite_adds_nothing() -> None:
    records, local = images(10), dp_sgd(batch=Everyone(), steps=1, law=Gaussian(1e-6))
    records.x[3, 0, 2, 2] = math.nan
    records.x[7, 0, 0, 0] = math.inf
    task = task_of(network(), records)
    row = local.train(task)
    assert row.isfinite().all()
    kept = [place for place in range(10) if place not in (3, 7)]
    clean = task_of(network(), Records(records.x[kept], records.y[kept]))
    assert torch.allclose(row, local.train(clean), atol=1e-5)


@pytest.mark.parametrize(
    "local",
    [
        dp_sgd(batch=FixedSize(4), records=12, clip=0.7),
        dp_sgd(batch=FixedSize(4, Relation.ADD_REMOVE), records=12, clip=0.7),
        dp_sgd(batch=Poisson(0.3), records=12, law=Gaussian(0.6)),
        dp_sgd(batch=Poisson(0.3, Relation.REPLACE), records=8),
        dp_sgd(batch=Everyone(), records=5, clip=3.0),
    ],
    ids=["fixed", "fixed-add-remove", "poisson", "poisson-replace", "everyone"],
)
def test_it_holds_the_laws_for_records(local: DpSgd) -> None:
    check_records(local, draws=120)


def test_the_divisor_is_declared_and_not_counted() -> None:
    local = dp_sgd(batch=Poisson(0.25), records=40, steps=1, law=Gaussian(1e-6), clip=1e-2)
    assert local.divisor == 10.0
    module = linear()
    few, many = (made_up_population([count]).client(0).train for count in (5, 400))
    lengths = []
    for records in (few, many):
        layout = Layout.of(module)
        row = layout.row(module)
        task = Task(OneByOne(module), layout, classification(3).loss, row, row[None], [records], [Key.from_seed(1)], 0)
        drawn = len(local.batch.draw(records.count, Key.from_seed(1).child("step", number=0).child("batch")))
        moved = float(local.train(task).norm())
        assert moved <= drawn * 1e-2 / 10.0 * (1 + 1e-4)
        lengths.append(moved)
    assert lengths[1] > 5 * lengths[0]  # a mean over the realised batch would be about as long


@pytest.mark.parametrize("records", [0, 3])
def test_an_empty_poisson_batch_still_gets_its_noise(records: int) -> None:
    local = dp_sgd(batch=Poisson(1e-6), records=100_000, steps=2, law=Gaussian(5.0))
    task = task_of(network(), images(records))
    row = local.train(task) + task.params - task.starts[0]
    assert float(row.std()) == pytest.approx(math.sqrt(2) * 5.0 / 0.1, rel=0.2)


def run(round: Round, sizes: tuple[int, ...] = (12, 12, 12), module: nn.Module | None = None, **options: Any) -> Any:
    settings: dict[str, Any] = {"rounds": 1, "seed": 0, "plan": Plan(), **options}
    result = None
    for result in simulate(
        round,
        made_up_population(list(sizes)),
        module or linear(),
        options.pop("objective", classification(3)),
        **settings,
    ):
        pass
    return result


def test_a_client_with_too_few_records_is_refused() -> None:
    with pytest.raises(DataError, match="3 records, fewer than the 10 that were declared"):
        run(record_round(sample=Everyone()), sizes=(12, 3))
    assert run(record_round(sample=Everyone(), local=dp_sgd(batch=Poisson(0.2))), sizes=(12, 3, 0)) is not None


class Centres(nn.Module):
    """Takes the mean of the batch away."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.inner(x - x.mean(0)))


@pytest.mark.parametrize("module", [nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3)), Centres()], ids=["norm", "own"])
def test_a_module_that_mixes_records_is_refused(module: nn.Module) -> None:
    with pytest.raises((UnsoundRound, BadValue), match="BatchNorm|mixes records"):
        run(record_round(), module=module)


def test_a_loss_that_is_not_per_record_is_refused() -> None:
    mean = Objective(loss=lambda outputs, y: nn.functional.cross_entropy(outputs, y))
    population = made_up_population([12, 12])
    with pytest.raises(BadValue, match="one number per record"):
        simulate(record_round(), population, linear(), mean, rounds=1, seed=0, plan=Plan())


def test_shuffled_epochs_are_refused() -> None:
    with pytest.raises(UnsoundRound, match="shuffled"):
        parse_sampler("epoch:16", option="batch")
    with pytest.raises(UnsoundRound, match="batch='shuffle:16'"):
        build("prifedsync", 10, {"batch": "shuffle:16"})


@pytest.mark.parametrize(
    "changed",
    [
        {"steps": 0}, {"records": 0}, {"clip": 0.0}, {"clip": math.inf}, {"order": 3}, {"batch": FixedSize(11)},
        {"lr_decay": 0.0}, {"lr_decay": 1.1}, {"weight_decay": -1.0}, {"proximal": -0.1},
    ],
    ids=str,
)  # fmt: skip
def test_values_that_cannot_be_meant_are_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(BadValue):
        dp_sgd(**changed)


@pytest.mark.parametrize(
    ("batch", "step", "relation"),
    [
        (FixedSize(4), FixedSizeSampled(0.4, GaussianEvent(0.75)), Relation.REPLACE),
        (
            FixedSize(
                4, Relation.ADD_REMOVE
            ),  # a record that joins displaces another, so it moves the sum by two norms
            FixedSizeSampled(0.4, GaussianEvent(0.75), Relation.ADD_REMOVE),
            Relation.ADD_REMOVE,
        ),
        (Poisson(0.2), PoissonSampled(0.2, GaussianEvent(1.5)), Relation.ADD_REMOVE),
        (Poisson(0.2, Relation.REPLACE), PoissonSampled(0.2, GaussianEvent(0.75), Relation.REPLACE), Relation.REPLACE),
        (Everyone(), GaussianEvent(1.5), Relation.ADD_REMOVE),
    ],
    ids=["fixed", "fixed-add-remove", "poisson", "poisson-replace", "everyone"],
)
def test_each_step_costs_what_its_batch_says(batch: Any, step: Any, relation: Relation) -> None:
    proof = record_round(local=dp_sgd(batch=batch, law=Gaussian(1.5))).derive(population=9, dimension=5)
    assert proof.primary.world == Mixture(0.5, Repeated(step, 3)) == proof.primary.server
    assert proof.primary.relation is relation
    assert "the server samples honestly" in proof.primary.assumptions
    assert Unit.CLIENT in proof.refused
    assert "declared number" in str(proof.primary.assumptions) or not isinstance(batch, FixedSize)


# PRIVACY.md A2 and B(iv): n = 600, batches of 16, 38 steps, epsilon at delta 1e-5
GOLDEN = {
    "p 1, sigma 1, 93 rounds": (Everyone(), 1.0, 93, 13.877), "p 1, sigma .75, 64 rounds": (Everyone(), 0.75, 64, 21.017),
    "p .5, sigma 1, 194 rounds": (Poisson(0.5), 1.0, 194, 14.52), "p .25, sigma 1, 386 rounds": (Poisson(0.25), 1.0, 386, 14.61),
    "all of 194 rounds": (Everyone(), 1.0, 194, 22.28), "all of 245 rounds": (Everyone(), 0.75, 245, 52.03),
    "one round, sigma 1": (Everyone(), 1.0, 1, 1.442), "one round, sigma .75": (Everyone(), 0.75, 1, 3.115),
}  # fmt: skip


@pytest.mark.parametrize("name", GOLDEN)
def test_the_verified_numbers_come_out_of_the_derivation(name: str) -> None:
    sample, sigma, rounds, expected = GOLDEN[name]
    local = DpSgd(steps=38, batch=FixedSize(16), records=600, law=Gaussian(2 * sigma))
    proof = record_round(sample=sample, local=local).derive(population=100, dimension=10).primary
    for event in (proof.world, proof.server):
        assert event is not None
        found = accountant("auto").epsilon(Repeated(event, rounds), 1e-5)
        assert found == pytest.approx(expected, abs=0.006 if expected < 20 else 0.02)


def test_poisson_batches_under_add_remove_cost_less() -> None:
    local = DpSgd(steps=38, batch=Poisson(16 / 600), records=600, law=Gaussian(2.0))
    proof = record_round(sample=Everyone(), local=local).derive(population=100, dimension=10).primary
    assert accountant("auto").epsilon(Repeated(proof.world, 93), 1e-5) == pytest.approx(3.66, abs=0.01)


def test_both_units_where_both_are_defined() -> None:
    round = Round(
        sample=Poisson(0.1),
        local=dp_sgd(law=Gaussian(2.0)),
        client=(Clip(0.5),),
        aggregate=Mean(over=3.0),
        server=(AddNoise(Gaussian(1.5)),),
    )
    for unit in Unit:
        units = replace(round, unit=unit).derive(population=30, dimension=5).units
        assert rounded(units[Unit.CLIENT].world) == PoissonSampled(0.1, GaussianEvent(1.5))
        assert units[Unit.CLIENT].server is None
        assert units[Unit.RECORD].world == Mixture(0.1, Repeated(FixedSizeSampled(0.4, GaussianEvent(1.0)), 3))
        assert units[Unit.RECORD].server == units[Unit.RECORD].world
    reached = [replace(round, unit=unit).derive(population=30, dimension=5).primary.before[5] for unit in Unit]
    assert [claim.l2 for claim in reached] == [0.5 / 3, 0.5 / 3]  # the noise that is drawn is the same for both
    last = run(replace(round, unit=Unit.RECORD), rounds=2)
    assert last.guarantee(1e-5, Unit.RECORD, server=True).epsilon is not None
    assert last.guarantee(1e-5, Unit.CLIENT).epsilon is not None
    assert last.guarantee(1e-5, Unit.CLIENT, server=True).epsilon is None


def rounded(event: PoissonSampled) -> PoissonSampled:
    assert isinstance(event.event, GaussianEvent)
    return replace(event, event=GaussianEvent(round(event.event.ratio, 12)))


def test_noise_without_a_clip_has_no_size() -> None:
    with pytest.raises(UnsoundRound, match="would be infinite"):
        record_round(aggregate=Mean(over=3.0), server=(AddNoise(Gaussian(1.5)),))


@pytest.mark.parametrize("recipe", ["prifedsync", "perturb-model"])
@pytest.mark.parametrize("sample", ["poisson:0.3", "everyone"])
def test_recipes_find_their_noise(recipe: str, sample: str) -> None:
    round = build(recipe, 50, {"sample": sample, "clip": 0.5})
    found = calibrate(round, epsilon=3.0, delta=1e-5, rounds=20, population=50)
    spent = accountant("auto").epsilon(Repeated(found.derive(population=50, dimension=9).primary.world, 20), 1e-5)
    assert 2.997 < spent <= 3.0
    noise, clip = noise_and_clip(found)
    assert noise != 2.0 and clip == 0.5
    assert found.derive(population=50, dimension=9).primary.stddev == pytest.approx((noise or 0.0) * 0.5)


def test_perturbing_the_model_costs_a_record_what_it_costs_the_client() -> None:
    units = build("perturb-model", 50, {}).derive(population=50, dimension=9).units
    assert units[Unit.RECORD].world == units[Unit.CLIENT].world == Mixture(0.5, GaussianEvent(1.0))
    training = build("prifedsync", 50, {}).derive(population=50, dimension=9).primary.world
    costs = [accountant("auto").epsilon(Repeated(event, 50), 1e-5) for event in (training, units[Unit.RECORD].world)]
    assert costs[1] > 4 * costs[0]  # at the same noise over the clip norm: 38 noisy steps are cheaper than one message


def test_prifedsync_takes_its_options() -> None:
    round = build("prifedsync", 50, {"optimizer": "adam", "lr": 0.01, "helper_weight": 1.0, "server_lr": 0.5})
    assert round.personal is None
    assert round.local.optimizer == Adam(0.01, beta2=0.999, epsilon=1e-8)
    assert round.optimizer == GradientDescent(0.5)
    assert build("prifedsync", 50, {}).personal is not None
    with pytest.raises(BadValue, match="from 0 to 1"):
        build("prifedsync", 50, {"helper_weight": 1.5})
