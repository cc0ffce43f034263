"""The engine: what a round computes, whatever the plan, the order and the data."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from sfumato import (
    Adam,
    AddNoise,
    Clip,
    Everyone,
    FixedSize,
    Gaussian,
    Key,
    Mean,
    Momentum,
    Objective,
    Plan,
    Poisson,
    Population,
    PostProcess,
    PublicData,
    RealisedMean,
    Records,
    Round,
    SfumatoError,
    Sgd,
    UnsoundRound,
    classification,
)  # fmt: skip
from sfumato.chacha import Keystream
from sfumato.engine.checkpoint import CHECKPOINT, Checkpoint
from sfumato.engine.clients import Clients
from sfumato.engine.cohort import Cohort
from sfumato.engine.simulate import simulate
from sfumato.engine.simulation import _BY_CHANCE, _RESUMED
from sfumato.errors import BadValue, BudgetExceeded, DataError, LedgerError
from sfumato.local.batches import epoch_batches
from sfumato.local.penalty import NormPenalty
from sfumato.local.sharpness import SharpnessAware
from sfumato.local.task import Task
from sfumato.pieces.protocol import ClientPiece, LocalPiece
from sfumato.update import Layout
from tests.helpers import dp_round, linear, made_up_population

UNEVEN = [5, 1, 0, 12, 7, 3, 9, 4]


def last(simulation: Any) -> Any:
    result = None
    for result in simulation:
        pass
    return result


def ready(round: Round, population: Population | None = None, module: nn.Module | None = None, **options: Any) -> Any:
    settings: dict[str, Any] = {"rounds": 3, "seed": 0, "plan": Plan(), **options}
    return simulate(round, population or made_up_population(UNEVEN), module or linear(), classification(3), **settings)


def run(round: Round, population: Population | None = None, module: nn.Module | None = None, **options: Any) -> Any:
    return last(ready(round, population, module, **options))


def killed_in_its_second_round(simulation: Any, folder: Path) -> torch.Tensor:
    """As if killed after reserving round 2 and before storing it; gives what round 2 released."""
    steps = iter(simulation)
    next(steps)
    checkpoint = Checkpoint.read(folder)
    second: torch.Tensor = next(steps).params
    assert checkpoint is not None
    steps.close()
    checkpoint.write(folder, simulation.ledger, simulation.spending.run)
    return second


def norm_of_difference(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).norm() / b.norm())


def mlp_with_everything() -> nn.Module:
    torch.set_grad_enabled(True)
    with Key.from_seed(4).seeding_torch():
        return nn.Sequential(
            nn.Linear(6, 16), nn.ReLU(), nn.LayerNorm(16), nn.Dropout(0.3), nn.Linear(16, 3, bias=False), nn.Tanh()
        )


class OwnParameters(nn.Module):
    """Uses its parameters in a way of its own, one of them without dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.matrix = nn.Parameter(torch.linspace(-1, 1, 18).reshape(6, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scale * (x @ self.matrix)


@pytest.mark.parametrize("module", [linear(), mlp_with_everything(), OwnParameters()], ids=["linear", "mlp", "own"])
@pytest.mark.parametrize(
    "local",
    [
        Sgd(lr=0.1, epochs=2, batch_size=4),
        Sgd(
            lr=0.1, steps=5, batch_size=3, momentum=0.9, weight_decay=0.01, penalties=(NormPenalty(0.1),), lr_decay=0.9
        ),
        Sgd(
            lr=0.1,
            epochs=2,
            batch_size=4,
            gradient=SharpnessAware(0.3),
            penalties=(NormPenalty(2.0, 0.05),),
            project=0.4,
        ),
    ],
    ids=["epochs", "steps", "sharpness"],
)
def test_every_plan_gives_the_same(module: nn.Module, local: Sgd) -> None:
    round = dp_round(local=local)
    reference = run(round, module=module).params
    for plan in (Plan(workers=2), Plan("stacked", 3), Plan("stacked", 64), Plan("vmapped", 3)):
        if plan.path == "stacked" and isinstance(module, OwnParameters):
            continue
        if plan.path == "vmapped" and any(isinstance(part, nn.Dropout) for part in module.modules()):
            continue
        assert norm_of_difference(run(round, module=module, plan=plan).params, reference) < 1e-5, plan


def test_the_engine_chooses_a_plan_that_works() -> None:
    for module in (linear(), mlp_with_everything(), OwnParameters()):
        chosen = run(dp_round(), module=module, plan=None).params
        assert norm_of_difference(chosen, run(dp_round(), module=module).params) < 1e-5


def test_convolutions_run_one_after_another() -> None:
    module = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3))
    clients = [
        (Key.from_seed(n).normal(n + 1, 1, 8, 8).float(), torch.zeros(n + 1, dtype=torch.int64)) for n in range(4)
    ]
    population = Population.from_list(clients, name="images")
    chosen = simulate(dp_round(), population, module, classification(3), rounds=2, seed=0)
    assert chosen.start.plan.path == "loop"
    assert norm_of_difference(last(chosen).params, run(dp_round(), population, module, rounds=2).params) < 1e-5


