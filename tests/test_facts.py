"""Facts: the same thing has the same name in every process, and whatever can change a result changes it."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import rich
import torch
from torch import nn

from sfumato import PublicData, Records
from sfumato.errors import BadValue
from sfumato.facts import digest, facts


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Piece:
    norm: float
    hidden: Any = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class Other:
    norm: float
    hidden: Any = None


class Plain:
    factor = 2

    def __init__(self, value: Any) -> None:
        self.value = value


class Named:
    def __init__(self, name: str) -> None:
        self.name, self.lock = name, object()

    def facts(self) -> dict[str, str]:
        return {"name": self.name}


def scaled(factor: float) -> Any:
    return lambda row: row * factor


def doubling(row: Any, by: float = 2.0) -> Any:
    return row * by


def redefined(body: str) -> type:
    """A class of one name, with code that differs."""
    space: dict[str, Any] = {"__name__": "theirs"}
    exec(f"class Theirs:\n    def __call__(self, x):\n        return {body}", space)
    return space["Theirs"]  # type: ignore[no-any-return]


def layers(*activation: nn.Module) -> nn.Module:
    module = nn.Sequential(nn.Linear(2, 2), *activation)
    for parameter in module.parameters():
        nn.init.ones_(parameter)
    return module


def hooked(function: Any) -> nn.Module:
    module = layers()
    module.register_forward_hook(function)
    return module


def public(value: float) -> PublicData:
    x = torch.zeros(2000, 2)
    x[1000] = value
    return PublicData("public", Records(x, torch.zeros(2000)))


# Things of which no two are the same, though most pairs look alike or print alike.
DIFFERENT: dict[str, tuple[Any, Any]] = {
    "whole and broken": (1, 1.0),
    "truth and one": (True, 1),
    "number and text": (1, "1"),
    "signs of zero": (0.0, -0.0),
    "tuple and list": ((1, 2), [1, 2]),
    "nesting": (((1,), 2), (1, (2,))),
    "order of pairs": (OrderedDict(a=1, b=2), OrderedDict(b=2, a=1)),
    "enums": (Colour.RED, Colour.BLUE),
    "enum and text": (Colour.RED, "red"),
    "fields": (Piece(1.0), Piece(2.0)),
    "hidden fields": (Piece(1.0, hidden=1), Piece(1.0, hidden=2)),
    "types": (Piece(1.0), Other(1.0)),
    "the middle of a tensor": (public(1.0), public(2.0)),
    "shapes": (torch.zeros(2, 3), torch.zeros(3, 2)),
    "precision": (torch.zeros(2), torch.zeros(2).half()),
    "bytes of arrays": (np.zeros(2, np.int32), np.zeros(1, np.int64)),
    "what trains": (nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2), requires_grad=False)),
    "lambdas": (lambda x: x + 1, lambda x: x + 2),
    "operators": (lambda x, y: x + y, lambda x, y: x - y),
    "called names": (lambda x: x.sin(), lambda x: x.cos()),
    "inner functions": (lambda x: (lambda: x + 1)(), lambda x: (lambda: x + 2)()),
    "closures": (scaled(1.0), scaled(2.0)),
    "partials": (functools.partial(doubling, by=1.0), functools.partial(doubling, by=3.0)),
    "builtins": (torch.relu, torch.tanh),
    "methods": (Plain(1).__init__, Plain(2).__init__),  # type: ignore[misc]
    "objects": (Plain(1), Plain(2)),
    "own names": (Named("a"), Named("b")),
    "code of a class": (redefined("x")(), redefined("-x")()),
    "activations": (layers(nn.ReLU()), layers(nn.Tanh())),
    "slopes": (layers(nn.LeakyReLU(0.1)), layers(nn.LeakyReLU(0.2))),
    "modes": (layers().train(), layers().eval()),
    "hooks": (hooked(lambda module, x, y: y), hooked(lambda module, x, y: 2 * y)),
    "dtypes": (torch.float32, torch.float64),
}


@pytest.mark.parametrize(("one", "other"), DIFFERENT.values(), ids=DIFFERENT)
def test_what_differs_has_other_facts(one: Any, other: Any) -> None:
    assert digest(one) != digest(other)
    for thing in (one, other):
        assert digest(thing) == digest(thing)
        json.dumps(facts(thing), allow_nan=False)


def test_the_same_has_the_same_facts() -> None:
    assert digest(scaled(2.0)) == digest(scaled(2.0))
    assert digest({3, 1, 2}) == digest({2, 3, 1})
    assert digest(hooked(torch.relu)) == digest(hooked(torch.relu)), "hooks are numbered by the process"
    assert digest(torch.ones(4, 2).t()) == digest(torch.ones(2, 4))


def test_a_circle_ends() -> None:
    def countdown(number: int) -> int:
        return number and countdown(number - 1)

    ring: list[Any] = [1]
    ring.append(ring)
    assert digest(countdown) == digest(countdown) and digest(ring) == digest(ring)


@pytest.mark.parametrize(
    "thing", [object(), (n for n in ()), sys.stdout, threading.Lock()], ids=lambda thing: type(thing).__name__
)
def test_an_address_is_no_name(thing: Any) -> None:
    with pytest.raises(BadValue, match=r"no name but its address.*facts\(\)"):
        facts(thing)


def test_the_refusal_says_where() -> None:
    with pytest.raises(BadValue, match=r"the Piece\.hidden\[1\] is a builtins\.object"):
        facts(Piece(1.0, hidden=(1, object())))


def test_a_file_with_the_name_of_one_of_pythons_own_is_read(tmp_path: Path) -> None:
    """`test`, `code` and others are names that users give too: what lies elsewhere is theirs, and its code counts."""
    script = "from sfumato.facts import digest; import test; print(digest(test.loss))"
    found = set()
    for body in ("return x", "return -x"):
        (tmp_path / body).mkdir()
        (tmp_path / body / "test.py").write_text(f"def loss(x):\n    {body}\n")
        child = [sys.executable, "-c", script]
        found.add(subprocess.run(child, capture_output=True, text=True, cwd=tmp_path / body, check=True).stdout)
    assert len(found) == 2


def test_a_second_process_finds_the_same_facts() -> None:
    script = "import tests.test_facts as t, sys; print(*(t.digest(x) for pair in t.DIFFERENT.values() for x in pair))"
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=Path(__file__).parents[1], check=True
    )
    assert found.stdout.split() == [digest(thing) for pair in DIFFERENT.values() for thing in pair]


def test_plain_things_need_no_torch() -> None:
    script = (
        "import sys; from sfumato.facts import digest; digest(1, 'a', [2.0], len); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


_MANY = 60


def _ladder(last: str) -> Any:
    """Functions that each use the two before: a million million ways lead down."""
    there: dict[str, Any] = {}
    lines = [f"def f0(x):\n    return {last}", "def f1(x):\n    return f0(x)"]
    lines += [f"def f{n}(x):\n    return f{n - 1}(x) + f{n - 2}(x)" for n in range(2, _MANY)]
    exec("\n".join(lines), there)
    return there[f"f{_MANY - 1}"]


def test_code_that_is_used_everywhere_is_told_once() -> None:
    assert digest(_ladder("x")) == digest(_ladder("x")) != digest(_ladder("-x"))


def test_what_is_left_out_takes_nothing_with_it() -> None:
    """A class that was met first where something has no name is told where it is met next."""

    def reads(by: float) -> Any:
        there: dict[str, Any] = {}
        exec(f"def times(x):\n    return {by} * x\n\n\ndef both(x):\n    return a_thing, times(x)\n", there)
        there["a_thing"] = (there["times"], object())
        return there["both"]

    assert digest(reads(1.0)) == digest(reads(1.0)) != digest(reads(2.0))


@pytest.mark.parametrize("thing", [pandas.DataFrame, rich.get_console, pytest.raises], ids=lambda thing: thing.__name__)
def test_what_is_installed_stands_there_by_what_was_installed(thing: Any) -> None:
    """Its name, and a digest of the list of its files: not its code, nor all the code that it uses."""
    told = json.dumps(facts(thing))
    assert len(told) < 300 and thing.__qualname__ in told and thing.__module__.partition(".")[0] in told.lower()


def test_another_build_of_what_is_installed_is_another_thing(tmp_path: Path) -> None:
    """The same name and version, with other files: what a package's own list of files says decides."""
    script = (
        "import sys, sysconfig; sysconfig.get_path = lambda kind: sys.argv[1]; sys.path.insert(0, sys.argv[1]); "
        "from sfumato.facts import digest; import theirs; print(digest(theirs.loss), digest(theirs.Model))"
    )
    found = []
    for name, body in (("one", "return x"), ("other", "return -x"), ("same", "return x")):
        place, about = tmp_path / name, tmp_path / name / "theirs-1.0.dist-info"
        about.mkdir(parents=True)
        code = f"def loss(x):\n    {body}\n\n\nclass Model:\n    pass\n"
        (place / "theirs.py").write_text(code)
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
        (about / "top_level.txt").write_text("theirs\n")
        (about / "RECORD").write_text(f"theirs.py,sha256={hash(body)},{len(code)}\n")
        child = [sys.executable, "-c", script, str(place)]
        found.append(subprocess.run(child, capture_output=True, text=True, check=True).stdout.split())
    (one, model), (other, other_model), same = found
    assert one != other and model != other_model and same == [one, model]


_HELPED = "import helper\n\n\ndef scaled(x):\n    return helper.inner.times(x)\n"
_INNER = "import helper\n\nBY = {by}\n\n\ndef times(x):\n    return BY * x if helper else x\n"


def test_what_a_function_reads_through_a_module_of_the_users_own_is_followed(tmp_path: Path) -> None:
    (tmp_path / "features.py").write_text(_HELPED)
    (tmp_path / "helper.py").write_text("import inner\n")
    code = "import features; from sfumato.facts import digest; print(digest(features.scaled))"
    names = []
    for by in ("1.0", "2.0", "1.0"):
        (tmp_path / "inner.py").write_text(_INNER.format(by=by))
        command = [sys.executable, "-B", "-c", code]
        names.append(subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout)
    assert names[0] == names[2] != names[1]
