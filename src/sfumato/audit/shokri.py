"""Membership by a network that learns from shadows what models say of records that they have seen (Shokri et al. 2017)."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
import torch
from torch import Tensor

from sfumato.audit.attack import Found, Keep, Subject, Tell, outputs_of
from sfumato.audit.membership import OfRun
from sfumato.audit.shadows import Seen
from sfumato.errors import BadValue
from sfumato.key import Key
from sfumato.update import Layout

_MOST_LESSONS = 200_000  # answers of shadows that the networks learn from
_FEWEST_OF_CLASS = 100  # below it a class has no network of its own
Judge: TypeAlias = Callable[[np.ndarray], np.ndarray]  # from answers to log-odds
_LEAST = -20.0  # logarithms of probabilities below it are all alike


@dataclass(frozen=True)
class Shokri(OfRun):
    """For each class a small network tells, from the probabilities that a model gives to all classes, whether it saw the record.

    It learns from the shadows, of which the attacker knows. A unit's score is the mean log-odds over its records.
    """

    name: ClassVar[str] = "shokri"
    in_turn: ClassVar[bool] = False
    summary: ClassVar[str] = "a network that learns from shadows what models say of members (Shokri et al. 2017)"
    hidden: int = 64
    passes: int = 20

    def __call__(self, subject: Subject, keep: Keep, tell: Tell) -> Found:
        if subject.prepared.objective.task != "classification":
            raise BadValue(
                f"shokri: the run learns {subject.prepared.objective.name}, not classes. Use lira, which needs a loss only."
            )
        return self.found(self, subject, keep, tell)

    def scores(self, seen: Seen, keep: Keep, key: Key, tell: Tell) -> np.ndarray:
        if seen.shadows < 2:
            raise BadValue(f"shokri: {seen.shadows} shadows, and there is nothing to learn from. Use at least 2.")
        lessons, told, classes = _lessons(seen, key)
        asked, labels = _answers(seen, seen.models[-1], None), seen.world.units.records.y.numpy()
        odds = np.zeros(len(labels))
        tell("networks learn from what the shadows say")
        everybody: Judge | None = None
        for label in np.unique(labels):
            own, wanted = classes == label, labels == label
            if own.sum() >= _FEWEST_OF_CLASS and 0 < told[own].sum() < own.sum():
                judge = _learn(lessons[own], told[own], self, key.child("network", label=int(label)))
            else:
                judge = everybody = everybody or _learn(lessons, told, self, key.child("network"))
            odds[wanted] = judge(asked[wanted])
        return seen.world.units.means(torch.from_numpy(odds)).numpy()


def _answers(seen: Seen, model: Tensor, rows: Tensor | None) -> np.ndarray:
    """What a model says of records: the logarithms of the probabilities of all classes, the looks side by side."""
    module, layout, x = copy.deepcopy(seen.world.module), Layout.of(seen.world.module), seen.world.units.records.x
    x = x if rows is None else x.index_select(0, rows)
    said = []
    for look in model:
        layout.write(look, module)
        said.append(outputs_of(module, x).double().log_softmax(1).clamp(min=_LEAST))
    return torch.cat(said, dim=1).numpy()


def _lessons(seen: Seen, key: Key) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Answers of all shadows to some records, whether each had seen the record, and its class."""
    units = seen.world.units
    count = min(units.records.count, max(1, _MOST_LESSONS // seen.shadows))
    answers, told, classes = [], [], []
    for number in range(seen.shadows):
        order = key.child("lessons", shadow=number).permutations(1, units.records.count)[0][:count]
        rows = torch.from_numpy(np.sort(order))
        answers.append(_answers(seen, seen.models[number], rows))
        told.append(seen.inside[number][units.owner[rows]].numpy())
        classes.append(units.records.y[rows].numpy())
    return np.concatenate(answers), np.concatenate(told), np.concatenate(classes)


def _learn(answers: np.ndarray, told: np.ndarray, attack: Shokri, key: Key) -> Judge:
    """A network with one hidden layer, from answers to log-odds."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    seed = int(key.integers(1)[0] % 2**32)
    network = MLPClassifier((attack.hidden,), max_iter=attack.passes, random_state=seed)
    pipeline: Any = make_pipeline(StandardScaler(), network)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # so many passes, and no more
        pipeline.fit(answers, told)

    def odds(asked: np.ndarray) -> np.ndarray:
        sure = pipeline.predict_log_proba(asked)
        return np.asarray(sure[:, 1] - sure[:, 0])

    return odds
