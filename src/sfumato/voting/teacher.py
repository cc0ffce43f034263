"""Teachers: each client trains a model of its own once, and votes with its predictions (PATE, Papernot et al. 2017, 2018)."""

from __future__ import annotations

import copy
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sfumato.data.population import Records
from sfumato.digest import cache_key
from sfumato.errors import BadValue
from sfumato.gradients import LossPerRecord, OneByOne
from sfumato.key import Key
from sfumato.local.sgd import Sgd
from sfumato.local.task import Task
from sfumato.models import build, training_mode
from sfumato.models.check import check_module
from sfumato.pieces.protocol import LocalPiece
from sfumato.shapes import Row
from sfumato.update import Layout
from sfumato.voting.adaptation import Adaptation, Standardised, train_toward
from sfumato.voting.votes import Bounds, Voter

Architecture: TypeAlias = str | nn.Module
_PUBLIC = Key.from_seed(0).child("teacher")  # of the weights that all teachers begin with
_AT_ONCE = 1000  # questions
_BELOW = 1.0 - 2.0**-20  # more than what rounding to float32 can add to a sum


@dataclass(frozen=True)
class Teacher(Voter):
    """A client's model, trained on its own records alone, votes for the class that it predicts.

    `training` is any local training of rows. `module` is a model's name or a module, or several: a sequence in turn, client c
    the one at c modulo its length, or a mapping from client numbers, None for all others. `soft` votes with the predicted
    probabilities; `attributes` with up to so many labels, those of the largest positive outputs. Equal outputs count by their
    number, the lowest first; outputs that are not finite, and a client without records, vote nothing. `adapt` makes teachers
    learn toward public records, and `scale` brings all inputs to a common scale.

    A teacher's key stays the same for the whole run: later rounds, and a run that is resumed, ask the same teacher.

    States, for one query, what `Bounds.of_labels` proves: a ballot is not negative and adds up to at most 1 (one label, or
    probabilities, scaled by 1 - 2^-20 so that rounding cannot lift their sum above 1); or it is 1 for at most `attributes`
    labels and 0 for the rest. One record may turn the whole model, so it moves a ballot as far as any two are apart. Nothing of
    this depends on the training.

    Each client is trained and asked alone, in memory of its own: an arg max turns the last bit of an output into a whole vote,
    and that bit depends on the block of clients that is computed at once.
    """

    training: LocalPiece
    module: Architecture | Sequence[Architecture] | Mapping[int | None, Architecture] = "logistic"
    soft: bool = False
    attributes: int = 0
    adapt: Adaptation | None = None
    scale: Standardised | None = None

    def __post_init__(self) -> None:
        if not self.all_modules:
            raise BadValue("Teacher(module=()): no model. Give a name, e.g. 'logistic', a module, or several of them.")
        if self.attributes < 0 or (self.attributes and self.soft):
            raise BadValue(
                f"Teacher(attributes={self.attributes}, soft={self.soft}): attributes is at least 0, and each is voted for or not. "
                "Give one of the two."
            )
        if self.adapt is not None and not _plain(self.training):
            raise BadValue(
                f"Teacher(training={self.training}): adaptation takes the steps of plain Sgd, without a sharpness-aware gradient, "
                "penalties or a ball. Give Sgd(lr, epochs=...), or leave adapt out."
            )

    @property
    def all_modules(self) -> tuple[Architecture, ...]:
        if isinstance(self.module, str | nn.Module):
            return (self.module,)
        return tuple(self.module.values() if isinstance(self.module, Mapping) else self.module)

    @property
    def by_number(self) -> bool:
        return len(self.all_modules) > 1 or self.training.by_number

    def of_client(self, client: int) -> Architecture:
        """The client's architecture."""
        if isinstance(self.module, Mapping):
            if client not in self.module and None not in self.module:
                raise BadValue(f"Teacher: no model for client {client}. Name one for all others under None.")
            return self.module[client if client in self.module else None]
        return self.all_modules[client % len(self.all_modules)]

    def bounds(self, classes: int) -> Bounds:
        return Bounds.of_labels(classes, min(self.attributes, classes))

    def check(self, classes: int, example: Records) -> None:
        """Refuse models that keep state outside their parameters, or that do not answer with one number per class."""
        if self.attributes > classes:
            raise BadValue(f"Teacher(attributes={self.attributes}): there are {classes} of them. Cut to fewer.")
        for architecture in self.all_modules:
            module, x = _fresh(architecture, example.x, classes), self._scaled(example.x)
            check_module(module, x)
            _outputs(module, x, classes)

    def ballots(self, task: Task, questions: Tensor, classes: int) -> Tensor:
        votes = torch.zeros(len(task.clients), len(questions), classes, device=questions.device)
        trained_by = type(self), self.training, self.module, self._public, task.loss, classes, torch.get_num_threads()
        questions, settings = self._scaled(questions), None if self._public is None else cache_key(*trained_by)
        for place, records in enumerate(task.clients):
            if records.count:
                module = self._taught(task.only(place), classes, settings)
                votes[place] = self.votes(_outputs(module, questions, classes))
        return votes

    def _taught(self, task: Task, classes: int, settings: str | None) -> nn.Module:
        """The teacher of one client, from memory if the same was trained before on the same data with the same key."""
        x, y = (part.clone() for part in task.clients[0])  # where they lay could change how they are rounded
        records = Records(self._scaled(x), y)
        client, (key,) = task.ids[0] if task.ids else 0, task.lasting or task.keys
        name = None if settings is None else cache_key(key.digest, settings, records, client)
        row = None if name is None else _KNOWN.get(name)
        if row is None:
            row = self._trained(_fresh(self.of_client(client), records.x, classes), task.loss, records, key, client)
            if name is not None:
                _KNOWN.put(name, row)
        module = _fresh(self.of_client(client), records.x, classes)
        Layout.of(module).write(row, module)
        return module

    def _scaled(self, x: Tensor) -> Tensor:
        return x if self.scale is None else self.scale(x)

    @cached_property
    def _public(self) -> str | None:
        """The digest of what is public and long, and does not change."""
        return cache_key(self.adapt, self.scale)

    def _trained(self, module: nn.Module, loss: LossPerRecord, records: Records, key: Key, client: int) -> Row:
        layout, key = Layout.of(module), key.child("teacher")
        if self.adapt is not None:
            assert isinstance(self.training, Sgd), "checked above"
            train_toward(self.adapt, self._scaled, self.training, module, loss, records, key)
            return layout.row(module)
        start = layout.row(module)
        task = Task(OneByOne(module), layout, loss, start, start[None], [records], [key], 0, [client])
        return start + self.training.train(task)[0]

    def votes(self, outputs: Tensor) -> Tensor:
        """Ballots [questions, classes] from a model's outputs."""
        if self.attributes:
            first = outputs.sort(dim=1, descending=True, stable=True).indices[:, : self.attributes]
            votes = torch.zeros_like(outputs).scatter_(1, first, 1.0) * (outputs > 0.0)
        elif self.soft:
            votes = outputs.double().softmax(1) * _BELOW
        else:
            votes = F.one_hot(outputs.argmax(1), outputs.shape[1])
        return torch.where(outputs.isfinite().all(1, keepdim=True), votes.float(), 0.0)