def test_without_noise_and_clip_it_is_plain_fedavg() -> None:
    population, module = made_up_population(UNEVEN), linear()
    local = Sgd(lr=0.1, epochs=2, batch_size=4, momentum=0.5, weight_decay=0.01)
    round = Round(sample=FixedSize(5), local=local, aggregate=RealisedMean(by="examples"), nonprivate=True)
    simulation = simulate(round, population, module, classification(3), rounds=3, seed=0, plan=Plan("stacked", 4))
    ours = last(simulation).params
    assert torch.allclose(ours, slow_fedavg(simulation, population, module, local), atol=1e-5)


def slow_fedavg(simulation: Any, population: Population, module: nn.Module, local: Sgd) -> torch.Tensor:
    """The slow twin: torch.optim.SGD, one client after another, with the same batches."""
    weight, bias = module.weight.detach().clone(), module.bias.detach().clone()  # type: ignore[union-attr, operator]
    for number in range(3):
        keys = simulation.randomness.keys(number)
        ids = simulation.job.slots.round.sample.cohort(population.size, keys.turn(number))
        total, count = [torch.zeros_like(weight), torch.zeros_like(bias)], 0
        for client in ids.tolist():
            records = population.client(client).train
            own = nn.Linear(6, 3)
            own.load_state_dict({"weight": weight, "bias": bias})
            optimizer = torch.optim.SGD(own.parameters(), lr=0.1, momentum=0.5, weight_decay=0.01)
            batches = keys.client(client, round=number).child("batches")
            for batch in epoch_batches(records.count, local.batch_size, local.epochs, None, batches):
                chosen = torch.from_numpy(batch[batch >= 0])
                optimizer.zero_grad()
                F.cross_entropy(own(records.x[chosen]), records.y[chosen]).backward()
                optimizer.step()
            total[0] += records.count * (own.weight.detach() - weight)
            total[1] += records.count * (own.bias.detach() - bias)
            count += records.count
        weight, bias = weight + total[0] / count, bias + total[1] / count
    return torch.cat([weight.flatten(), bias])


def test_the_noise_is_that_of_the_derivation() -> None:
    quiet = Clip(1e-9)
    round = dp_round(client=(quiet,), server=(AddNoise(Gaussian(3e9)),), aggregate=Mean(over=2.0))
    module = linear(500, 40)
    population = made_up_population([3, 3, 3], features=500, classes=40)
    simulation = simulate(round, population, module, classification(40), rounds=1, seed=1, plan=Plan())
    start = simulation.start.params
    moved = (last(simulation).params - start).double()
    assert simulation.derivation.primary.stddev == pytest.approx(1.5)
    assert float(moved.std()) == pytest.approx(1.5, rel=0.02)


@pytest.mark.parametrize("optimizer", [Momentum(lr=0.5), Adam(lr=0.1)], ids=["momentum", "adam"])
def test_resume_goes_on_to_the_same_result(tmp_path: Path, optimizer: Any) -> None:
    round = dp_round(optimizer=optimizer)
    whole = run(round, rounds=6, folder=tmp_path / "whole").params
    run(round, rounds=2, folder=tmp_path / "parts")
    resumed = run(round, rounds=6, folder=tmp_path / "parts", resume=True).params
    assert torch.equal(whole, resumed)


