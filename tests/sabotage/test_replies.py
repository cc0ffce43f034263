"""Known mistakes in how a client replies. The property tests of replies must fail on every one (PRIVACY R15)."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sfumato import Key, Records, recipes
from sfumato.account import accountant
from sfumato.account.event import GaussianEvent, Unit
from sfumato.data.faults import Faults
from sfumato.engine.clients import Clients
from sfumato.engine.slots import Slots
from sfumato.federation.node import own_data
from sfumato.gradients import OneByOne
from sfumato.gradients.clipped_sum import ClippedSum
from sfumato.gradients.problem import NoRule
from sfumato.local.dp_sgd import DpSgd
from sfumato.local.task import Task
from sfumato.pieces.optimizer import GradientDescent
from sfumato.update import Layout
from tests.federation.node import test_replies as replies

DEFAULTS = {"records": 600, "batch": "fixed:16", "steps": 38, "noise_multiplier": 2.0, "optimizer": "sgd", "lr": 1.0}
DELTA = 1e-5


def printed() -> float:
    """What PriFedSync prints for one record and one round, against a server that selects the cohort."""
    event = recipes.build("prifedsync", 10, DEFAULTS).derive(population=10, dimension=12).units[Unit.RECORD].chooser
    assert event is not None
    return accountant("auto").epsilon(event, DELTA)


def _linear(outputs: Tensor, y: Tensor) -> Tensor:
    return outputs[:, 0]


def attained(at_fault: list[int]) -> float:
    """The epsilon that an attack attains from one round of 600 equal records, some of which count as zero.

    A linear loss and equal records: all clipped gradients are one unit vector, in every step. Two runs with the same noise differ
    by a known shift along it, and the noise along it is normal with a known deviation: a Gaussian mechanism of that ratio.
    """
    local = recipes.build("prifedsync", 10, DEFAULTS).local
    assert isinstance(local, DpSgd) and isinstance(local.optimizer, GradientDescent)
    module = nn.Linear(6, 2, bias=False)
    nn.init.zeros_(module.weight)
    layout = Layout.of(module)
    start = layout.row(module)
    records = Records(torch.full((600, 6), 100.0), torch.zeros(600, dtype=torch.int64))
    rows = []
    for faults in (Faults(), Faults(dict.fromkeys(at_fault, "at fault"))):
        key = Key.from_seed(5)
        task = Task(OneByOne(module), layout, _linear, start, start[None], [records], [key], 0, faults=faults)
        rows.append(local.train(task)[0].double())
    shift = float((rows[0] - rows[1]).norm()) * local.divisor / local.optimizer.lr
    noise = local.law.noise_multiplier * local.clip * math.sqrt(local.steps)
    return 0.0 if shift == 0.0 else accountant("auto").epsilon(GaussianEvent(noise / shift), DELTA)


def test_an_update_that_one_record_turns_into_zero_attains_a_thousand_times_what_is_printed() -> None:
    """PriFedSync's defaults: 16 of 600 records, 38 steps, noise 2 C. All records count as zero because one is at fault."""
    assert printed() == pytest.approx(1.442, abs=0.001)
    assert attained(list(range(600))) == pytest.approx(1425.4, abs=0.1)


def test_only_the_record_at_fault_becomes_zero() -> None:
    """It is in one of 38 batches here, and moves its sum by C where 2 C is accounted for."""
    assert 0.0 < attained([7]) < printed()


def test_every_record_is_zero_where_one_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = own_data.checked

    def all_or_none(records: Records, declared: Any) -> tuple[Records, Faults]:
        found, faults = right(records, declared)
        return found, Faults(dict.fromkeys(range(found.count), "another one is") if faults.records else {})

    monkeypatch.setattr(own_data, "checked", all_or_none)
    with pytest.raises(AssertionError):
        replies.test_a_record_at_fault_moves_a_private_step_by_its_own_gradient(tmp_path / "a", "everyone")
    with pytest.raises(AssertionError):
        replies.test_a_record_at_fault_moves_a_vote_of_neighbours_by_one_neighbour(tmp_path / "b")


def test_a_batch_is_zero_where_one_record_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = ClippedSum._add

    def whole(self: Any, total: Tensor, way: Any, problem: Any, row: Tensor, x: Tensor, *rest: Any) -> None:
        def tried(*given: Any) -> Any:
            try:
                return way(*given)
            except NoRule:
                raise
            except Exception:
                return {}

        right(self, total, tried, problem, row, x, *rest)

    monkeypatch.setattr(ClippedSum, "_add", whole)
    with pytest.raises(AssertionError):
        replies.test_a_record_that_raises_moves_a_private_step_by_its_own_gradient(tmp_path, "everyone")


def test_a_record_at_fault_is_taken_out_before_batches_are_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then all later records have other numbers, and batches hold others of them."""

    def shifted(self: Faults, drawn: Tensor, count: int) -> Tensor:
        good = [number for number in range(count) if number not in self.records]
        return torch.tensor(good)[drawn[drawn < len(good)]]

    monkeypatch.setattr(Faults, "without", shifted)
    with pytest.raises(AssertionError):
        replies.test_a_record_at_fault_moves_a_private_step_by_its_own_gradient(tmp_path, "fixed:4")


def test_a_failure_that_is_a_reply(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was so before: a server learned from `failed` that some record has what its model does not know."""
    monkeypatch.setattr(Clients, "_rows", lambda self, task, ids: (self._train(task, ids), None))
    with pytest.raises(AssertionError):
        replies.test_nor_does_a_record_on_which_training_fails(tmp_path, "perturb-model")


def test_a_zero_update_without_noise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = Slots.messages

    def bare(self: Slots, rows: Tensor, *given: Any) -> Tensor:
        found = right(self, rows, *given)
        return found if given[-1] is None else torch.zeros_like(found)

    monkeypatch.setattr(Slots, "messages", bare)
    with pytest.raises(AssertionError):
        replies.test_a_client_on_which_training_fails_sends_exactly_its_own_noise(tmp_path)


def test_labels_that_are_judged_by_the_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without what the owner declares, a server that asks for few classes learns which records have others."""
    from sfumato.federation.node import rules

    monkeypatch.setattr(rules, "_of_other_records", lambda policy, terms, features: iter(()))
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        replies.test_a_request_about_other_records_is_refused_before_a_record_is_touched(tmp_path, {"outputs": 2})
