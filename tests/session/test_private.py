"""A loop of one's own: what it trains is what the recipe trains, what it states is what the recipe states."""

from __future__ import annotations

import copy
import functools
import os
import pickle
import random
import warnings
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, WeightedRandomSampler

from sfumato import Ledger, Objective, Population, Session, Unit, classification, private, recipes, simulate
from sfumato.account import accountant
from sfumato.errors import BadValue, BudgetExceeded, DataError, LedgerError, SfumatoError, UnsoundRound
from sfumato.key import Key
from sfumato.ledger.basis import FROM_RELEASES
from tests.helpers import unchecked

RECORDS, INPUTS, CLASSES = 40, 5, 3
DELTA = 1e-3


def holder(records: int = RECORDS) -> tuple[torch.Tensor, torch.Tensor]:
    key = Key.from_seed(3)
    y = torch.from_numpy((key.child("y").integers(records) % CLASSES).astype("int64"))
    return key.child("x").normal(records, INPUTS).float(), y


def model() -> nn.Module:
    with Key.from_seed(1).seeding_torch():
        return nn.Sequential(nn.Linear(INPUTS, 4), nn.Tanh(), nn.Linear(4, CLASSES))


def row(module: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in module.parameters()])


def session(module: nn.Module | None = None, data: Any = None, **changed: Any) -> Session:
    module = model() if module is None else module
    options: dict[str, Any] = {"batch_size": 10, "records": RECORDS, "steps": 6, "noise_multiplier": 1.0, "seed": 0}
    options |= changed
    rate = options.pop("lr", 1.0)
    optimizer = options.pop("optimizer", None) or torch.optim.SGD(module.parameters(), lr=rate)
    loss = options.pop("loss", classification(CLASSES))
    with unchecked():
        return private(module, optimizer, holder() if data is None else data, loss, **options)


def test_it_trains_what_the_recipe_trains() -> None:
    """The same seed, keys and batches: plain SGD in the loop, and the recipe's in the engine."""
    ours = session(clip=0.5)
    for _ in ours:
        pass
    options = {"batch": "poisson:0.25", "records": RECORDS, "clip": 0.5, "optimizer": "sgd", "lr": 1.0}
    population = Population.from_list([holder()], name="records")
    *_, last = simulate(
        recipes.build("dp-sgd", 1, options), population, model(), classification(CLASSES), rounds=6, seed=0
    )
    assert torch.equal(row(ours.module), last.params)
    assert not torch.equal(last.params, row(model()))
    assert ours.epsilon(DELTA) == last.epsilon(DELTA)
    more = set(ours.guarantee(DELTA).assumptions) - set(last.guarantee(DELTA).assumptions)
    (beginning,) = more
    assert "began with nothing" in beginning
    assert ours.guarantee(DELTA).rows() == last.guarantee(DELTA).rows()


class Both(nn.Module):
    """Takes two inputs by name, and answers as libraries of language models do."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = model()

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"logits": self.inside(torch.cat([left, right], 1))}


def in_two(x: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"left": x[:, :2], "right": x[:, 2:]}


def test_records_of_several_inputs_train_what_the_recipe_trains() -> None:
    """A pair, and a DataLoader over dictionaries: the user's own module moves, and its names are its own."""
    x, y = holder()
    items = [{"left": one[:2], "right": one[2:], "labels": label} for one, label in zip(x, y, strict=True)]
    options = {"batch": "poisson:0.25", "records": RECORDS, "optimizer": "sgd", "lr": 1.0}
    population = Population.from_list([(in_two(x), y)], name="records")
    *_, last = simulate(
        recipes.build("dp-sgd", 1, options), population, Both(), classification(CLASSES), rounds=6, seed=0
    )
    for data in ((in_two(x), y), DataLoader(items, 10)):  # type: ignore[arg-type]  # a list is a data set
        ours = session(Both(), data)
        for progress in ours:
            pass
        assert torch.equal(row(ours.module), last.params) and not torch.equal(last.params, row(Both()))
        assert list(progress.module.state_dict()) == list(ours.module.state_dict())
        assert ours.guarantee(DELTA).rows() == last.guarantee(DELTA).rows()