def test_nothing_that_noise_is_drawn_from_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PRIVACY R5: what the system gave for a round is in no file, nor is anything from which it could be computed."""
    given: list[bytes] = []
    urandom = os.urandom

    def spy(size: int) -> bytes:
        given.append(urandom(size))
        return given[-1]

    monkeypatch.setattr("sfumato.key.os.urandom", spy)
    simulation = ready(dp_round(), seed=None, rounds=3, folder=tmp_path)
    last(simulation)
    secrets = [one for one in given if len(one) == 32]
    assert len(secrets) == 4, "one for each round, and one for the start"
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files and not any(
        form in path.read_bytes() for path in files for one in secrets for form in (one, one.hex().encode())
    )


def test_two_runs_without_a_seed_differ() -> None:
    assert not torch.equal(run(dp_round(), seed=None).params, run(dp_round(), seed=None).params)


def test_a_round_that_is_begun_again_draws_fresh_noise_and_counts(tmp_path: Path) -> None:
    first = ready(dp_round(), seed=None, folder=tmp_path)
    second, before = killed_in_its_second_round(first, tmp_path), set(first.guarantee(1e-3).assumptions)
    again = ready(dp_round(), seed=None, folder=tmp_path, resume=True, plan=None)
    assert not torch.equal(next(iter(again)).params, second)
    assert [(entry.round, entry.attempt) for entry in again.ledger.entries()] == [(0, 0), (1, 0), (1, 1)]
    assert again.ledger.spent(first.derivation.primary.unit).world.times == 3
    said = again.guarantee(1e-3).assumptions
    assert {_RESUMED, _BY_CHANCE} <= set(said) and not {_RESUMED, _BY_CHANCE} & before


def test_a_run_that_is_resumed_where_it_stopped_says_that_of_copies_alone(tmp_path: Path) -> None:
    last(ready(dp_round(), seed=None, rounds=2, folder=tmp_path))
    again = ready(dp_round(), seed=None, rounds=4, folder=tmp_path, resume=True)
    last(again)
    said = again.guarantee(1e-3).assumptions
    assert _RESUMED in said and _BY_CHANCE not in said and again.ledger.count == 4


def test_a_simulation_that_was_killed_in_a_round_draws_the_same_and_counts_it_once(tmp_path: Path) -> None:
    second = killed_in_its_second_round(ready(dp_round(), folder=tmp_path), tmp_path)
    again = ready(dp_round(), folder=tmp_path, resume=True, plan=None)
    assert torch.equal(next(iter(again)).params, second)
    assert len(again.ledger.entries()) == 2


def test_data_that_changed_in_place_get_fresh_noise(tmp_path: Path) -> None:
    """The difference of two results from the same noise would hold none: with a tiny clip, they differ by noise alone."""
    clients = [(torch.randn(4, 6), torch.zeros(4, dtype=torch.int64)) for _ in range(8)]
    round, population = dp_round(client=(Clip(1e-9),), server=(AddNoise(Gaussian(1e9)),)), Population.from_list(clients)
    first = ready(round, population, seed=None, folder=tmp_path)
    moved = killed_in_its_second_round(first, tmp_path) - Checkpoint.read(tmp_path).params  # type: ignore[union-attr]
    clients[0][0].mul_(-1.0)
    again = ready(round, population, seed=None, folder=tmp_path, resume=True)
    other = next(iter(again)).params - again.start.params
    assert abs(float(torch.corrcoef(torch.stack([moved, other]))[0, 1])) < 0.9
    assert again.ledger.count == 3


def test_a_lambda_as_loss_and_a_model_of_a_notebook_resume(tmp_path: Path) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(6, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.layer(x))

    loss = Objective(lambda outputs, y: F.cross_entropy(outputs, y, reduction="none"))

    def begun(rounds: int, **more: Any) -> Any:
        settings: dict[str, Any] = {"rounds": rounds, "plan": Plan(), "folder": tmp_path, **more}
        return simulate(dp_round(), made_up_population(UNEVEN), Model(), loss, **settings)

    last(begun(2))
    again = begun(4, resume=True)
    assert again.start.round == 2 and last(again).round == 4


def test_a_forked_process_is_refused_before_it_reserves(tmp_path: Path) -> None:
    simulation = ready(dp_round(), seed=None, rounds=3, folder=tmp_path)
    steps = iter(simulation)
    next(steps)
    child = os.fork()
    if child == 0:
        try:
            next(steps)
        except UnsoundRound:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert simulation.ledger.count == 1
    assert len(list(steps)) == 2 and simulation.ledger.count == 3 and not simulation.ledger.damage()


def test_checkpoints_for_several_rounds_make_these_count_twice(tmp_path: Path) -> None:
    steps = iter(ready(dp_round(), seed=None, rounds=9, folder=tmp_path, checkpoint_every=4))
    for _ in range(7):
        next(steps)
    (tmp_path / "copy").mkdir()
    for path in tmp_path.glob("ledger.sqlite*"):
        shutil.copy(path, tmp_path / "copy")  # as it lies there when the process is killed
    steps.close()
    again = ready(dp_round(), seed=None, rounds=9, folder=tmp_path / "copy", resume=True)
    assert again.start.round == 4
    last(again)
    assert again.ledger.count == 12 and {entry.attempt for entry in again.ledger.entries()} == {0, 3}
    unbroken = ready(dp_round(), seed=None, rounds=9, folder=tmp_path, resume=True)
    assert unbroken.start.round == 7, "who breaks off stores what was shown"


def test_a_large_checkpoint_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run(dp_round(optimizer=Adam(lr=0.1)), rounds=5, folder=tmp_path / "small").params
    assert not (tmp_path / "small" / CHECKPOINT).exists()
    monkeypatch.setattr("sfumato.engine.checkpoint._SMALL", 100)
    run(dp_round(optimizer=Adam(lr=0.1)), rounds=2, folder=tmp_path / "large")
    assert (tmp_path / "large" / CHECKPOINT).exists()
    assert torch.equal(
        run(dp_round(optimizer=Adam(lr=0.1)), rounds=5, folder=tmp_path / "large", resume=True).params, whole
    )
    found = Checkpoint.read(tmp_path / "large")
    assert found is not None and found.round == 5


def test_a_run_without_its_ledger_cannot_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sfumato.engine.checkpoint._SMALL", 100)
    run(dp_round(), rounds=2, folder=tmp_path)
    for file in tmp_path.glob("ledger.sqlite*"):
        file.unlink()
    with pytest.raises(LedgerError):
        run(dp_round(), rounds=4, folder=tmp_path, resume=True)


def test_an_existing_run_is_not_overwritten(tmp_path: Path) -> None:
    run(dp_round(), folder=tmp_path)
    with pytest.raises(BadValue, match="already holds a run"):
        run(dp_round(), folder=tmp_path)
    with pytest.raises(BadValue, match="another run"):
        run(dp_round(client=(Clip(2.0),)), folder=tmp_path, resume=True)


def test_an_empty_cohort_still_releases_noise_and_counts() -> None:
    simulation = ready(dp_round(sample=Poisson(1e-6)), rounds=2)
    start = simulation.start.params
    assert not torch.equal(last(simulation).params, start)
    assert len(simulation.ledger.entries()) == 2
    assert simulation.guarantee(1e-12).epsilon > 0


def test_broken_clients_cannot_pass_the_clip() -> None:
    clients = [
        (torch.full((4, 6), value), torch.zeros(4, dtype=torch.int64))
        for value in (1.0, float("nan"), float("inf"), 1e38)
    ]
    population = Population.from_list(clients, name="broken")
    for plan in (Plan(), Plan("stacked", 4)):
        result = run(dp_round(sample=Everyone()), population, plan=plan)
        assert bool(result.params.isfinite().all())


def test_without_a_clip_a_broken_client_stops_the_run() -> None:
    clients = [(torch.full((4, 6), float("nan")), torch.zeros(4, dtype=torch.int64))]
    round = Round(sample=Everyone(), local=Sgd(lr=0.1, epochs=1), aggregate=RealisedMean(), nonprivate=True)
    with pytest.raises(DataError, match="no longer finite"):
        run(round, Population.from_list(clients, name="broken"))


def test_one_client_with_a_wrong_shape_is_named() -> None:
    good = (torch.ones(3, 6), torch.zeros(3, dtype=torch.int64))
    bad = (torch.ones(3, 5), torch.zeros(3, dtype=torch.int64))
    with pytest.raises(DataError, match=r"client 2: inputs have shape \(5,\)"):
        run(dp_round(sample=Everyone()), Population.from_list([good, good, bad], name="mixed"))


@pytest.mark.parametrize("plan", [Plan(), Plan("stacked", 8), Plan(workers=2)])
def test_one_client_with_a_wrong_label_is_named(plan: Plan) -> None:
    good = (torch.ones(3, 6), torch.zeros(3, dtype=torch.int64))
    bad = (torch.ones(3, 6), torch.full((3,), 17))
    with pytest.raises(DataError, match="client 1, record 0: a label is not among 0 to 2"):
        run(dp_round(sample=Everyone()), Population.from_list([good, bad, good], name="labels"), plan=plan)


def test_a_loader_that_raises_is_named() -> None:
    def load(client: int) -> Any:
        if client == 3:
            raise OSError("disk on fire")
        return torch.ones(3, 6), torch.zeros(3, dtype=torch.int64)

    with pytest.raises(DataError, match="client 3 of 'hot' could not be loaded: OSError"):
        run(dp_round(sample=Everyone()), Population.from_function(load, 5, "hot"))


def test_what_failed_was_still_reserved(tmp_path: Path) -> None:
    bad = Population.from_list([(torch.ones(3, 6), torch.full((3,), 17))], name="bad")
    simulation = ready(dp_round(sample=Everyone()), bad, rounds=2, folder=tmp_path)
    with pytest.raises(DataError):
        last(simulation)
    assert len(simulation.ledger.entries()) == 1
    assert not simulation.ledger.entries()[0].settled


def test_a_budget_is_a_hard_stop_before_the_round() -> None:
    simulation = ready(dp_round(), rounds=50, budget=(4.0, 1e-2))
    with pytest.raises(BudgetExceeded, match="would bring epsilon to"):
        last(simulation)
    spent = simulation.guarantee(1e-2).epsilon
    assert 2.0 < spent <= 4.0
    assert len(simulation.ledger.entries()) < 50


def test_batchnorm_is_refused_with_its_fix() -> None:
    module = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    with pytest.raises(UnsoundRound, match="replace_batchnorm"):
        run(dp_round(), module=module)


def test_a_scalar_loss_is_refused_before_anything_is_spent(tmp_path: Path) -> None:
    scalar = Objective(loss=lambda outputs, y: F.cross_entropy(outputs, y))
    with pytest.raises(BadValue, match="one number per record"):
        simulate(dp_round(), made_up_population(UNEVEN), linear(), scalar, rounds=1, seed=0, folder=tmp_path)
    assert not (tmp_path / "ledger.sqlite").exists()


@pytest.mark.parametrize("plan", [None, Plan()])
def test_a_model_too_large_is_refused_before_it_is_copied(plan: Plan | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sysconf", lambda name: {"SC_AVPHYS_PAGES": 10, "SC_PAGE_SIZE": 10}[name])
    monkeypatch.setattr("copy.deepcopy", lambda module: pytest.fail("copied"))
    with pytest.raises(BadValue, match="GiB are free"):
        run(dp_round(), plan=plan)


class Viewing(nn.Module):
    """Views what a convolution gives, and drops all of a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.first, self.last = nn.Conv2d(1, 4, 2), nn.Linear(8, 4), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.conv(x.view(-1, 1, 2, 3))
        return torch.as_tensor(self.last(nn.functional.dropout(self.first(h.view_as(h.flatten(1))), 1.0)))


