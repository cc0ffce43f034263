"""Runs whose records have several inputs: the same as a loop that calls the user's own module with its own arguments."""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from sfumato import (
    DpSgd,
    Everyone,
    Gaussian,
    GradientDescent,
    HelperBlend,
    Key,
    Plan,
    Poisson,
    Population,
    PublicData,
    RealisedMean,
    Records,
    Round,
    Sgd,
    SharpnessAware,
    classification,
    evaluate,
    load,
    simulate,
)  # fmt: skip
from sfumato.engine.simulate import job_of
from sfumato.errors import BadValue, DataError, UnsoundRound
from sfumato.gradients import ClippedSum
from sfumato.local.batches import epoch_batches
from sfumato.local.task import Task
from sfumato.measures import cross_entropy
from sfumato.models import training_mode
from sfumato.several_inputs import own_module, taking
from sfumato.update import Layout
from tests.helpers import dp_round
from tests.local.slow_dp_sgd import SlowDpSgd

WORDS, LONG, CLASSES = 11, 5, 3


class Reader(nn.Module):
    """Attention over words by hand, a mask, and a real number for each record."""

    def __init__(self) -> None:
        super().__init__()
        with Key.from_seed(5).seeding_torch():
            self.words, self.ask, self.head = nn.Embedding(WORDS, 6), nn.Linear(6, 1), nn.Linear(7, CLASSES)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, age: Tensor) -> Tensor:
        words = self.words(input_ids)
        scores = self.ask(words).squeeze(-1).masked_fill(~attention_mask, -1e4)
        seen = (scores.softmax(-1).unsqueeze(-1) * words).sum(1)
        return torch.as_tensor(self.head(torch.cat([seen, age.unsqueeze(-1)], 1)))


class Answer:
    def __init__(self, logits: Any) -> None:
        self.logits = logits


class Wrapped(nn.Module):
    """Answers as libraries of language models do."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.reader, self.answer = Reader(), answer

    def forward(self, *places: Tensor, **names: Tensor) -> Any:
        return self.answer(self.reader(*places, **names))


def text(client: int, records: int = 6) -> dict[str, Tensor]:
    draws = Key.from_seed(6).child("client", number=client).generator()
    mask = torch.rand(records, LONG, generator=draws) < 0.7
    mask[:, 0] = True
    return {
        "input_ids": torch.randint(WORDS, (records, LONG), generator=draws),
        "attention_mask": mask,
        "age": torch.rand(records, generator=draws),
        "labels": torch.randint(CLASSES, (records,), generator=draws),
    }


def x_of(client: int) -> dict[str, Tensor]:
    return {name: value for name, value in text(client).items() if name != "labels"}


PEOPLE = Population.from_list([text(number) for number in range(4)], name="readers")
TEST = PublicData("more readers", Records(x_of(9), text(9)["labels"]))
OPEN: dict[str, Any] = {"sample": Everyone(), "aggregate": RealisedMean(), "nonprivate": True}


def task_of(module: nn.Module, plan: Plan, clients: range) -> Task:
    layout, records = Layout.of(module), [PEOPLE.client(number).train for number in clients]
    start, keys = layout.row(module), [Key.from_seed(number) for number in clients]
    return Task(plan.forward(module), layout, cross_entropy, start, start.expand(len(keys), -1), records, keys, 0)


def gradient(module: nn.Module, client: int, rows: Any) -> list[Tensor]:
    """By autograd, through the user's own module and arguments."""
    x = {name: value[rows] for name, value in x_of(client).items()}
    loss = cross_entropy(module(**x), text(client)["labels"][rows]).mean()
    return list(torch.autograd.grad(loss, list(module.parameters())))


def slow_sgd(local: Sgd, client: int) -> Tensor:
    module = Reader()
    start = Layout.of(module).row(module)
    for batch in epoch_batches(6, local.batch_size, local.epochs, None, Key.from_seed(client).child("batches")):
        rows = torch.from_numpy(batch[batch >= 0])
        found, origin = gradient(module, client, rows), [p.detach().clone() for p in module.parameters()]
        if local.gradient is not None:
            norm = torch.cat([part.flatten() for part in found]).norm()
            with torch.no_grad():
                for p, part in zip(module.parameters(), found, strict=True):
                    p.add_(part, alpha=local.gradient.radius / float(norm))
            found = gradient(module, client, rows)
        with torch.no_grad():
            for p, before, part in zip(module.parameters(), origin, found, strict=True):
                p.copy_(before - local.lr * part)
    return Layout.of(module).row(module) - start