def _plain(training: LocalPiece) -> bool:
    """Whether a step goes along the gradient of a batch, and nothing else."""
    return isinstance(training, Sgd) and not (training.gradient or training.penalties or training.project)


@lru_cache(maxsize=8)
def _named(name: str, shape: tuple[int, ...], classes: int) -> nn.Module:
    return build(name, shape, classes, _PUBLIC)


def _fresh(architecture: Architecture, x: Tensor, classes: int) -> nn.Module:
    """A copy that nobody else holds: what a model might keep of one client's records reaches no other."""
    if isinstance(architecture, str):
        architecture = _named(architecture, tuple(x.shape[1:]), classes)
    return training_mode(copy.deepcopy(architecture).to(x.device))


def _outputs(module: nn.Module, questions: Tensor, classes: int) -> Tensor:
    module.eval()
    with torch.no_grad():
        outputs = torch.cat([module(some) for some in torch.split(questions, _AT_ONCE)])
    if outputs.shape != (len(questions), classes):
        raise BadValue(
            f"a teacher answers {len(questions)} questions by {tuple(outputs.shape)} numbers. Give it one output for each of "
            f"the {classes} classes."
        )
    return outputs


class _Memory:
    """Trained rows of this process, the last used ones up to so many bytes; training again gives the same."""

    def __init__(self, bytes_: int) -> None:
        self.left, self.rows, self.lock = bytes_, OrderedDict[str, Row](), threading.Lock()

    def get(self, name: str) -> Row | None:
        with self.lock:
            if name in self.rows:
                self.rows.move_to_end(name)
            return self.rows.get(name)

    def put(self, name: str, row: Row) -> None:
        with self.lock:
            if name not in self.rows:
                self.rows[name] = row
                self.left -= row.nbytes
            while self.left < 0:
                self.left += self.rows.popitem(last=False)[1].nbytes


_KNOWN = _Memory(2**28)