def test_the_learning_rate_is_the_users_and_a_schedule_is_free() -> None:
    """Every other learning rate moves along the same first release."""
    module = model()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    run = session(module, optimizer=optimizer)
    before = row(module)
    run.step()
    gradient = torch.cat([p.grad.flatten() for p in module.parameters() if p.grad is not None])
    assert torch.allclose(row(module), before - 0.5 * gradient, atol=1e-6)
    scheduler.step()
    before = row(module)
    run.step()
    gradient = torch.cat([p.grad.flatten() for p in module.parameters() if p.grad is not None])
    assert torch.allclose(row(module), before - 0.25 * gradient, atol=1e-6)


def test_any_optimizer_learns() -> None:
    x, _ = holder(400)
    y = (x[:, 0] > 0).long()
    module = model()
    size = {"batch_size": 100, "records": 400, "steps": 60}
    budget = {"epsilon": 8.0, "delta": DELTA, "noise_multiplier": None}
    run = session(module, (x, y), optimizer=torch.optim.AdamW(module.parameters(), lr=0.05), **size, **budget)
    for _ in run:
        pass
    assert float((module(x).argmax(1) == y).float().mean()) > 0.85
    assert 7.9 < run.epsilon() <= 8.0


def test_the_guarantee_is_that_of_records_against_everyone() -> None:
    run = session(noise_multiplier=None, epsilon=2.0, delta=DELTA, steps=None, epochs=3)
    assert run.steps == 12 and len(run) == 12 and run.epsilon() == 0.0
    half = [step.epsilon(DELTA) for step in islice(run, 6)]
    assert run.taken == 6 and half[-1] == run.epsilon() < 2.0
    for _ in run:  # goes on where it was left
        pass
    found = run.guarantee()
    assert found.unit is Unit.RECORD and found.epsilon is not None and 1.995 < found.epsilon <= 2.0
    assert "the holder of the records is trusted" in found.assumptions
    assert not any("counted" in words for words in found.assumptions)
    with pytest.raises(BadValue, match="all 12 steps were taken"):
        run.step()


def test_a_count_that_nobody_declared_is_named() -> None:
    assert (
        "that there are 40 records is public: they were counted" in session(records=None).guarantee(DELTA).assumptions
    )


def test_an_empty_batch_releases_noise_and_counts() -> None:
    run = session(data=(torch.zeros(1, INPUTS), torch.zeros(1, dtype=torch.int64)), records=10**6, batch_size=1)
    before = row(run.module)
    run.step()
    assert float((row(run.module) - before).norm()) > 1.0
    assert run.epsilon(1e-9) > 0.0 and run._run.ledger.count == 1


class Pairs(Dataset[Any]):
    def __init__(self, item: Callable[[int], Any], count: int = RECORDS) -> None:
        self.item, self.count = item, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> Any:
        return self.item(number)


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(())


def test_data_come_as_tensors_dataset_or_loader() -> None:
    x, y = holder()
    given = {
        "tensors": {"data": (x, y)},
        "dataset": {"data": TensorDataset(x, y)},
        "items": {"data": Pairs(lambda number: (x[number], int(y[number])))},
        "arrays": {"data": Pairs(lambda number: (x[number].numpy(), y[number].numpy()))},
        "loader": {"data": DataLoader(TensorDataset(x, y), 10, shuffle=True, drop_last=True), "batch_size": None},
    }
    found = [session(**each) for each in given.values()]
    for run in found:
        run.step()
    assert all(torch.equal(row(run.module), row(found[0].module)) for run in found[1:])


