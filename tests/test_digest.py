"""Digests: equal values have one in every process, whatever differs has another, and what has no import path is not cached."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from sfumato import Population, PublicData, Records, Sgd
from sfumato.audit.attack import Keep
from sfumato.audit.local_world import LocalWorld
from sfumato.audit.shadows import shadows_of
from sfumato.data.load import load
from sfumato.digest import Unnamed, cache_key, digest
from sfumato.features import Features, cached
from sfumato.key import Key
from sfumato.measures import cross_entropy
from sfumato.objective import Objective, classification, multi_label, next_character, regression
from sfumato.voting import teacher
from sfumato.voting.adaptation import Standardised
from sfumato.voting.teacher import Teacher
from tests.helpers import made_up_population
from tests.voting.test_teacher import task_for


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Piece:
    norm: float
    other: Any = None
    unseen: Any = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class Twin:
    norm: float
    other: Any = None


class Hooked:
    def __init__(self, name: str) -> None:
        self.name, self.lock = name, object()

    def facts(self) -> object:
        return {"name": self.name}


class Scaled(nn.Module):
    """A layer whose factor neither its parameters nor its text show."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


def doubling(row: Any, by: float = 2.0) -> Any:
    return row * by


def halving(row: Any) -> Any:
    return row / 2


def layers(*more: nn.Module) -> nn.Module:
    module = nn.Sequential(nn.Linear(2, 2), *more)
    for parameter in module.parameters():
        nn.init.ones_(parameter)
    return module


def weighted(weight: float) -> nn.Module:
    module = layers()
    for parameter in module.parameters():
        nn.init.constant_(parameter, weight)
    return module


def tied(alike: bool) -> nn.Module:
    module = layers(nn.Linear(2, 2))
    assert isinstance(module, nn.Sequential)
    for parameter in module.parameters():
        nn.init.ones_(parameter)
    if alike:
        module[1].weight = module[0].weight
    return module


def frozen(module: nn.Module) -> nn.Module:
    return module.requires_grad_(False)


