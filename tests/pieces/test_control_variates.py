"""SCAFFOLD by its option II: equal to the algorithm written out in loops, paid for as R6 says, and of use against drift."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from sfumato import (
    AdaptiveClip,
    AddNoise,
    Clip,
    ControlVariates,
    DpSgd,
    Everyone,
    FixedSize,
    Gaussian,
    GradientDescent,
    Mean,
    Momentum,
    NoiseShare,
    PerClient,
    Plain,
    Plan,
    Poisson,
    Population,
    RealisedMean,
    Relation,
    Round,
    SecureSum,
    Sgd,
    SharedMask,
    SharpnessAware,
    Shuffler,
    Unit,
    UnsoundRound,
    classification,
    evaluate,
    load_data,
)  # fmt: skip
from sfumato.account.event import GaussianEvent, Mixture, PoissonSampled
from sfumato.engine.checkpoint import Checkpoint
from sfumato.engine.simulate import simulate
from sfumato.errors import BadValue
from sfumato.gradients import OneByOne
from sfumato.key import Key
from sfumato.ledger.ledger import Ledger
from sfumato.local.batches import epoch_batches
from sfumato.local.dp_sgd import PlainSteps
from sfumato.local.task import Task
from sfumato.objective import Objective
from sfumato.update import Layout
from tests.helpers import linear, made_up_population

SIZES = [9, 12, 8, 10, 9, 0]
PEOPLE = made_up_population(SIZES)
LOCAL = Sgd(lr=0.3, steps=4, batch_size=4, lr_decay=0.9)
NOISE = (AddNoise(Gaussian(1.0)),)


def round_of(**changed: Any) -> Round:
    slots: dict[str, Any] = {
        "sample": Poisson(0.6), "local": LOCAL, "client": (Clip(0.5),), "aggregate": Mean(3.6), "server": NOISE,
        "personal": ControlVariates(),
    }  # fmt: skip
    return Round(**{**slots, **changed})


def of_records(**changed: Any) -> Round:
    local = DpSgd(3, Poisson(0.5), 8, optimizer=GradientDescent(0.2))
    slots: dict[str, Any] = {
        "local": local,
        "client": (),
        "server": (),
        "aggregate": RealisedMean(),
        "unit": Unit.RECORD,
    }
    return round_of(**{**slots, **changed})


def ready(round: Round, rounds: int = 5, **options: Any) -> Any:
    settings: dict[str, Any] = {"seed": 3, "plan": Plan(), **options}
    return simulate(round, PEOPLE, linear(), classification(3), rounds=rounds, **settings)


def gradient(layout: Layout, row: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    leaf = row.clone().requires_grad_()
    outputs = torch.func.functional_call(linear(), layout.split(leaf), (x,))
    return torch.autograd.grad(classification(3).loss(outputs, y).mean(), leaf)[0]


@pytest.mark.parametrize("plan", [Plan(), Plan("stacked", 4), Plan(workers=2)], ids=["loop", "stacked", "workers"])
def test_it_is_the_algorithm_in_plain_loops(plan: Plan) -> None:
    """Karimireddy et al. 2020, Algorithm 1 with option II, where what is remembered is the clipped message."""
    simulation = ready(round_of(server=(), nonprivate=True), plan=plan, seed=0)
    layout = simulation.job.slots.layout
    params = simulation.start.params
    shared = torch.zeros_like(params)
    own = {client: torch.zeros_like(params) for client in range(6)}
    drawn_before: set[int] = set()
    for progress in simulation:
        number = progress.round - 1
        keys, lr = simulation.randomness.keys(number), 0.3 * 0.9**number
        drawn = Poisson(0.6).cohort(6, keys.turn(number)).tolist()
        messages = {}
        for client in drawn:
            records, key = PEOPLE.client(client).train, keys.client(client, round=number)
            model = params.clone()
            for batch in epoch_batches(records.count, 4, None, 4, key.child("batches")):
                at = torch.from_numpy(batch[batch >= 0])
                step = gradient(layout, model, records.x[at], records.y[at]) + shared - own[client]
                model = model - lr * step
            row = model - params
            messages[client] = row * min(1.0, 0.5 / max(float(row.norm()), 1e-12))
        for client, message in messages.items():
            own[client] = own[client] - shared - message / (4 * lr)
        mean = torch.stack([torch.zeros_like(params), *messages.values()]).sum(0) / 3.6
        params = params + mean
        shared = shared + 0.6 * (-shared - mean / (4 * lr))
        drawn_before |= set(drawn)
        assert torch.allclose(progress.params, params, atol=1e-5)
        assert set(progress.memory) == drawn_before
        for client in drawn_before:
            assert torch.allclose(progress.memory[client]["control"], own[client], atol=1e-5)
    assert shared.norm() > 0.1 and len(drawn_before) > 3


def test_a_private_step_adds_its_correction_after_the_noise() -> None:
    """On a loss whose gradient does not depend on the model, all steps together move by exactly their sum."""
    module = torch.nn.Linear(3, 1, bias=False)
    layout, row = Layout.of(module), torch.zeros(3)
    loss = Objective(lambda outputs, y: outputs.squeeze(-1) * y).loss
    records = made_up_population([8], features=3).client(0).train
    task = Task(OneByOne(module), layout, loss, row, row[None], [records], [Key.from_seed(1)], 2)
    correction = torch.tensor([[50.0, -3.0, 0.25]])  # far beyond the clip norm
    for local in (
        DpSgd(4, Poisson(0.5), 8, clip=0.1, optimizer=GradientDescent(0.2), lr_decay=0.5),
        PlainSteps(4, Everyone(), optimizer=GradientDescent(0.2), lr_decay=0.5),
    ):
        plain, corrected = local.train(task)[0], local.train(replace(task, corrections=correction))[0]
        length = local.controlled(2)
        assert length == pytest.approx(4 * 0.2 * 0.25)
        assert torch.allclose(corrected - plain, -length * correction[0], atol=1e-5)


def test_for_records_it_costs_nothing() -> None:
    for changed in ({}, {"client": (Clip(1.0),)}, {"local": LOCAL, "client": (Clip(0.5), *NOISE)}):
        found, plain = (
            of_records(**changed, personal=piece).derive(population=50, dimension=21).primary
            for piece in (ControlVariates(), None)
        )
        assert found.world == plain.world and found.server == plain.server


@pytest.mark.parametrize(
    "changed",
    [
        {"local": LOCAL, "client": (Clip(0.5),), "server": NOISE, "aggregate": Mean(3.0)},
        {"local": LOCAL, "client": (Clip(0.5),), "aggregate": Mean(3.0), "channel": SecureSum(), "server": NOISE},
    ],
    ids=["noise at the server", "behind a secure sum"],
)
def test_for_records_the_message_itself_must_be_paid(changed: dict[str, Any]) -> None:
    with pytest.raises(UnsoundRound, match="not private by itself when it left"):
        of_records(**changed)


@pytest.mark.parametrize("make", [round_of, of_records], ids=["clients", "records"])
@pytest.mark.parametrize("channel", [Plain(), SecureSum(), Shuffler()])
def test_a_share_of_the_noise_is_not_to_be_remembered(make: Any, channel: Any) -> None:
    """Each row of the second round holds minus the share of the first, as far as the clip lets it."""
    shares = (Clip(0.5), NoiseShare(Gaussian(1.0), 3))
    for sample in (FixedSize(4), Everyone(Relation.REPLACE)):
        with pytest.raises(UnsoundRound, match="later sums"):
            make(local=LOCAL, client=shares, server=(), sample=sample, channel=channel, aggregate=Mean(3.0)).derive(
                population=6, dimension=21
            )


def test_shares_that_are_remembered_hide_less_than_they_are_priced_at() -> None:
    """The attack: option II on one coordinate, where a hundred clients but the victim have nothing to say."""
    clients, clip, deviation, runs = 100, 1.0, 10.0, 20_000
    draw = torch.Generator().manual_seed(1)

    def sums(victim: float) -> torch.Tensor:
        shares = torch.randn(runs, clients, generator=draw, dtype=torch.float64) * deviation / clients**0.5
        first = victim + shares.sum(1)
        rows = (first[:, None] / clients - shares).clamp(-clip, clip)  # c - c_i, times the length of the steps
        noise = torch.randn(runs, generator=draw, dtype=torch.float64) * deviation
        return torch.stack([first, victim + rows.sum(1) + noise])

    there, other = sums(clip), sums(-clip)
    moved, spread = there.mean(1) - other.mean(1), (there.cov() + other.cov()) / 2
    seen = float((moved @ torch.linalg.solve(spread, moved)).sqrt())
    assert seen > 1.2 * 2 * clip / deviation * 2**0.5  # the mu of two Gaussian releases


def test_for_clients_poisson_is_as_it_was_and_a_fixed_size_loses_its_amplification() -> None:
    assert round_of().derive(population=50, dimension=21).primary.world == PoissonSampled(0.6, GaussianEvent(1.0))
    fixed = round_of(sample=FixedSize(5)).derive(population=51, dimension=21).primary
    assert fixed.world == Mixture(0.1, GaussianEvent(0.5)) and fixed.relation is Relation.REPLACE
    with pytest.raises(UnsoundRound, match="displaces others"):
        round_of(sample=FixedSize(5, Relation.ADD_REMOVE))


@pytest.mark.parametrize("make", [round_of, of_records], ids=["clients", "records"])
def test_what_clients_remember_survives_a_stop(make: Any, tmp_path: Path) -> None:
    *_, whole = ready(make(), folder=tmp_path / "whole")
    list(ready(make(), rounds=2, folder=tmp_path / "parts"))
    (private,) = (tmp_path / "parts").glob("personal-*")
    assert private.stat().st_mode & 0o777 == 0o600
    resumed = ready(make(), folder=tmp_path / "parts", resume=True)
    assert resumed.start.memory and resumed.start.kept["control"].norm() > 0
    *_, after = resumed
    assert torch.equal(after.params, whole.params) and set(after.memory) == set(whole.memory)
    assert all(torch.equal(after.memory[one]["control"], whole.memory[one]["control"]) for one in whole.memory)
    last, expected = Checkpoint.read(tmp_path / "parts"), Checkpoint.read(tmp_path / "whole")
    assert last is not None and expected is not None and torch.equal(last.kept["control"], expected.kept["control"])
    (private,), (other,) = ((tmp_path / name).glob("personal-*") for name in ("parts", "whole"))
    assert private.read_bytes() == other.read_bytes()


def test_a_checkpoint_holds_any_names(tmp_path: Path) -> None:
    rows = torch.arange(12.0).reshape(4, 3)
    memory = {7: {"start": rows[0], "control": rows[1]}, 2: {"control": rows[2]}, 9: {"start": rows[3]}}
    checkpoint = Checkpoint(round=1, of="it", plan=Plan(), params=rows[0], state={}, memory=memory)
    checkpoint.write(tmp_path, Ledger(tmp_path / "ledger.sqlite", "people"), "run")
    found = Checkpoint.read(tmp_path)
    assert found is not None and found.memory.keys() == memory.keys()
    for client, held in memory.items():
        assert held.keys() == found.memory[client].keys()
        assert all(torch.equal(held[name], found.memory[client][name]) for name in held)


@pytest.mark.parametrize(
    "local",
    [
        Sgd(lr=0.1, epochs=2),
        Sgd(lr=0.1, steps=2, momentum=0.9),
        Sgd(lr=0.1, steps=2, project=1.0),
        PlainSteps(2, Everyone(), optimizer=Momentum(0.1)),
        PerClient(Sgd(lr=0.1, steps=2), {1: Sgd(lr=0.2, steps=2)}),
    ],
    ids=["epochs", "momentum", "ball", "momentum at the client", "several rates"],
)
def test_steps_that_it_does_not_fit_are_refused_before_anything_is_spent(local: Any, tmp_path: Path) -> None:
    with pytest.raises(BadValue, match="plain steps"):
        ready(round_of(local=local), folder=tmp_path)
    assert not list(tmp_path.iterdir())


def test_steps_that_it_does_fit() -> None:
    for local in (
        Sgd(lr=0.1, steps=2, weight_decay=0.1, gradient=SharpnessAware(0.1)),
        PerClient(Sgd(lr=0.1, steps=2), {1: Sgd(lr=0.2, steps=1)}),
    ):
        *_, progress = ready(round_of(local=local), rounds=2)
        assert progress.params.isfinite().all()


@pytest.mark.parametrize("client", [(SharedMask(0.5), Clip(1.0)), (AdaptiveClip(),)], ids=["mask", "adaptive"])
def test_messages_in_other_coordinates_are_refused(client: Any) -> None:
    with pytest.raises(BadValue, match="model's own 21 coordinates"):
        ready(round_of(client=client))


def by_label(clients: int) -> tuple[Population, Any]:
    """Real digits, each client with one or two classes only."""
    digits = load_data("digits")
    order = digits.train.y.argsort(stable=True)
    parts = [order[nth * (1400 // clients) : (nth + 1) * (1400 // clients)] for nth in range(clients)]
    return Population.from_list([(digits.train.x[part], digits.train.y[part]) for part in parts]), digits


@pytest.mark.data
def test_it_reduces_drift_on_clients_that_differ() -> None:
    population, digits = by_label(10)
    losses = {}
    for personal in (None, ControlVariates()):
        module = torch.nn.Sequential(torch.nn.Flatten(), linear(64, 10))
        round = Round(
            sample=Everyone(), local=Sgd(lr=0.5, steps=20, batch_size=140), aggregate=RealisedMean(), personal=personal,
            nonprivate=True,
        )  # fmt: skip
        *_, progress = simulate(
            round, population, module, classification(10), rounds=10, seed=0, plan=Plan("stacked", 10)
        )
        losses[personal] = evaluate(progress.module, digits.train, classification(10))["loss"]
    assert losses[ControlVariates()] < 0.7 * losses[None], losses
