from __future__ import annotations

import math
import pickle

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as reference
from torch import Tensor, nn

from sfumato.data import Records
from sfumato.errors import BadValue, DataError
from sfumato.key import Key
from sfumato.measures import cross_entropy
from sfumato.objective import (
    Objective,
    check_loss,
    classification,
    evaluate,
    multi_label,
    next_character,
    regression,
)

KEY = Key.from_seed(0)


def normal(*shape: int, name: str = "x") -> Tensor:
    return KEY.child(name).normal(*shape).float()


def whole(count: int, below: int, name: str = "y") -> Tensor:
    return torch.from_numpy((KEY.child(name).uniform(count) * below).astype("int64"))


def identity(x: Tensor) -> Tensor:
    return x


PROBLEMS = {
    "classification": (classification(5), Records(normal(97, 5), whole(97, 4))),
    "regression": (regression(), Records(normal(97, 1), normal(97, name="y"))),
    "regression of three": (regression(), Records(normal(97, 3), normal(97, 3, name="y"))),
    "characters": (next_character(6, padding=0), Records(normal(97, 8, 6), whole(97 * 8, 6).reshape(97, 8))),
    "one character": (next_character(6), Records(normal(97, 6), whole(97, 6))),
    "labels": (multi_label(4), Records(normal(97, 4), whole(97 * 4, 2).reshape(97, 4))),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_batch_size_changes_nothing(name: str) -> None:
    objective, records = PROBLEMS[name]
    expected = evaluate(identity, records, objective, batch_size=1000)
    assert objective.primary in expected and "loss" in expected
    for batch_size in (1, 10, 97):
        assert evaluate(identity, records, objective, batch_size) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("name", PROBLEMS)
def test_losses_are_per_record_with_gradients_and_under_vmap(name: str) -> None:
    objective, records = PROBLEMS[name]
    outputs = records.x.clone().requires_grad_()
    losses = check_loss(objective, outputs, records.y)
    assert losses.shape == (97,)
    (gradient,) = torch.autograd.grad(losses[3], outputs)
    assert gradient[3].abs().sum() > 0 and gradient[:3].abs().sum() == 0 and gradient[4:].abs().sum() == 0
    blocks = torch.func.vmap(objective.loss)(records.x[:96].unflatten(0, (8, 12)), records.y[:96].unflatten(0, (8, 12)))
    assert torch.allclose(blocks.flatten(), losses[:96], atol=1e-6)


@pytest.mark.parametrize("name", PROBLEMS)
def test_without_records_every_number_is_nan(name: str) -> None:
    objective, records = PROBLEMS[name]
    found = evaluate(identity, Records(records.x[:0], records.y[:0]), objective)
    assert found and all(math.isnan(value) for value in found.values())


@pytest.mark.parametrize("name", PROBLEMS)
def test_objectives_can_be_sent_to_another_process(name: str) -> None:
    objective, records = PROBLEMS[name]
    assert evaluate(identity, records, pickle.loads(pickle.dumps(objective))) == evaluate(identity, records, objective)


def test_classification_is_that_of_scikit_learn() -> None:
    objective, (outputs, y) = PROBLEMS["classification"]
    found, said = evaluate(identity, Records(outputs, y), objective), outputs.argmax(-1)
    assert found["accuracy"] == pytest.approx(reference.accuracy_score(y, said))
    recalls = reference.recall_score(y, said, average=None, labels=[0, 1, 2, 3])
    assert found["balanced_accuracy"] == pytest.approx(recalls.mean())
    assert found["macro_f1"] == pytest.approx(reference.f1_score(y, said, average="macro"))
    assert found["loss"] == pytest.approx(float(F.cross_entropy(outputs, y)), rel=1e-6)


@given(scale=st.sampled_from([0.0, 1e-3, 1.0, 1e3]), classes=st.integers(2, 30))
def test_cross_entropy_is_that_of_torch(scale: float, classes: int) -> None:
    outputs, y = normal(20, classes) * scale, whole(20, classes)
    mine, theirs = (outputs.clone().requires_grad_() for _ in range(2))
    ours, expected = cross_entropy(mine, y), F.cross_entropy(theirs, y, reduction="none")
    assert torch.allclose(ours, expected, rtol=1e-5, atol=1e-5 * max(scale, 1))
    ours.sum().backward()
    expected.sum().backward()
    assert mine.grad is not None and theirs.grad is not None
    assert torch.allclose(mine.grad, theirs.grad, atol=1e-6 * max(scale, 1))


@pytest.mark.parametrize("name", ["regression", "regression of three"])
def test_regression_is_that_of_scikit_learn(name: str) -> None:
    objective, records = PROBLEMS[name]
    found, said = evaluate(identity, records, objective), records.x.reshape(records.y.shape)
    assert found["mse"] == pytest.approx(reference.mean_squared_error(records.y, said), rel=1e-6)
    assert found["mae"] == pytest.approx(reference.mean_absolute_error(records.y, said), rel=1e-6)
    assert found["r2"] == pytest.approx(reference.r2_score(records.y, said), rel=1e-6)
    assert found["loss"] == pytest.approx(found["mse"], rel=1e-6)


def test_multi_label_is_that_of_scikit_learn() -> None:
    objective, (outputs, y) = PROBLEMS["labels"]
    found, said = evaluate(identity, Records(outputs, y), objective), (outputs > 0).long()
    assert found["accuracy"] == pytest.approx(1 - reference.hamming_loss(y, said))
    assert found["exact_match"] == pytest.approx(reference.accuracy_score(y, said))
    assert found["micro_f1"] == pytest.approx(reference.f1_score(y, said, average="micro"))
    assert found["macro_f1"] == pytest.approx(reference.f1_score(y, said, average="macro"))
    assert found["loss"] == pytest.approx(float(F.binary_cross_entropy_with_logits(outputs, y.float())), rel=1e-6)


def test_padding_counts_neither_in_the_loss_nor_in_the_accuracy() -> None:
    outputs, y = normal(2, 4, 6), torch.tensor([[1, 2, 0, 0], [0, 0, 0, 0]])
    objective = next_character(6, padding=0)
    losses = objective.loss(outputs, y)
    assert float(losses[0]) == pytest.approx(float(F.cross_entropy(outputs[0, :2], y[0, :2])), rel=1e-5)
    assert float(losses[1]) == 0
    outside = next_character(6, padding=-1)
    assert torch.allclose(outside.loss(outputs, torch.where(y == 0, -1, y)), losses)
    right = F.one_hot(y, 6).float()
    assert objective.summary(objective.metrics(right, y))["accuracy"] == 1
    assert int(objective.metrics(right, y)["characters"]) == 2


def test_a_users_own_objective() -> None:
    mine = Objective(
        loss=lambda outputs, y: (outputs.squeeze(-1) - y).abs(),
        metrics=lambda outputs, y: {"loss": (outputs.squeeze(-1) > y).sum(), "records": torch.tensor(len(y))},
        summary=lambda sums: {"above": float(sums["loss"] / sums["records"])},
        primary="above",
    )
    found = evaluate(identity, Records(torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([0.0, 4.0, 1.0])), mine, 2)
    assert found == pytest.approx({"loss": 5 / 3, "above": 2 / 3})
    bare = Objective(loss=lambda outputs, y: outputs.square().sum(-1))
    assert list(evaluate(identity, Records(torch.ones(3, 2), torch.zeros(3)), bare)) == ["loss"]


@pytest.mark.parametrize(
    "loss", [F.cross_entropy, lambda outputs, y: 1.0, lambda outputs, y: F.one_hot(y, 5) * outputs]
)
def test_a_loss_that_is_not_per_record_is_refused_with_its_fix(loss: object) -> None:
    records = PROBLEMS["classification"][1]
    with pytest.raises(BadValue, match="one number per record.*reduction='none'"):
        evaluate(identity, records, Objective(loss=loss))  # type: ignore[arg-type]


def test_a_module_is_evaluated_in_evaluation_mode_and_left_as_it_was() -> None:
    model = nn.Sequential(nn.Linear(5, 5), nn.Dropout(0.9), nn.Dropout(0.9))
    model[2].eval()
    objective, records = PROBLEMS["classification"]
    assert evaluate(model, records, objective) == evaluate(model, records, objective)
    assert [layer.training for layer in model.modules()] == [True, True, True, False]


def test_shapes_and_labels_that_do_not_fit_are_refused() -> None:
    five = Records(normal(9, 5), whole(9, 5))
    for objective, records, words in [
        (classification(6), five, "5 outputs for 6 classes"),
        (next_character(6), five, "5 outputs for 6 characters"),
        (multi_label(5), Records(normal(9, 5), torch.zeros(9, 5)[:, :4]), "size|shape"),
        (classification(5), Records(normal(9, 5), torch.zeros(9)), "targets of torch.float32 and shape"),
        (classification(5), Records(normal(9, 5), whole(9, 5).unsqueeze(-1)), "are no classes"),
        (
            regression(),
            Records(normal(9, 2), normal(9)),
            r"outputs of shape \(9, 2\) do not match targets of shape \(9,\)",
        ),
    ]:
        with pytest.raises((BadValue, ValueError), match=words):
            evaluate(identity, records, objective)
    with pytest.raises(DataError, match="not among 0 to 4, the 5 classes"):
        classification(5).metrics(normal(2, 5), torch.tensor([0, 7]))
    with pytest.raises(BadValue, match="batch_size=0"):
        evaluate(identity, five, classification(5), 0)
    for make in (lambda: classification(1), lambda: next_character(1), lambda: multi_label(0)):
        with pytest.raises(BadValue, match="at least"):
            make()
