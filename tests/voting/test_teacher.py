"""Teachers: ballots that depend on a client's own records and key alone, within their bounds, and the same in every round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sfumato import PublicData, Records, Sgd, SharpnessAware, classification, multi_label
from sfumato.data.load import load
from sfumato.digest import cache_key
from sfumato.errors import BadValue, UnsoundRound
from sfumato.gradients import LossPerRecord, OneByOne
from sfumato.key import Key
from sfumato.local.task import Task
from sfumato.models import build
from sfumato.update import Layout
from sfumato.voting import teacher as home
from sfumato.voting.adaptation import Adaptation, Adversarial, Coral, Standardised
from sfumato.voting.teacher import Teacher
from sfumato.voting.votes import Voter
from tests.helpers import made_up_population

CLASSES, KEY = 3, Key.from_seed(8)
QUESTIONS = KEY.child("questions").normal(40, 6).float()
PUBLIC = PublicData("questions", Records(QUESTIONS, torch.zeros(len(QUESTIONS))))
TRAINING = Sgd(lr=0.3, epochs=3, batch_size=4, momentum=0.9)
CLIENTS = [made_up_population([9, 14, 0, 5, 22]).client(number).train for number in range(5)]


@pytest.fixture(autouse=True)
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test begins without trained teachers."""
    monkeypatch.setattr(home, "_KNOWN", home._Memory(2**20))


def task_for(clients: Sequence[Records], ids: Sequence[int], round: int = 0, **changed: Any) -> Task:
    module = nn.Linear(6, 3)  # the student's, which no teacher looks at
    layout = Layout.of(module)
    row = layout.row(module)
    facts: dict[str, Any] = {
        "loss": classification(CLASSES).loss,
        "keys": [KEY.child("client", id=number, round=round) for number in ids],
        "lasting": [KEY.child("client", id=number) for number in ids],
    }
    starts = row.expand(len(ids), -1)
    return Task(
        OneByOne(module), layout, params=row, starts=starts, clients=clients, round=round, ids=ids, **facts | changed
    )


def elsewhere(records: Records, places: int) -> Records:
    """The same in memory that begins so many numbers later."""
    return Records(torch.cat([torch.zeros(places), records.x.flatten()])[places:].view_as(records.x), records.y)


def asked(voter: Voter, ids: Sequence[int], round: int = 0) -> dict[int, Tensor]:
    clients = [elsewhere(CLIENTS[number], round) for number in ids]
    found = voter.ballots(task_for(clients, ids, round), QUESTIONS, CLASSES)
    return dict(zip(ids, found, strict=True))


def check_depends_on_the_client_alone(voter: Voter) -> None:
    """To the last bit: whoever is beside it in a block, wherever its records lie, in any round; nothing is kept in between."""
    alone = {number: asked(voter, [number])[number] for number in range(5)}
    for ids, round in (((0, 1, 2, 3, 4), 0), ((4, 3, 1, 2, 0), 3), ((1, 4), 7)):
        home._KNOWN.rows.clear()
        for number, ballot in asked(voter, ids, round).items():
            assert torch.equal(ballot, alone[number]), f"client {number}"


DROPS = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.3), nn.Tanh(), nn.Linear(8, 3))
TEACHERS = [
    Teacher(TRAINING, soft=True),
    Teacher(Sgd(lr=0.1, steps=9, batch_size=5, gradient=SharpnessAware(0.1)), ("logistic", "mlp"), soft=True),
    Teacher(TRAINING, {1: DROPS, None: "logistic"}, soft=True),
    Teacher(TRAINING, DROPS, soft=True, adapt=Coral(PUBLIC)),
    Teacher(TRAINING, DROPS, soft=True, adapt=Adversarial(PUBLIC)),
    Teacher(TRAINING, soft=True, scale=Standardised(PUBLIC)),
    Teacher(TRAINING),
]  # fmt: skip


@pytest.mark.parametrize(
    "teacher", TEACHERS, ids=["logistic", "two", "dropout", "coral", "adversarial", "scaled", "hard"]
)
def test_a_ballot_depends_on_the_client_alone(teacher: Teacher) -> None:
    check_depends_on_the_client_alone(teacher)


