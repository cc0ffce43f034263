"""What does not fit together is refused, or adapted, before anything is spent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from sfumato import Everyone, Population, PublicData, Records, classification, evaluate, regression, simulate
from sfumato.adapt_objective import as_objective
from sfumato.errors import SfumatoError
from tests.helpers import dp_round, unchecked

X = torch.linspace(-1, 1, 12).reshape(4, 3)
CLASSES, NUMBERS = torch.tensor([0, 1, 4, 2]), torch.tensor([0.5, 1.0, -1.0, 2.0])


def adapted(loss: nn.Module, outputs: int, y: torch.Tensor) -> Any:
    return as_objective(loss, nn.Linear(3, outputs), X, y)


def test_a_loss_of_torch_becomes_the_objective_that_it_means() -> None:
    assert adapted(nn.CrossEntropyLoss(), 5, CLASSES).name == classification(5).name
    assert adapted(nn.MSELoss(), 1, NUMBERS).name == regression().name
    assert adapted(nn.BCEWithLogitsLoss(), 2, torch.ones(4, 2)).task == "multi-label"


@pytest.mark.parametrize(
    ("loss", "outputs", "y"),
    [
        (nn.CrossEntropyLoss(label_smoothing=0.1), 5, CLASSES),
        (nn.CrossEntropyLoss(weight=torch.arange(1.0, 6.0)), 5, CLASSES),
        (nn.L1Loss(), 1, NUMBERS),
        (nn.HuberLoss(), 2, torch.ones(4, 2)),
        (nn.BCEWithLogitsLoss(pos_weight=torch.tensor([2.0, 3.0])), 2, torch.ones(4, 2)),
    ],
    ids=repr,
)
def test_its_loss_of_a_record_is_that_of_a_batch_of_one(loss: nn.Module, outputs: int, y: torch.Tensor) -> None:
    model = nn.Linear(3, outputs)
    found = as_objective(loss, model, X, y).loss(model(X), y)
    single = type(loss)(**_settings(loss), reduction="sum")
    alike = [
        model(X[n : n + 1]).reshape(y[n : n + 1].shape) if y.is_floating_point() else model(X[n : n + 1])
        for n in range(4)
    ]
    each = torch.stack([single(out, y[n : n + 1]) for n, out in enumerate(alike)]) / max(1, y[0].numel())
    assert found.shape == (4,) and torch.allclose(found, each)


def _settings(loss: nn.Module) -> dict[str, Any]:
    words = ("label_smoothing", "weight", "pos_weight", "delta")
    return {name: getattr(loss, name) for name in words if getattr(loss, name, None) is not None}


def test_a_bare_cross_entropy_trains_as_classification_does() -> None:
    population = Population.from_list([(X, CLASSES)] * 6, name="six")
    rows = []
    for objective in (nn.CrossEntropyLoss(), classification(5)):
        torch.manual_seed(0)
        run = simulate(dp_round(), population, nn.Linear(3, 5), objective, rounds=2, seed=0)
        rows.append(list(run)[-1].params)
    assert torch.equal(*rows)


SIX = Population.from_list([(X, CLASSES - CLASSES)] * 5 + [(X, CLASSES)], name="six")
PICTURES = Population.from_list([(torch.zeros(4, 1, 8, 8), CLASSES)] * 6, name="pictures")
WORDS = Population.from_list([(torch.zeros(4, 8, dtype=torch.int64), CLASSES)] * 6, name="words")


@pytest.mark.parametrize(
    ("population", "module", "objective", "words"),
    [
        (SIX, nn.Linear(3, 3), classification(3), "client 5 of 'six', record 2: a label is not among 0 to 2"),
        (SIX, nn.Linear(3, 3), nn.CrossEntropyLoss(), "client 5 of 'six', record 2: a label is not among 0 to 2"),
        (SIX, nn.Linear(3, 7), classification(5), "Give its last layer 5 outputs"),
        (SIX, nn.Linear(3, 5), nn.functional.cross_entropy, "Give classification(classes)"),
        (SIX, nn.Linear(3, 5), "classification", "a str. Give classification(classes)"),
        (SIX, "logistic", nn.CrossEntropyLoss(), "Give classification(classes)"),
        (SIX, nn.Linear(3, 1), nn.BCEWithLogitsLoss(), "y.unsqueeze(-1)"),
        (SIX, nn.Linear(3, 5), nn.KLDivLoss(), "is not adapted"),
        (
            PICTURES,
            nn.Sequential(nn.Embedding(80, 4), nn.Flatten(), nn.Linear(256, 5)),
            classification(5),
            "looks up whole",
        ),
        (WORDS, nn.Linear(8, 5), classification(5), "x.float()"),
        (PICTURES, "char-lstm", classification(5), "takes windows"),
    ],
)
def test_nothing_is_reserved_for_what_does_not_fit(
    population: Population, module: Any, objective: Any, words: str, tmp_path: Path
) -> None:
    with unchecked(), pytest.raises(SfumatoError) as caught:
        simulate(dp_round(sample=Everyone()), population, module, objective, rounds=1, folder=tmp_path / "run")
    assert words in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_labels_of_the_test_data_are_looked_at_first(tmp_path: Path) -> None:
    clients = Population.from_list([(X, CLASSES.clamp(max=2))] * 6, name="six")
    test = PublicData("six/test", Records(X, CLASSES))
    with pytest.raises(SfumatoError, match="the test data 'six/test', record 2: a label is not among 0 to 2"):
        simulate(dp_round(), clients, nn.Linear(3, 3), classification(3), rounds=1, test=test, folder=tmp_path / "run")
    assert evaluate(nn.Linear(3, 3), Records(X, CLASSES.clamp(max=2)), classification(3))["loss"] > 0
