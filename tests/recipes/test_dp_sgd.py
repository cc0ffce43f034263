"""Central training: what is derived is what dp-accounting prices, and what is trained is what torch's optimizers train."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from sfumato import Averaged, DpSgd, Population, Unit, classification, recipes, simulate
from sfumato.account import accountant
from sfumato.account.event import GaussianEvent, PoissonSampled, Relation, Repeated
from sfumato.errors import BadValue
from sfumato.key import Key
from sfumato.pieces.payment import ARITHMETIC
from sfumato.round import Round

RECORDS, INPUTS, CLASSES = 40, 5, 3


def round_of(**options: Any) -> Round:
    return recipes.build("dp-sgd", 1, {"records": RECORDS, **options})


def holder() -> tuple[torch.Tensor, torch.Tensor]:
    key = Key.from_seed(3)
    y = torch.from_numpy((key.child("y").integers(RECORDS) % CLASSES).astype("int64"))
    return key.child("x").normal(RECORDS, INPUTS).float(), y


def model() -> nn.Module:
    with Key.from_seed(1).seeding_torch():
        return nn.Linear(INPUTS, CLASSES)


def trained(round: Round, rounds: int = 6) -> torch.Tensor:
    population = Population.from_list([holder()], name="holder")
    *_, last = simulate(round, population, model(), classification(CLASSES), rounds=rounds, seed=0)
    return last.params


@pytest.mark.parametrize(
    ("options", "event"),
    [
        ({"batch": "poisson:0.01"}, PoissonSampled(0.01, GaussianEvent(1.5), Relation.ADD_REMOVE)),
        ({"batch": "everyone"}, GaussianEvent(1.5)),
        ({"batch": "everyone", "relation": "replace"}, GaussianEvent(0.75)),
    ],
    ids=["poisson", "everyone", "replace"],
)
def test_a_round_is_one_step_on_drawn_records(options: dict[str, Any], event: Any) -> None:
    derivation = round_of(**options, noise_multiplier=1.5, clip=0.5).derive(population=1, dimension=7)
    proof = derivation.primary
    assert proof.unit is Unit.RECORD and proof.world == Repeated(event, 1)
    assert proof.server is None and proof.chooser is None
    assert proof.assumptions == (
        ARITHMETIC,
        "the holder of the records is trusted",
    )
    assert "to hide it as a client would be to hide them all" in derivation.refused[Unit.CLIENT].reason


@pytest.mark.parametrize(("rate", "noise", "steps"), [(0.01, 1.1, 600), (0.1, 6.6, 300)])
def test_epsilon_is_that_of_dp_accounting(rate: float, noise: float, steps: int) -> None:
    dp_accounting = pytest.importorskip("dp_accounting")
    from dp_accounting.pld import PLDAccountant

    event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(noise))
    theirs = PLDAccountant().compose(dp_accounting.SelfComposedDpEvent(event, steps)).get_epsilon(1e-5)
    proof = round_of(batch=f"poisson:{rate}", noise_multiplier=noise).derive(population=1, dimension=7850).primary
    assert accountant("auto").epsilon(proof.after(steps), 1e-5) == pytest.approx(theirs, rel=2e-3)


OPTIMIZERS: dict[str, tuple[dict[str, Any], Callable[..., torch.optim.Optimizer]]] = {
    "sgd": ({"weight_decay": 0.3}, lambda p: torch.optim.SGD(p, lr=0.2, weight_decay=0.3)),
    "momentum": ({"momentum": 0.7}, lambda p: torch.optim.SGD(p, lr=0.2, momentum=0.7)),
    "adam": ({}, lambda p: torch.optim.Adam(p, lr=0.2)),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_without_noise_it_is_what_torch_does_with_clipped_gradients(name: str) -> None:
    """The slow twin: a loop over records, and torch's own optimizer across the steps."""
    options, make = OPTIMIZERS[name]
    ours = trained(round_of(batch="everyone", clip=0.5, noise_multiplier=1e-9, optimizer=name, lr=0.2, **options))
    module, (x, y) = model(), holder()
    steps = make(module.parameters())
    for _ in range(6):
        total = [torch.zeros_like(p) for p in module.parameters()]
        for one, of in zip(x, y, strict=True):
            gradients = torch.autograd.grad(cross_entropy(module(one), of), list(module.parameters()))
            norm = torch.cat([part.flatten() for part in gradients]).norm()
            for sum_of, part in zip(total, gradients, strict=True):
                sum_of += part * min(1.0, 0.5 / float(norm))
        for parameter, sum_of in zip(module.parameters(), total, strict=True):
            parameter.grad = sum_of / RECORDS
        steps.step()
    theirs = torch.cat([p.detach().flatten() for p in module.parameters()])
    assert float((ours - theirs).norm()) <= 2e-5 * float(theirs.norm())


def test_the_noise_of_a_step_is_a_multiple_of_the_clip_over_the_declared_batch() -> None:
    """One step on nobody's record moves by noise alone; the test fails at 2/3 and 3/2 of its scale."""
    round = round_of(batch="poisson:0.0001", records=50_000, clip=0.5, noise_multiplier=2.0, optimizer="sgd", lr=1.0)
    nobody = Population.from_list([(torch.zeros(1, 3000), torch.zeros(1, dtype=torch.int64))], name="nobody")
    module = nn.Linear(3000, 2)
    before = torch.cat([p.detach().flatten() for p in module.parameters()])
    (last,) = simulate(round, nobody, module, classification(2), rounds=1, seed=0)
    assert float((last.params - before).std()) == pytest.approx(2.0 * 0.5 / 5.0, rel=0.05)


def test_micro_batches_change_rounding_only() -> None:
    quiet = {"batch": "everyone", "noise_multiplier": 1e-9}  # other rounds draw other noise
    few, many, suited = (trained(round_of(**quiet, micro_batch=size)) for size in (3, 64, 0))
    assert torch.allclose(few, many, atol=1e-5) and torch.allclose(few, suited, atol=1e-5)


def test_averages_live_across_the_steps() -> None:
    round = round_of(average=0.9)
    assert isinstance(round.optimizer, Averaged) and not torch.equal(trained(round), trained(round_of()))


def test_there_is_one_holder() -> None:
    with pytest.raises(BadValue, match=r"clients=5: in dp-sgd one trusted holder has all the records, so it is 1"):
        recipes.build("dp-sgd", 5, {})
    local = round_of(batch="fixed:10").local
    assert isinstance(local, DpSgd) and local.divisor == 10
