"""What every attack shares: the run that it attacks, intermediate results on disk, and what it found.

An attack reads private records that nobody paid for. So what it keeps and what it finds lie in a folder of their own, for
its owner's eyes only, and enter neither run.json nor report.html.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias, runtime_checkable

import torch
from torch import Tensor, nn

from sfumato.audit.keep import Keep, private_folder
from sfumato.errors import BadValue
from sfumato.run.folder import load
from sfumato.run.prepare import Prepared, prepare
from sfumato.run.releases import read_releases
from sfumato.run.request import Request, resolved
from sfumato.run.schema import read_summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FOLDER = "audit-not-private"
__all__ = [
    "FOLDER",
    "Attack",
    "Chart",
    "Curve",
    "Found",
    "Keep",
    "Picture",
    "Subject",
    "Tell",
    "outputs_of",
    "private_folder",
]
Tell: TypeAlias = Callable[[str], object]
Picture: TypeAlias = "bytes | Callable[[], Figure]"  # a PNG file, or what draws one in the style of our pages


@dataclass(frozen=True)
class Subject:
    """What is attacked: a finished run, and everything that its files name. `releases` are the models of all rounds, one a row,
    where the run kept them.
    """

    folder: Path
    prepared: Prepared = field(repr=False)
    module: nn.Module = field(repr=False)
    releases: tuple[Tensor, ...] = field(default=(), repr=False)

    @staticmethod
    def of(folder: Path) -> Subject:
        """The run in a folder, with its clients' data as its run.toml names them."""
        read_summary(folder)  # refuses what is no finished run
        path = folder / "run.toml"
        request = Request.from_toml(path)
        request.require_named(
            "make a Subject of the folder, what was prepared and the module, and call the attack with it."
        )
        if request.federation:
            raise BadValue(
                f"{folder} is the run of a federation, whose data are with their owners, so nobody here can say who was a member. "
                "Audit its recipe instead."
            )
        prepared = prepare(request, resolved(path), folder=folder)
        return Subject(folder, prepared, load(folder), read_releases(folder))

    @property
    def rounds(self) -> int:
        """How many rounds the run really had."""
        return int(read_summary(self.folder)["rounds"])


@dataclass(frozen=True)
class Curve:
    """A line of a picture, with the edges of its band where it has one."""

    name: str
    xs: tuple[float, ...]
    ys: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()


@dataclass(frozen=True)
class Chart:
    """Curves over the same axes; `log` where both are logarithmic."""

    title: str
    x: str
    y: str
    curves: tuple[Curve, ...]
    log: bool = False


NOT_PRIVATE = "a function of private records that nobody paid for: NOT private, do not publish it"


@dataclass(frozen=True)
class Found:
    """What an attack found: a function of private records that nobody paid for.

    `bands` are edges of confidence intervals of some numbers, at 95 % each; `notes` say what the attacker is assumed to know.
    """

    attack: str
    numbers: dict[str, float]
    baselines: dict[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    pictures: dict[str, Picture] = field(default_factory=dict, repr=False)
    curves: dict[str, Chart] = field(default_factory=dict, repr=False)
    bands: dict[str, tuple[float, float]] = field(default_factory=dict)
    seconds: float = 0.0

    def to_json(self) -> str:
        """All but the pictures; what is not finite is null."""
        held: dict[str, Any] = {"warning": NOT_PRIVATE}
        held |= {name: value for name, value in vars(self).items() if name != "pictures"}
        held["curves"] = {name: asdict(chart) for name, chart in self.curves.items()}
        return json.dumps(_finite(held), indent=2, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@runtime_checkable
class Attack(Protocol):
    """A frozen dataclass whose fields are its options, such as `Lira(shadows=64, online=True)`."""

    name: ClassVar[str]
    summary: ClassVar[str]

    def __call__(self, subject: Subject, keep: Keep, tell: Tell) -> Found:
        """Attack; `tell` is given a line whenever something is done."""
        ...


def outputs_of(module: nn.Module, x: Tensor, batch_size: int = 1000) -> Tensor:
    """What a module in evaluation mode says of records."""
    module.eval()
    with torch.no_grad():
        return torch.cat([module(part) for part in torch.split(x, batch_size)])