@pytest.mark.parametrize("plan", [Plan(), Plan("stacked", 4), Plan("vmapped", 4)], ids=lambda plan: plan.path)
@pytest.mark.parametrize("sharp", [None, SharpnessAware(0.1)], ids=["plain", "sharpness-aware"])
def test_local_steps_are_those_of_a_loop_over_the_own_module(plan: Plan, sharp: SharpnessAware | None) -> None:
    local = Sgd(lr=0.5, epochs=2, batch_size=4, gradient=sharp)
    module = training_mode(taking(Reader(), PEOPLE.client(0).train.inputs))
    if plan.path == "loop":
        rows = torch.cat([local.train(task_of(module, plan, range(one, one + 1))) for one in range(4)])
    else:
        rows = local.train(task_of(module, plan, range(4)))
    slow = torch.stack([slow_sgd(local, client) for client in range(4)])
    assert (rows - slow).norm() < 1e-5 * slow.norm()


@dataclass(frozen=True)
class SlowOnOwnModule(SlowDpSgd):
    """Each record alone, by the user's own arguments; which record it is, is looked up by its row."""

    client_number: int = 0
    module: nn.Module = field(default_factory=Reader)

    def gradient(self, task: Task, row: Tensor, x: Tensor, y: Tensor) -> Tensor:
        own, layout = Reader(), Layout.of(self.module)
        layout.write(row, own)
        (place,) = (task.clients[0].x == x).all(1).nonzero()[0]
        return torch.cat([part.flatten() for part in gradient(own, self.client_number, place[None])]).double()


@pytest.mark.parametrize("batch", [Everyone(), Poisson(0.6)], ids=["everyone", "poisson"])
def test_private_steps_clip_every_record_as_a_slow_loop_does(batch: Any) -> None:
    module = training_mode(taking(Reader(), PEOPLE.client(0).train.inputs))
    settings = {"steps": 3, "batch": batch, "records": 6, "clip": 0.2, "optimizer": GradientDescent(lr=0.5)}
    for client in range(3):
        task = task_of(module, Plan(), range(client, client + 1))
        slow = SlowOnOwnModule(**settings, client_number=client).train(task)
        found = DpSgd(**settings).train(task)
        assert (found - slow).norm() < 1e-4 * slow.norm()


def test_the_fast_way_is_taken_for_records() -> None:
    module, records = training_mode(taking(Reader(), TEST.records.inputs)), TEST.records
    clipped = ClippedSum(module, Layout.of(module), cross_entropy, 0.2)
    clipped(Layout.of(module).row(module), *records)
    assert clipped.way() == "vectorised"


def test_a_run_gives_back_the_users_own_module_and_names(tmp_path: Path) -> None:
    given, folder = Reader(), tmp_path / "run"
    *_, last = simulate(dp_round(), PEOPLE, given, classification(CLASSES), rounds=2, seed=0, test=TEST, folder=folder)
    assert type(last.module) is Reader
    names = list(given.state_dict())
    written = load_file(folder / "params.safetensors")
    assert sorted(written) == sorted(names) == sorted(last.module.state_dict())
    again = load(folder, Reader())
    assert type(again) is Reader and '"model": "Reader"' in (folder / "run.json").read_text()
    x = x_of(9)
    assert torch.equal(again(**x), last.module.eval()(**x))
    by_hand = float((last.module.eval()(**x).argmax(1) == text(9)["labels"]).float().mean())
    assert evaluate(last.module, TEST.records, classification(CLASSES))["accuracy"] == pytest.approx(by_hand)
    line = json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])
    assert line["accuracy"] == pytest.approx(by_hand)


def test_a_run_that_was_broken_off_goes_on_to_the_same(tmp_path: Path) -> None:
    options: dict[str, Any] = {"rounds": 3, "seed": 0, "test": TEST}
    *_, whole = simulate(dp_round(), PEOPLE, Reader(), classification(CLASSES), **options)
    for _ in simulate(dp_round(), PEOPLE, Reader(), classification(CLASSES), folder=tmp_path / "run", **options):
        break
    run = simulate(
        dp_round(), PEOPLE, Reader(), classification(CLASSES), folder=tmp_path / "run", resume=True, **options
    )
    *_, last = run
    assert torch.equal(last.params, whole.params)