def flipped(bit: int) -> Tensor:
    """64 bytes of which one bit differs."""
    content = np.zeros(64, np.uint8)
    content[bit // 8] = 1 << bit % 8
    return torch.from_numpy(content).view(torch.float32)


def recurrent() -> nn.Module:
    with Key.from_seed(0).seeding_torch():
        return nn.LSTM(2, 3)


X, Y = torch.ones(2, 2), torch.zeros(2)
# Things of which no two are equal, though most pairs look alike or print alike.
DIFFERENT: dict[str, tuple[Any, Any]] = {
    "whole and broken": (1, 1.0),
    "truth and one": (True, 1),
    "number and text": (1, "1"),
    "text and bytes": ("1", b"1"),
    "neighbouring floats": (0.1, 0.1 + 2**-56),
    "signs of zero": (0.0, -0.0),
    "tuple and list": ((1, 2), [1, 2]),
    "order": ([1, 2], [2, 1]),
    "nesting": (((1,), 2), (1, (2,))),
    "keys": ({1: 2}, {2: 1}),
    "members": ({*"abcdefgh"}, {*"abcdefgk"}),
    "enums": (Colour.RED, Colour.BLUE),
    "enum and text": (Colour.RED, "red"),
    "fields": (Piece(1.0), Piece(2.0)),
    "places of fields": (Piece(1.0, 2.0), Piece(2.0, 1.0)),
    "classes of one form": (Piece(1.0), Twin(1.0)),
    "names by facts": (Hooked("a"), Hooked("b")),
    "shapes": (torch.zeros(2, 3), torch.zeros(3, 2)),
    "types": (torch.zeros(2), torch.zeros(2, dtype=torch.int32)),
    "a bit": (flipped(7), flipped(300)),
    "arrays": (np.zeros(2, np.int32), np.zeros(1, np.int64)),
    "types of tensors": (torch.float32, torch.float64),
    "records": (Records(X, Y), Records(Y, X)),
    "names of inputs": (Records({"a": X}, Y), Records({"b": X}, Y)),
    "public data": (PublicData("one", Records(X, Y)), PublicData("one", Records(X + 1, Y))),
    "functions": (doubling, halving),
    "functions of torch": (torch.relu, torch.tanh),
    "functions of numpy": (np.log1p, np.expm1),
    "arguments": (functools.partial(doubling, by=1.0), functools.partial(doubling, by=3.0)),
    "weights": (layers(), weighted(2.0)),
    "activations": (layers(nn.ReLU()), layers(nn.Tanh())),
    "slopes": (layers(nn.LeakyReLU(0.1)), layers(nn.LeakyReLU(0.2))),
    "attributes": (Scaled(1.0), Scaled(2.0)),
    "modes": (layers().train(), layers().eval()),
    "what trains": (layers(), frozen(layers())),
    "tied weights": (tied(True), tied(False)),
    "recurrent layers": (recurrent(), nn.LSTM(2, 3, bidirectional=True)),
}


@pytest.mark.parametrize(("one", "other"), DIFFERENT.values(), ids=DIFFERENT)
def test_what_differs_has_another_digest(one: Any, other: Any) -> None:
    assert digest(one) != digest(other)
    assert all(digest(thing) == digest(thing) and len(digest(thing)) == 32 for thing in (one, other))


def test_each_bit_of_a_tensor_counts() -> None:
    assert len({digest(flipped(bit)) for bit in range(512)}) == 512


def test_equal_values_have_one_digest() -> None:
    assert digest({3, 1, 2}) == digest({2, 3, 1}) == digest(frozenset((1, 2, 3)))
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1}) == digest(OrderedDict(b=2, a=1))
    assert digest(torch.ones(4, 2).t()) == digest(torch.ones(2, 4)) == digest(nn.Parameter(torch.ones(2, 4)))
    assert digest(np.ones((4, 2)).T) == digest(np.ones((2, 4)))
    assert digest(Piece(1.0, unseen=object())) == digest(Piece(1.0))
    assert digest(recurrent()) == digest(recurrent())


def test_a_second_process_finds_the_same_digests() -> None:
    script = "import tests.test_digest as t; print(*(t.digest(x) for n in t.SENT for x in t.DIFFERENT[n]))"
    found = [
        subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            cwd=Path(__file__).parents[1],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
        ).stdout.split()
        for seed in ("1", "2")
    ]
    assert found[0] == found[1] == [digest(thing) for name in SENT for thing in DIFFERENT[name]]


SENT = [name for name in DIFFERENT if name != "recurrent layers"]  # one of the two has random weights