def test_a_view_like_another_and_a_dropout_of_everything_train() -> None:
    local = Sgd(lr=0.3, epochs=1, batch_size=4)
    result = run(dp_round(sample=Everyone(), local=local), module=Viewing(), diagnostics=True)
    norms = result.diagnostics["norms"]
    assert all(norm > 0.0 for norm, size in zip(norms, UNEVEN, strict=True) if size)  # the last bias is trained


class Writes(nn.Module):
    """Writes to what a convolution gave by way of a view, or to the view by way of what the convolution gave."""

    def __init__(self, way: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.way, self.conv, self.last = way, nn.Conv2d(1, 4, 2), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.way(self.conv(x.view(-1, 1, 2, 3)))
        return torch.as_tensor(self.last(torch.flatten(input=h, start_dim=1)))


def by_view(h: torch.Tensor) -> torch.Tensor:
    h.view(len(h), -1).mul_(3.0)
    return h


def by_flat(h: torch.Tensor) -> torch.Tensor:
    nn.functional.relu(torch.flatten(h, 1)[:, 2:], inplace=True)
    return h + 1.0


def by_image(h: torch.Tensor) -> torch.Tensor:
    flat = h.reshape(-1, 8)
    h += 2.0
    return flat


def by_both(h: torch.Tensor) -> torch.Tensor:
    same, flat = h.contiguous(), h.flatten(1)
    same.mul_(2.0)
    flat[:, 0] = 5.0
    return same + h


@pytest.mark.parametrize("way", [by_view, by_flat, by_image, by_both])
def test_what_is_written_to_a_view_of_an_image_is_written_to_the_image(
    way: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    module = Writes(way)
    x, y = Key.from_seed(0).normal(4, 6).float(), torch.arange(4) % 3
    layout = Layout.of(module)
    row = layout.row(module)
    task = Task(
        Plan().forward(module), layout, classification(3).loss, row, row[None], [Records(x, y)], [Key.from_seed(1)], 0
    )
    found = Sgd(lr=0.5, steps=1, batch_size=4).train(task)
    nn.functional.cross_entropy(module(x), y).backward()
    expected = torch.cat([-0.5 * p.grad.flatten() for p in module.parameters() if p.grad is not None])
    torch.testing.assert_close(found[0], expected, rtol=1e-5, atol=1e-6)


def test_a_frozen_part_stays_out_of_the_row() -> None:
    module = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    module[0].requires_grad_(False)
    before = module[0].weight.clone()
    result = run(dp_round(), module=module)
    assert result.params.numel() == 8 * 3 + 3
    assert torch.equal(result.module[0].weight, before)
    assert not torch.equal(result.module[2].weight, module[2].weight)


def test_public_data_is_no_population() -> None:
    public = PublicData("test", Records(torch.ones(3, 6), torch.zeros(3, dtype=torch.int64)))
    with pytest.raises(Exception, match=r"needs a Population|sfumato.data.population.Population"):
        simulate(dp_round(), public, linear(), classification(3), rounds=1)  # type: ignore[arg-type]


def test_a_model_with_its_own_random_numbers_is_refused() -> None:
    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(6, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x + torch.randn_like(x))  # type: ignore[no-any-return]

    with pytest.raises(SfumatoError, match="draws random numbers"):
        run(dp_round(sample=Everyone()), module=Noisy())


def test_no_key_is_drawn_from_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[bytes] = []

    class Spy(Keystream):
        def __init__(self, key: bytes) -> None:
            drawn.append(key)
            super().__init__(key)

    simulation = ready(dp_round(), module=mlp_with_everything(), plan=Plan("stacked", 3))
    monkeypatch.setattr("sfumato.key.Keystream", Spy)
    last(simulation)
    assert len(drawn) > 10
    assert len(drawn) == len(set(drawn))


def test_a_clients_work_depends_on_neither_cohort_nor_order() -> None:
    population, module = made_up_population(UNEVEN), linear()
    simulation = simulate(dp_round(), population, module, classification(3), rounds=1, seed=0, plan=Plan("stacked", 8))
    params, keys = simulation.start.params, simulation.randomness.keys(0)
    cohort = Cohort(Clients(simulation.job, population, Plan("stacked", 8)))
    opening = cohort.open(params, 0, keys.opening(0))

    def rows(ids: list[int]) -> torch.Tensor:
        return cohort.total(params, ids, opening, keys.clients).rows

    assert torch.allclose(rows([4]), rows([3, 4]) - rows([3]), atol=1e-6)
    forwards, backwards = rows([0, 3, 4, 6]), rows([6, 4, 3, 0])
    assert torch.allclose(forwards, backwards, atol=1e-6)


@pytest.mark.parametrize("by", ["clients", "examples"])
def test_messages_add_up_exactly_however_many_wait(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from sfumato.engine import slots, workers

    population, module = made_up_population(UNEVEN), linear()
    local = Sgd(lr=0.1, epochs=2, batch_size=4)
    round = Round(sample=FixedSize(5), local=local, aggregate=RealisedMean(by=by), nonprivate=True)
    found = []
    for waiting, part, rows in ((0, 2**15, 2**13), (2**25, 2**15, 2**13), (200, 5, 4)):
        monkeypatch.setattr(workers, "_WAITING", waiting)
        monkeypatch.setattr(workers, "_PART", part)
        monkeypatch.setattr(slots, "_PART", rows)
        for plan in (Plan(), Plan(workers=2), Plan("stacked", 3)):
            found.append((plan.path, run(round, population, module, plan=plan).params))
    for path in ("loop", "stacked"):
        first, *others = [params for name, params in found if name == path]
        assert all(torch.equal(first, other) for other in others)


@dataclass(frozen=True)
class OneBuffer(LocalPiece):
    """Local training of a user's own, which gives back the same tensor again and again."""

    buffer: torch.Tensor

    def carry(self, claim: Any) -> Any:
        return claim

    def train(self, task: Any) -> torch.Tensor:
        self.buffer.zero_()
        self.buffer[torch.arange(len(task.ids)), list(task.ids)] = 5.0
        return self.buffer[: len(task.ids)]


@dataclass(frozen=True)
class Spread(ClientPiece):
    """A piece that gives back rows whose coordinates share their memory."""

    def carry(self, claim: Any) -> Any:
        return claim

    def __call__(self, rows: torch.Tensor, context: Any) -> torch.Tensor:
        return rows.mean(1, keepdim=True).expand_as(rows)


@pytest.mark.parametrize("plan", [Plan(), Plan("stacked", 3)], ids=str)
def test_every_client_counts_once_whoever_owns_its_row(plan: Plan) -> None:
    buffer = torch.zeros(8, 21)
    for pieces, each in (((Clip(1.0),), 1.0), ((Spread(), Clip(1.0)), 8 / 21**0.5)):
        round = dp_round(sample=Everyone(), local=OneBuffer(buffer), client=pieces, aggregate=Mean(1))
        simulation = simulate(round, made_up_population(UNEVEN), linear(), classification(3), rounds=1, plan=plan)
        cohort = Cohort(Clients(simulation.job, simulation.population, plan))
        params, keys = simulation.start.params, simulation.randomness.keys(0)
        total = cohort.total(params, range(8), cohort.open(params, 0, keys.opening(0)), keys.clients)
        cohort.close()
        assert torch.allclose(total.rows[:8], torch.full((8,), each, dtype=torch.float64), atol=1e-4)


def test_a_million_clients_cost_nothing_until_called() -> None:
    calls: list[int] = []

    def load(client: int) -> Any:
        calls.append(client)
        return torch.ones(2, 6), torch.zeros(2, dtype=torch.int64)

    population = Population.from_function(load, 1_000_000, "million")
    run(dp_round(sample=Poisson(1e-5), aggregate=Mean(10)), population, rounds=2)
    assert len(calls) < 100


def test_diagnostics_are_there_only_when_asked_for() -> None:
    assert run(dp_round()).diagnostics is None
    shown = run(dp_round(), diagnostics=True).diagnostics
    assert len(shown["norms"]) == shown["cohort"]


def test_the_global_generator_is_left_alone() -> None:
    before = torch.random.get_rng_state()
    run(dp_round(), module=mlp_with_everything(), plan=None)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_post_processing_is_part_of_the_release() -> None:
    zeroed = dp_round(server=(AddNoise(Gaussian(1.0)), PostProcess(torch.zeros_like)))
    simulation = ready(zeroed, rounds=2)
    assert torch.equal(last(simulation).params, simulation.start.params)


def test_the_cohort_size_is_that_of_the_sampler() -> None:
    shown = run(dp_round(sample=FixedSize(3)), diagnostics=True).diagnostics
    assert shown["cohort"] == 3


@pytest.mark.parametrize("rounds", [0, -1, 1.5, True])
def test_rounds_must_be_a_number_of_rounds(rounds: Any) -> None:
    with pytest.raises(Exception, match="rounds"):
        run(dp_round(), rounds=rounds)


def test_numpy_arrays_will_do() -> None:
    clients = [(np.ones((3, 6)), np.zeros(3, dtype=int)) for _ in range(3)]
    assert run(dp_round(), Population.from_list(clients, name="numpy")).params.isfinite().all()


@pytest.mark.parametrize("whose", ["loader", "training"])
def test_an_error_names_the_client_to_the_operator_and_says_that_this_is_not_private(whose: str) -> None:
    """With a trusted server nothing goes on without the client: what ends the run is for the operator's eyes (PRIVACY R15)."""

    def load(number: int) -> tuple[torch.Tensor, torch.Tensor]:
        if number == 2 and whose == "loader":
            raise OSError("secret")
        y = torch.zeros(4, dtype=torch.int64)
        return torch.ones(4, 6), y + 9 if number == 2 else y

    people = Population.from_function(load, 4, "odd")
    with pytest.raises(DataError) as caught:
        list(simulate(dp_round(sample=Everyone()), people, linear(), classification(3), rounds=1, seed=0))
    said = str(caught.value)
    assert "client 2" in said and "Not private" in said and "secret" not in said