@dataclass(frozen=True)
class GoesOn(Teacher):
    """Sabotage: one model for all clients, who train it one after another."""

    def ballots(self, task: Task, questions: Tensor, classes: int) -> Tensor:
        model = build("logistic", (6,), 3, KEY)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(home, "_fresh", lambda *facts: model)
            return super().ballots(task, questions, classes)


def test_a_model_that_clients_share_is_caught() -> None:
    with pytest.raises(AssertionError, match="client"):
        check_depends_on_the_client_alone(GoesOn(TRAINING, soft=True))


def test_each_client_has_its_own_teacher_of_its_own_architecture_and_nobody_votes_without_records() -> None:
    linear, deep = Teacher(TRAINING, soft=True), Teacher(TRAINING, "mlp", soft=True)
    both = asked(Teacher(TRAINING, ["logistic", "mlp"], soft=True), range(5))
    by_number = asked(Teacher(TRAINING, {3: "mlp", None: "logistic"}, soft=True), range(5))
    for number in (0, 1, 3, 4):
        assert torch.equal(both[number], asked(deep if number % 2 else linear, [number])[number])
        assert torch.equal(by_number[number], asked(deep if number == 3 else linear, [number])[number])
    assert not both[2].any() and not torch.equal(both[0], both[4])
    with pytest.raises(BadValue, match="no model for client 1"):
        asked(Teacher(TRAINING, {3: "mlp"}), [1])


def check_memory() -> None:
    """The same teacher is remembered; another key, other data, another setting and another loss are another teacher."""
    teacher = Teacher(TRAINING, soft=True)
    first = teacher.ballots(task_for([CLIENTS[0]], [0]), QUESTIONS, CLASSES)
    again = teacher.ballots(task_for([CLIENTS[0]], [0], 5), QUESTIONS[:7], CLASSES)
    assert len(home._KNOWN.rows) == 1 and torch.equal(first[:, :7], again)
    x, y = CLIENTS[0]
    for voter, task in (
        (teacher, task_for([Records(x, (y + 1) % 3)], [0])),
        (teacher, task_for([CLIENTS[0]], [0], lasting=[KEY])),
        (Teacher(TRAINING, soft=True, adapt=Coral(PUBLIC)), task_for([CLIENTS[0]], [0])),
        (Teacher(Sgd(lr=0.2, epochs=3, batch_size=4), soft=True), task_for([CLIENTS[0]], [0])),
        (teacher, task_for([CLIENTS[0]], [0], loss=lambda outputs, y: 2 * classification(3).loss(outputs, y))),
    ):
        assert not torch.equal(voter.ballots(task, QUESTIONS, CLASSES), first)


def test_memory_spares_training_and_never_gives_another_teacher(monkeypatch: pytest.MonkeyPatch) -> None:
    check_memory()
    monkeypatch.setattr(home, "_KNOWN", small := home._Memory(400))  # four rows of 84 bytes
    asked(Teacher(TRAINING), (0, 1, 3, 4)), asked(Teacher(Sgd(lr=0.2, epochs=1)), (0, 1))
    assert len(small.rows) == 4 and small.left == 400 - 4 * 84