def test_clients_keep_their_own_models_and_test_parts(tmp_path: Path) -> None:
    people = Population.from_list([(x_of(one), text(one)["labels"]) * 2 for one in range(3)])
    round = dp_round(sample=Everyone(), personal=HelperBlend(0.5))
    options: dict[str, Any] = {"rounds": 1, "seed": 0, "diagnostics": True, "folder": tmp_path / "run"}
    (last,) = simulate(round, people, Reader(), classification(CLASSES), **options)
    own = [last.personal_module(client).eval() for client in range(3)]
    right = [(own[one](**x_of(one)).argmax(1) == text(one)["labels"]).float().mean() for one in range(3)]
    told = json.loads((tmp_path / "run" / "diagnostics-not-private" / "rounds.jsonl").read_text())["personal"]
    assert told["clients"] == 3 and told["mean"] == pytest.approx(float(torch.stack(right).mean()))


@pytest.mark.parametrize("answer", [Answer, lambda found: {"logits": found}], ids=["object", "dict"])
def test_the_logits_of_an_answer_are_taken(answer: Any) -> None:
    local = Sgd(lr=0.5, epochs=1, batch_size=4)
    rows = []
    for own in (Reader(), Wrapped(answer)):
        module = training_mode(taking(own, PEOPLE.client(0).train.inputs))
        rows.append(local.train(task_of(module, Plan("vmapped", 4), range(4))))
    assert torch.equal(*rows)


def test_an_answer_without_logits_is_refused_with_the_fix() -> None:
    with pytest.raises(BadValue, match="answers with a tuple without logits. Let forward return one tensor"):
        simulate(dp_round(), PEOPLE, Wrapped(lambda found: (found, found)), classification(CLASSES), rounds=1)
    plain = Population.from_list([(torch.ones(3, 2), torch.zeros(3).long())])
    with pytest.raises(BadValue, match="answers with a .*one tensor.*by name"):
        simulate(dp_round(), plain, nn.Sequential(nn.Linear(2, 3), Last()), classification(3), rounds=1)


class Last(nn.Module):
    def forward(self, x: Tensor) -> Answer:
        return Answer(x)


def test_inputs_by_place() -> None:
    people = Population.from_list([(tuple(x_of(one).values()), text(one)["labels"]) for one in range(4)])
    (last,) = simulate(Round(local=Sgd(lr=0.5, epochs=1), **OPEN), people, Reader(), classification(CLASSES), rounds=1)
    assert isinstance(own_module(last.module), Reader) and last.params.isfinite().all()


def test_clients_and_test_data_of_other_inputs_are_refused_by_name() -> None:
    renamed = {"aaa" if name == "age" else name: value for name, value in text(3).items()}  # rows of the same width
    people = Population.from_list([text(0), text(1), renamed], name="mixed")
    run = simulate(dp_round(sample=Everyone()), people, Reader(), classification(CLASSES), rounds=1, plan=Plan())
    with pytest.raises(DataError, match="client 2: its inputs are aaa float32, .* but other clients' are age float32"):
        next(iter(run))
    packed = Population.from_list([text(0), (PEOPLE.client(1).train.x, text(1)["labels"])])
    run = simulate(dp_round(sample=Everyone()), packed, Reader(), classification(CLASSES), rounds=1, plan=Plan())
    with pytest.raises(DataError, match="client 1: its inputs are one tensor int64"):
        next(iter(run))
    other = PublicData("other", Records({"input_ids": text(0)["input_ids"]}, text(0)["labels"]))
    with pytest.raises(DataError, match="the model takes input_ids int64"):
        simulate(dp_round(), PEOPLE, Reader(), classification(CLASSES), rounds=1, test=other)


def test_a_model_for_other_inputs_is_refused_before_a_round() -> None:
    with pytest.raises(
        BadValue, match="cannot take records of age float32, attention_mask bool.5., input_ids int64.5."
    ):
        simulate(dp_round(), PEOPLE, nn.Linear(11, 3), classification(CLASSES), rounds=1)


def test_a_refusal_names_the_users_own_layers() -> None:
    model = Reader()
    model.head = nn.Sequential(model.head, nn.BatchNorm1d(CLASSES))  # type: ignore[assignment]
    with pytest.raises(UnsoundRound, match=r"noises them: head.1 \(BatchNorm1d\)"):
        simulate(dp_round(), PEOPLE, model, classification(CLASSES), rounds=1)


def test_a_worker_elsewhere_gets_the_wrapped_model() -> None:
    round = Round(local=DpSgd(steps=1, batch=Everyone(), records=6, law=Gaussian(1.0)), **OPEN)
    job, _ = job_of(round, PEOPLE, taking(Reader(), PEOPLE.client(0).train.inputs), classification(CLASSES), "cpu")
    there = pickle.loads(pickle.dumps(job))
    assert there.example.inputs == job.example.inputs
    assert torch.equal(there.module(TEST.records.x), job.module(TEST.records.x))
