"""Runs with a part that came with weights and statistics: no client's record reaches it."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from sfumato import (
    DpSgd,
    Everyone,
    GradientDescent,
    Key,
    Plan,
    Population,
    PublicData,
    RealisedMean,
    Records,
    Round,
    Sgd,
    SharpnessAware,
    classification,
    simulate,
)  # fmt: skip
from sfumato.engine.simulate import job_of
from sfumato.local.task import Task
from sfumato.measures import cross_entropy
from sfumato.models import training_mode
from sfumato.update import Layout
from tests.models.frozen import pretrained, written_out


def people(clients: int = 4, records: int = 6) -> Population:
    key = Key.from_seed(3)
    # Far from the statistics that the model came with: a norm in training would move its own at once.
    x = [key.child("x", client=i).normal(records, 1, 6, 6).float() * 3 + 5 for i in range(clients)]
    y = [torch.arange(records) % 3 for _ in range(clients)]
    return Population.from_list(list(zip(x, y, strict=True)), name="far away")


LOCAL = {
    "sgd": Sgd(lr=0.1, epochs=2, batch_size=4),
    "sharpness": Sgd(lr=0.1, epochs=1, batch_size=4, gradient=SharpnessAware(0.1)),
    "dp-sgd": DpSgd(steps=2, batch=Everyone(), records=6, optimizer=GradientDescent(lr=0.1)),
}
PLANS = {"loop": Plan(), "stacked": Plan("stacked", 4), "vmapped": Plan("vmapped", 4)}


def trained(model: Any, local: Any, **options: Any) -> Any:
    round = Round(sample=Everyone(), local=local, aggregate=RealisedMean(), nonprivate=True)
    *_, last = simulate(round, people(), model, classification(3), rounds=2, seed=0, **options)
    return last


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("local", LOCAL)
def test_a_frozen_part_acts_as_constants(local: str, plan: str) -> None:
    rows = {}
    for name, model in (("norm", pretrained()), ("constants", written_out())):
        if plan == "vmapped":
            model.dropout.p = 0.0  # vmap has no keys for it
        module, population = training_mode(model), people()
        layout, clients = Layout.of(module), [population.client(number).train for number in range(population.size)]
        start, keys = layout.row(module), [Key.from_seed(number) for number in range(len(clients))]
        forward = (PLANS[plan] if name == "norm" else Plan()).forward(module)
        task = Task(forward, layout, cross_entropy, start, start.expand(len(keys), -1), clients, keys, 0)
        one_by_one = name == "constants" or plan == "loop"
        parts = [task.only(place) for place in range(len(keys))] if one_by_one else [task]
        rows[name] = torch.cat([LOCAL[local].train(part) for part in parts])
    assert (rows["norm"] - rows["constants"]).norm() < 1e-4 * rows["constants"].norm()


@pytest.mark.parametrize("local", LOCAL)
def test_no_bit_of_a_frozen_part_changes_in_a_run(local: str) -> None:
    given = pretrained().train()
    before = {name: value.clone() for name, value in given.state_dict().items()}
    after = trained(given, LOCAL[local]).module.state_dict()
    assert after.keys() == before.keys()
    changed = [name for name, value in after.items() if not torch.equal(value, before[name])]
    assert changed == ["head.weight", "head.bias"]
    assert all(torch.equal(value, before[name]) for name, value in given.state_dict().items())


def test_what_a_run_writes_and_measures_leaves_the_statistics_alone(tmp_path: Path) -> None:
    given = pretrained()
    shown = people(1).client(0).train
    test = PublicData("public", Records(shown.x, shown.y))
    trained(given, LOCAL["sgd"], folder=tmp_path / "run", test=test)
    written = load_file(tmp_path / "run" / "params.safetensors")
    for name, value in given.state_dict().items():
        assert name.startswith("head") or torch.equal(written[name], value), name


def test_a_worker_elsewhere_gets_the_modes_with_the_job() -> None:
    round = Round(sample=Everyone(), local=LOCAL["sgd"], aggregate=RealisedMean(), nonprivate=True)
    job, _ = job_of(round, people(), pretrained().train(), classification(3), "cpu")
    there = pickle.loads(pickle.dumps(job)).module
    assert not any(layer.training for layer in there.body.modules())
    assert there.training and there.dropout.training