@pytest.mark.parametrize("place", range(3), ids=["key", "settings", "records"])
def test_a_memory_that_forgets_what_it_was_trained_on_is_caught(place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def forgets(*things: object) -> str | None:
        return cache_key(*(thing for at, thing in enumerate(things) if len(things) != 4 or at != place))

    monkeypatch.setattr(home, "cache_key", forgets)
    monkeypatch.setattr(home, "_KNOWN", home._Memory(2**20))
    with pytest.raises(AssertionError):
        check_memory()


SHARP = Sgd(lr=2.0, epochs=30, batch_size=4)


def possible_data(kind: str) -> list[Records]:
    """What a client may have, each the neighbour of each: anything, nothing, labels that all differ, one record of one."""
    drawn = made_up_population([7] * 6, features=2).client
    x = torch.tensor([[1.0, 0.0]] * 4)
    clients = [drawn(number).train for number in range(6)]
    clients += [Records(x, torch.full((4,), label)) for label in range(3)] + [Records(x[:1], torch.tensor([2]))]
    if kind == "attributes":
        rows = torch.tensor([[1, 1, 0, 0], [0, 0, 1, 1], [1, 1, 1, 1], [0, 0, 0, 0]]).float()
        clients = [Records(one.x, rows[(one.y + number) % 4]) for number, one in enumerate(clients)]
    return [*clients, Records(clients[0].x[:0], clients[0].y[:0])]


def farthest(teacher: Teacher, kind: str) -> list[float]:
    """The largest norm and distance found of answers to one query, as shares of what is stated: L2 and L1."""
    classes, questions = (4, torch.tensor([[1.0, 0.0], [0.5, 0.5]])) if kind == "attributes" else (3, torch.eye(2))
    loss: LossPerRecord = multi_label(4).loss if kind == "attributes" else classification(3).loss
    bounds, clients = teacher.bounds(classes), possible_data(kind)
    assert bounds.record == bounds.apart
    task = task_for(clients, [0] * len(clients), loss=loss)  # all of them with the same key
    answers = teacher.ballots(task, questions, classes).double().transpose(0, 1)
    norms = [(answers.norm(order, dim=2), getattr(bounds.norm, f"l{order}")) for order in (2, 1)]
    apart = [(torch.cdist(answers, answers, order), getattr(bounds.apart, f"l{order}")) for order in (2, 1)]
    return [float(found.max()) / stated for found, stated in (*norms, *apart)]


@pytest.mark.parametrize(
    ("kind", "facts"),
    [("hard", {}), ("soft", {"soft": True}), ("attributes", {"attributes": 2}), ("attributes", {"attributes": 3})],
)
def test_no_change_of_a_clients_data_moves_an_answer_beyond_what_is_stated_and_some_reach_it(
    kind: str, facts: dict[str, Any]
) -> None:
    found = farthest(Teacher(SHARP, **facts), kind)
    assert max(found) <= 1.0 + 1e-12 and min(found) >= 0.99, found


@dataclass(frozen=True)
class Outputs(Teacher):
    """Sabotage: probabilities of all attributes, or votes for and against."""

    def votes(self, outputs: Tensor) -> Tensor:
        return outputs.sigmoid() if self.attributes else 2 * super().votes(outputs) - 1


@pytest.mark.parametrize(("kind", "facts"), [("hard", {}), ("attributes", {"attributes": 1})])
def test_ballots_that_are_no_labels_are_caught(kind: str, facts: dict[str, Any]) -> None:
    assert max(farthest(Outputs(SHARP, **facts), kind)) > 1.2


def test_equal_outputs_count_by_number_and_outputs_that_are_not_finite_vote_nothing() -> None:
    outputs = torch.tensor(
        [[1.0, 2, 2, 2], [-1, -1, -1, -1], [3, 3, -3, 1], [torch.nan, 1, 0, 0], [torch.inf, 0, 0, 0]]
    )
    nothing = [[0, 0, 0, 0]] * 2
    hard = [[0, 1, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0], *nothing]
    labels = [[0, 1, 1, 0], [0, 0, 0, 0], [1, 1, 0, 0], *nothing]
    assert Teacher(TRAINING).votes(outputs).tolist() == hard
    assert Teacher(TRAINING, attributes=2).votes(outputs).tolist() == labels
    soft = Teacher(TRAINING, soft=True).votes(outputs)
    assert torch.allclose(soft[:3], outputs[:3].softmax(1), rtol=1e-5) and not soft[3:].any()
    many = Teacher(TRAINING, soft=True).votes(5 * KEY.child("many").normal(2000, 300).float())
    assert many.min() >= 0.0 and many.double().sum(1).max() <= 1.0  # float32's own softmax goes beyond 1


def test_what_cannot_teach_is_refused() -> None:
    example = CLIENTS[0]
    Teacher(TRAINING, ["logistic", "mlp"]).check(3, example)
    with pytest.raises(BadValue, match="each of the 4 classes"):
        Teacher(TRAINING, nn.Linear(6, 3)).check(4, example)
    with pytest.raises(UnsoundRound, match="outside the row"):
        Teacher(TRAINING, nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3))).check(3, example)
    for words, facts in (
        ("no model", {"module": ()}),
        ("Give one of the two", {"soft": True, "attributes": 2}),
        ("plain Sgd", {"training": Sgd(lr=0.1, steps=1, gradient=SharpnessAware()), "adapt": Coral(PUBLIC)}),
    ):
        with pytest.raises(BadValue, match=words):
            Teacher(**{"training": TRAINING} | facts)
    with pytest.raises(BadValue, match="no public records"):
        asked(Teacher(TRAINING, adapt=Coral(None)), [0])
    with pytest.raises(BadValue, match="strength"):
        Coral(PUBLIC, -1.0)


