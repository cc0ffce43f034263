"""Private steps with exact noise: gradients one at a time, in whole steps, at the same cost and with the same result."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from sfumato import DpSgd, FixedSize, Gaussian, Key, PerClient, Poisson, Records, Round, RoundedGaussian, Unit, secure
from sfumato.gradients import OneByOne
from sfumato.local import dp_sgd
from sfumato.local.task import Task
from sfumato.recipes import build
from sfumato.testing import check_records
from sfumato.update import Layout


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def trained(local: Any, model: nn.Module, records: int = 40) -> torch.Tensor:
    x = Key.from_seed(1).normal(records, 6).float()
    y = torch.arange(records) % 3
    layout = Layout.of(model)
    row = layout.row(model)
    loss = nn.CrossEntropyLoss(reduction="none")
    task = Task(OneByOne(model), layout, loss, row, row[None], [Records(x, y)], [Key.from_seed(2)], 0, [0])
    return local.train(task)[0]


LOCAL = DpSgd(3, Poisson(0.5), 40, clip=0.3, law=RoundedGaussian(1.0))


def test_exact_steps_hold_the_laws_of_records() -> None:
    check_records(DpSgd(1, Poisson(0.5), 3, clip=0.5, law=RoundedGaussian(1.0)), draws=90)


@pytest.mark.parametrize("batch", [Poisson(0.5), FixedSize(9)])
def test_without_noise_to_speak_of_exact_steps_end_where_usual_ones_do(batch: Any) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    exact = trained(replace(LOCAL, batch=batch, law=RoundedGaussian(1e-9)), model)
    usual = trained(replace(LOCAL, batch=batch, law=Gaussian(1e-9)), model)
    assert torch.allclose(exact, usual, atol=1e-4) and exact.norm() > 0.01


def test_every_gradient_that_is_added_is_a_whole_number_of_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[torch.Tensor] = []
    true = dp_sgd.cut_off

    def spy(rows: torch.Tensor, claim: Any) -> torch.Tensor:
        assert len(rows) == 1 and claim.grid == 2.0**-22
        seen.append(true(rows, claim))
        return seen[-1]

    monkeypatch.setattr(dp_sgd, "cut_off", spy)
    trained(LOCAL, nn.Linear(6, 3))
    steps = torch.cat(seen).double() * 2.0**22
    assert len(seen) > 30 and torch.equal(steps, steps.round())
    assert float((steps**2).sum(1).max()) <= (0.3 * 2**22) ** 2


def test_the_secure_recipe_costs_the_same_and_assumes_less() -> None:
    usual = build("prifedsync", 100, {})
    exact = secure(usual)
    assert isinstance(exact.local, DpSgd) and isinstance(exact.local.law, RoundedGaussian)
    one, other = (round.derive(population=100, dimension=50).primary for round in (usual, exact))
    assert (one.world, one.server, one.chooser) == (other.world, other.server, other.chooser)
    assert set(one.assumptions) - set(other.assumptions) == {
        "exact real-number arithmetic (floating point is not covered)"
    }


def test_every_client_with_settings_of_its_own_becomes_exact() -> None:
    local = DpSgd(3, Poisson(0.5), 40)
    base = build("prifedsync", 100, {})
    own = replace(base, local=PerClient(local, {3: local.with_noise(2.0)}), personal=None)
    found = secure(own).local
    assert isinstance(found, PerClient)
    assert [piece.law for piece in found.pieces] == [RoundedGaussian(1.0), RoundedGaussian(2.0)]  # type: ignore[attr-defined]
    assert isinstance(own, Round) and own.unit is Unit.RECORD