ITEMS = TensorDataset(*holder())
REFUSED_DATA: dict[str, tuple[Any, str]] = {
    "weights": (DataLoader(ITEMS, 10, sampler=WeightedRandomSampler([1.0] * RECORDS, RECORDS)), "draws with Weighted"),
    "own batches": (DataLoader(ITEMS, batch_sampler=[[0, 1]]), "draws with list"),
    "collate": (DataLoader(ITEMS, 10, collate_fn=lambda items: items), "collate_fn of its own"),
    "other size": (DataLoader(ITEMS, 20), "but the DataLoader's is 20"),
    "stream": (Stream(), "a data set with a length"),
    "three parts": (TensorDataset(*holder(), torch.zeros(RECORDS)), "the data has 3 tensors"),
    "two inputs": (Pairs(lambda number: {"a": number, "b": number}), "has no 'y' to be learnt"),
    "nobody": (Pairs(lambda number: number, 0), "has no records"),
    "shapes": (Pairs(lambda number: (torch.zeros(number + 1), 0)), "cannot be one tensor"),
    "text": ((["a"] * RECORDS, holder()[1]), "holds no numbers. Give a tensor"),
}


@pytest.mark.parametrize("case", REFUSED_DATA)
def test_data_that_are_not_what_would_train_are_refused(case: str) -> None:
    data, words = REFUSED_DATA[case]
    with pytest.raises((BadValue, DataError), match=words):
        session(data=data)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no size": ({"batch_size": None}, "how large is a batch"),
    "large": ({"batch_size": 41}, "batch_size=41 of records=40"),
    "half a record": ({"records": 40.5}, "whole numbers"),
    "no length": ({"steps": None}, "Give one of them, e.g. epochs=3"),
    "two lengths": ({"epochs": 3}, "Give one of them, e.g. epochs=3"),
    "no epochs": ({"steps": None, "epochs": 0}, "a positive number of passes"),
    "no steps": ({"steps": 0}, "rounds=0"),
    "no noise": ({"noise_multiplier": None}, "how much noise"),
    "zero noise": ({"noise_multiplier": 0.0}, "positive and finite"),
    "two noises": ({"epsilon": 1.0}, "how much noise"),
    "mean": ({"loss": nn.CrossEntropyLoss()}, "reduction='none'"),
    "sgd": ({"optimizer": "sgd"}, "the optimizer is a str"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_meant_is_refused(case: str) -> None:
    changed, words = REFUSED[case]
    with pytest.raises(SfumatoError, match=words):
        session(**changed)


def test_batch_statistics_are_refused() -> None:
    module = nn.Sequential(nn.Linear(INPUTS, 4), nn.BatchNorm1d(4), nn.Linear(4, CLASSES))
    with pytest.raises(UnsoundRound, match="replace_batchnorm"):
        session(module)


def test_optimizers_that_are_not_of_the_module_are_refused() -> None:
    module = model()
    parameters = list(module.parameters())
    for optimizer, words in (
        (torch.optim.SGD(parameters[:2], lr=1.0), r"does not have 2\.weight, 2\.bias"),
        (torch.optim.SGD([*parameters, nn.Parameter(torch.zeros(2))], lr=1.0), "not the module's"),
        (torch.optim.LBFGS(parameters), "one noisy gradient is what a step pays for"),
    ):
        with pytest.raises(BadValue, match=words):
            session(module, optimizer=optimizer)
    parameters[0].requires_grad_(False)
    run = session(module, optimizer=torch.optim.SGD(parameters, lr=1.0))
    frozen = parameters[0].clone()
    run.step()
    assert torch.equal(parameters[0], frozen)


def test_a_batch_of_ones_own_is_refused_and_costs_nothing() -> None:
    run = session()
    with pytest.raises(BadValue, match=r"step\(\) takes no batch"):
        run.step(*holder())
    assert run.epsilon(DELTA) == 0.0


def test_gradients_set_by_hand_are_refused_and_cost_nothing() -> None:
    run = session()
    run.step()
    spent = run.epsilon(DELTA)
    run.optimizer.zero_grad(set_to_none=False)
    run.step()
    x, y = holder()
    nn.functional.cross_entropy(run.module(x), y).backward()
    spent, before = run.epsilon(DELTA), row(run.module)
    with pytest.raises(UnsoundRound, match="that the session did not put there"):
        run.step()
    assert run.epsilon(DELTA) == spent and torch.equal(row(run.module), before)
    run.optimizer.zero_grad()
    run.step()
    assert (
        run.taken == 3 and run.epsilon(DELTA) == spent
    )  # a plan: all its steps are accounted for from the first one on
    module = model()
    nn.functional.cross_entropy(module(x), y).backward()
    with pytest.raises(UnsoundRound, match="that the session did not put there"):
        session(module)


def test_parameters_moved_by_something_else_are_refused() -> None:
    run = session()
    run.step()
    with torch.no_grad():
        next(run.module.parameters()).add_(1.0)
    with pytest.raises(UnsoundRound, match="something else has changed them"):
        run.step()
    run = session()
    next(run.module.parameters()).requires_grad_(False)
    with pytest.raises(BadValue, match="other parameters are trainable"):
        run.step()


def test_a_step_is_paid_for_before_anything_of_it_can_be_seen() -> None:
    """The optimizer is the first that sees a release; what it finds in the ledger is that release."""
    seen: list[int] = []

    class Watching(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            seen.append(run._run.ledger.count)
            if len(seen) == 3:
                raise RuntimeError("broke")
            return super().step()

    module = model()
    run = session(module, optimizer=Watching(module.parameters(), lr=1.0))
    run.step()
    run.step()
    with pytest.raises(RuntimeError, match="broke"):
        run.step()
    assert seen == [1, 2, 3] and run._run.ledger.count == 3
    run.optimizer.zero_grad()
    with pytest.raises(BadValue, match="a step failed before"):
        run.step()


def test_evaluation_between_steps_changes_nothing() -> None:
    plain, watched = session(), session()
    for _ in plain:
        pass
    for _ in watched:
        watched.module.eval()
        with torch.no_grad():
            watched.module(holder()[0])
    assert torch.equal(row(plain.module), row(watched.module))


def test_without_a_seed_no_two_sessions_share_noise() -> None:
    one, two = session(seed=None), session(seed=None)
    assert torch.equal(row(one.module), row(two.module))
    one.step(), two.step()
    assert not torch.equal(row(one.module), row(two.module))


def test_a_ledger_adds_sessions_up(tmp_path: Path) -> None:
    shared = {"ledger": tmp_path / "ledger.sqlite", "name": "patients", "seed": None}
    for _ in range(2):
        for _ in session(**shared):
            pass
    both = Ledger(tmp_path / "ledger.sqlite", None)
    assert both.count == 12 and both.rounds == 12
    with pytest.raises(SfumatoError, match="belongs to the population"):
        session(**{**shared, "name": "others"})
    with pytest.raises(SfumatoError, match="its noise comes from a seed"):
        session(**{**shared, "seed": 0})


def test_a_ledger_refuses_a_session_that_draws_noise_which_it_has_counted(tmp_path: Path) -> None:
    """Two seeded sessions that differ in their optimizers release gradients with the same noise."""
    shared = {"ledger": tmp_path / "ledger.sqlite", "name": "patients", "seed": 7, "force_ledger": True}
    first, second = session(**shared), session(lr=5.0, **shared)
    first.step()
    with pytest.raises(LedgerError, match="counted this noise already"):
        second.step()
    assert torch.equal(row(second.module), row(model())), "nothing was drawn"
    assert Ledger(tmp_path / "ledger.sqlite", None).count == 1


def test_a_common_budget_stops_the_loop(tmp_path: Path) -> None:
    from sfumato.ledger.ledger import Budget

    shared = {"ledger": tmp_path / "ledger.sqlite", "name": "patients", "seed": None}
    first = session(**shared)
    first.step()
    Ledger(tmp_path / "ledger.sqlite", None).set_budget(Budget(first.epsilon(DELTA) + 1e-6, DELTA, Unit.RECORD))
    with pytest.raises(BudgetExceeded, match="over their common budget"):
        first.step()


def test_an_objective_and_a_loss_are_the_same() -> None:
    runs = [
        session(loss=loss)
        for loss in (nn.CrossEntropyLoss(reduction="none"), Objective(nn.CrossEntropyLoss(reduction="none")))
    ]
    for run in runs:
        run.step()
    assert torch.equal(row(runs[0].module), row(runs[1].module))


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_session_cannot_be_copied(way: Any) -> None:
    """Two copies would draw the same noise, for parameters that may differ."""
    with pytest.raises(BadValue, match="cannot be copied or pickled"):
        way(session())


def test_a_session_does_not_go_on_in_a_fork() -> None:
    """A fork has the same key: with another learning rate its next gradient would have the same noise at another place."""
    run = session()
    run.step()
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # threads of torch do not matter to a child that only refuses
        child = os.fork()
    if child == 0:
        try:
            run.step()
            os.write(writing, b"went on")
        except UnsoundRound as refusal:
            os.write(writing, str(refusal).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert b"was forked from" in os.read(reading, 1000)
    run.step()


def test_another_session_on_the_same_module_says_what_it_does_not_count() -> None:
    """Its model holds what both learnt, and its own ledger half of what that cost."""
    first = session()
    for _ in first:
        pass
    first.optimizer.zero_grad()
    second = session(first.module, seed=None)
    second.step()
    told = second.guarantee(DELTA).assumptions
    assert any("began with nothing that was learnt from these records" in one for one in told)


class Counting:
    """Weighs classes by how many records of them it has seen: one record changes the gradients of all later ones."""

    def __init__(self) -> None:
        self.seen = torch.zeros(CLASSES)

    def __call__(self, outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        self.seen = self.seen + torch.bincount(y, minlength=CLASSES)
        weights = self.seen.sum() / self.seen[y]
        return nn.functional.cross_entropy(outputs, y, reduction="none") * weights


def in_a_closure() -> Any:
    counting = [Counting()]
    return lambda outputs, y: counting[0](outputs, y)


@pytest.mark.parametrize("loss", [Counting(), Counting().__call__, functools.partial(Counting()), in_a_closure()])
def test_a_loss_that_remembers_records_is_refused(loss: Any) -> None:
    with pytest.raises(UnsoundRound, match="a record's gradient depends on the records before it"):
        session(loss=loss)


@pytest.mark.parametrize("draw", [lambda: float(torch.rand(())), random.random, np.random.random])
def test_data_that_draw_random_numbers_as_they_are_read_are_refused(draw: Any) -> None:
    """One record less, and all later ones would be others."""
    with pytest.raises(DataError, match="Leave random transforms out"):
        session(data=Pairs(lambda number: (torch.full((INPUTS,), draw()), number % CLASSES), RECORDS))


def test_a_session_that_ends_early_costs_what_was_planned() -> None:
    run = session()
    run.step(), run.step()
    early = run.guarantee(DELTA)
    for progress in run:
        assert progress.round <= run.steps
    assert early == run.guarantee(DELTA) and early.epsilon == accountant().epsilon(
        run._run.derivation.primary.after(run.steps), DELTA
    )


def test_an_adaptive_session_costs_what_it_took() -> None:
    run = session(adaptive=True)
    run.step(), run.step()
    early = run.epsilon(DELTA)
    assert early < accountant().epsilon(run._run.derivation.primary.after(run.steps), DELTA)
    run.step()
    assert run.epsilon(DELTA) > early and FROM_RELEASES in run.guarantee(DELTA).assumptions