def test_plain_things_need_no_torch() -> None:
    script = (
        "import sys; from sfumato.digest import digest; digest(1, 'a', [2.0], len); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_digests_that_ledgers_hold_stay() -> None:
    """Written by an older version: other values here, and no ledger knows its clients any more."""
    assert digest("ids", '["a", 1]') == "a199c651d279c648b15c3b63e4e54d4e"
    assert digest("natural", "celeba", ("ann", "bob"), 2, "k") == "55793ee46f781dcf19f2735c310e07f5"
    assert digest("iid", "digits", "s", 10, None, 0.5) == "e787d2cfffa8df067f8ad067552d74d0"
    assert digest("files", ["a.pt", "b.pt"]) == "694053dee79e0878c0c4ad5cf9755e12"
    assert load("digits").stored == "75535f6e594cee606bf3964a74e34273"
    assert Population.from_list([(X, Y)] * 2, ids=["a", 1]).identity == "a199c651d279c648b15c3b63e4e54d4e"


def local() -> dict[str, Any]:
    class Own(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * x

    @dataclass(frozen=True)
    class Part:
        norm: float = 1.0

    def inner(x: Tensor) -> Tensor:
        return 2 * x

    return {
        "lambda": lambda x: 2 * x,
        "inner function": inner,
        "class": Own,
        "module": Own(),
        "layer": nn.Sequential(nn.Linear(2, 2), Own()),
        "piece": Part(),
        "field": Piece(1.0, inner),
        "partial": functools.partial(inner),
        "object": object(),
        "array of objects": np.array([object()]),
        "generator": (number for number in ()),
    }


@pytest.mark.parametrize("name", local())
def test_what_has_no_import_path_is_unnamed(name: str) -> None:
    with pytest.raises(Unnamed):
        digest(1, [local()[name]])
    assert cache_key(local()[name]) is None


def test_a_script_has_no_import_path() -> None:
    """Another process has its own `__main__`, and a notebook may define the name again."""
    script = "from sfumato.digest import cache_key\ndef loss(x): return x\nprint(cache_key(loss), cache_key(1))"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["None", digest(1)]


@pytest.mark.parametrize(
    "objective",
    [classification(3), regression(), next_character(9), next_character(9, padding=0), multi_label(2)],
    ids=lambda one: one.name,
)
def test_the_librarys_objectives_are_named(objective: Objective) -> None:
    assert cache_key(objective) is not None


@pytest.mark.parametrize("named", [True, False])
def test_features_of_an_unnamed_function_are_made_and_not_kept(named: bool, tmp_path: Path) -> None:
    factor = [2.0]
    own: Callable[[Tensor], Tensor] = Scaled(2.0) if named else lambda x: factor[0] * x.flatten(1)
    pool = torch.arange(6.0).reshape(3, 2)
    assert torch.equal(cached(Features((own,)), pool, tmp_path), 2 * pool)
    factor[0] = 3.0
    assert torch.equal(cached(Features((own,)), pool, tmp_path), (2 if named else 3) * pool)
    assert len(list(tmp_path.iterdir())) == named


@pytest.mark.parametrize("named", [True, False])
def test_a_teacher_with_an_unnamed_loss_is_trained_each_time(named: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(teacher, "_KNOWN", known := teacher._Memory(2**20))
    sign = [1.0]
    own = cross_entropy if named else lambda outputs, y: sign[0] * cross_entropy(outputs, y)
    voter, records = Teacher(Sgd(lr=0.5, epochs=3), soft=True), made_up_population([9], features=2).client(0).train
    task = task_for([records], [0], loss=own)
    first = voter.ballots(task, torch.eye(2), 3)
    sign[0] = -1.0
    assert torch.equal(voter.ballots(task, torch.eye(2), 3), first) == named and len(known.rows) == named


def test_teachers_with_unnamed_scales_are_not_one(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True)
    class Times(Standardised):
        factor: float = 1.0

        def __call__(self, x: Tensor) -> Tensor:
            return self.factor * x

    monkeypatch.setattr(teacher, "_KNOWN", known := teacher._Memory(2**20))
    records = made_up_population([9], features=2).client(0).train
    voters = [Teacher(Sgd(lr=0.5, epochs=3), soft=True, scale=Times(None, factor)) for factor in (1.0, 3.0)]
    one, other = (voter.ballots(task_for([records], [0]), torch.eye(2), 3) for voter in voters)
    assert not torch.equal(one, other) and not known.rows


@pytest.mark.parametrize("named", [True, False])
def test_shadows_of_an_unnamed_loss_are_trained_each_time(named: bool, tmp_path: Path) -> None:
    objective = classification(3)
    if not named:
        objective = replace(objective, loss=lambda outputs, y: cross_entropy(outputs, y))
    pool = made_up_population([8], features=2).client(0).train
    world = LocalWorld(pool, nn.Linear(2, 3), Sgd(lr=0.1, epochs=1), objective)
    said: list[str] = []
    with Keep(tmp_path, seed=0) as keep:
        first, _ = shadows_of(world, 2, keep, lambda _: None)
        again, _ = shadows_of(world, 2, keep, said.append)
    assert torch.equal(first, again)
    assert any("were trained before" in words for words in said) == named
    assert [path.suffix for path in tmp_path.rglob("*.safetensors")] == [".safetensors"] * (2 * named)