def test_without_strength_adaptation_is_plain_training() -> None:
    plain = asked(Teacher(TRAINING, "mlp", soft=True), [4])[4]
    for adapt in (Coral(PUBLIC, 0.0), Adversarial(PUBLIC, 0.0)):
        assert torch.allclose(asked(Teacher(TRAINING, "mlp", soft=True, adapt=adapt), [4])[4], plain, atol=1e-4)


def test_teachers_on_a_common_scale_do_not_see_the_scale_of_the_features() -> None:
    def votes(scale: float, shift: float, adapt: bool) -> Tensor:
        pool = PublicData("pool", Records(QUESTIONS * scale + shift, torch.zeros(40)))
        teacher = Teacher(TRAINING, soft=True, scale=Standardised(pool), adapt=Coral(pool) if adapt else None)
        clients = [Records(CLIENTS[0].x * scale + shift, CLIENTS[0].y)]
        return teacher.ballots(task_for(clients, [0]), pool.records.x, CLASSES)

    for adapt in (False, True):
        plain = votes(1.0, 0.0, adapt)
        assert torch.allclose(votes(128.0, 50.0, adapt), plain, atol=1e-4)
    uneven = PublicData("uneven", Records(QUESTIONS * torch.arange(1, 7) - 9.0, torch.zeros(40)))
    scaled = Standardised(uneven)(uneven.records.x)
    assert scaled.mean(0).abs().max() < 1e-4 and 0.95 < scaled.std(0).min() <= scaled.std(0).max() < 1.02
    assert Standardised(uneven)(torch.full((1, 6), 1e9)).tolist() == [[5.0] * 6]
    with pytest.raises(BadValue, match="Standardised has no public records"):
        Standardised(None)(QUESTIONS)


def test_the_head_goes_down_its_loss_and_the_teacher_up() -> None:
    own, public = (KEY.child(word).normal(6, 4).float().requires_grad_() for word in ("own", "public"))
    adapt = Adversarial(PUBLIC, 0.5)
    head = adapt.head(4, KEY)
    reversed_ = torch.autograd.grad(adapt.loss(head, own, public), [own, *head.parameters()])
    told = torch.cat([head(own), head(public)]).squeeze(1)
    is_own = torch.tensor([1.0] * 6 + [0.0] * 6)
    straight = torch.autograd.grad(
        nn.functional.binary_cross_entropy_with_logits(told, is_own), [own, *head.parameters()]
    )
    assert torch.allclose(reversed_[0], -0.5 * straight[0], atol=1e-7)
    assert all(torch.allclose(one, two, atol=1e-7) for one, two in zip(reversed_[1:], straight[1:], strict=True))


@pytest.mark.data
def test_adaptation_helps_teachers_in_a_public_domain_of_fainter_digits() -> None:
    digits = load("mnist", allow_download=False).pool
    x = nn.functional.interpolate(
        digits.x[:900, :, 4:24, 4:24].float() / 255, size=(8, 8), mode="bilinear", antialias=True
    )
    faint, labels = 0.4 * x[300:] + 0.2, digits.y[300:900]
    public = PublicData("faint", Records(faint, torch.zeros(600)))

    def accuracy(adapt: Adaptation | None) -> float:
        """The mean over teachers that begin with other weights, which matters more than the adaptation in a single one."""
        teacher = Teacher(Sgd(lr=0.1, epochs=20, batch_size=50, momentum=0.9), "mlp", adapt=adapt)
        own = [Records(x[:300], digits.y[:300])] * 4
        ballots = teacher.ballots(task_for(own, range(4), loss=classification(10).loss), faint, 10)
        return float((ballots.argmax(2) == labels).float().mean())

    plain = accuracy(None)
    assert accuracy(Coral(public, 10.0)) > plain + 0.1
    assert accuracy(Adversarial(public, 0.3)) > plain + 0.1
