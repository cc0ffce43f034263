"""Steps one after another, by words: `parse_features("resize:16,random-conv:64")`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from sfumato.data.population import PublicData, Records, require_public
from sfumato.data.record_map import Map, RecordFailed, RecordMap, as_record_map, batched
from sfumato.errors import BadValue, DataError, nearest
from sfumato.features.basis import PublicPCA, drawn
from sfumato.features.group_norm import GroupNorm
from sfumato.features.pictures import Box, Grey, Hog, Pixels, RandomConv, Resize, UnitNorm, whole
from sfumato.features.private_basis import WORD as PRIVATE
from sfumato.features.scattering import Scattering
from sfumato.features.text import LastCharacters
from sfumato.features.threads import on_cpu, one_thread
from sfumato.imports import import_path, is_import_path
from sfumato.key import Key

_PCA = "pca"  # is made of public records, so it is not among STEPS
_CHUNK = 32  # records in work at once, so that they stay in the cache; no result depends on it

Step: TypeAlias = Map  # fixed before any client's data is seen


def _own(path: str) -> Step:
    """What a path names: a module, a map, or a function without arguments that gives one of these.

    Weights that it draws meanwhile follow from a public seed, so that they are the same when a run is evaluated.
    """
    with Key.from_seed(0).child("features").seeding_torch():
        found = import_path(path)
        if not isinstance(found, nn.Module) and callable(found) and not _takes_something(found):
            found = found()
    return as_record_map(found, path)


def _takes_something(function: Callable[..., Any]) -> bool:
    return any(p.default is p.empty for p in inspect.signature(function).parameters.values())


# The words of --features: each makes a step of the number behind its colon, which is empty where there is none.
STEPS: dict[str, Callable[[str], Step]] = {
    "pixels": lambda number: _without("pixels", number, Pixels()),
    "scattering": lambda number: Scattering(whole("scattering", number, 2)),
    "hog": lambda number: Hog(whole("hog", number, 4)),
    "random-conv": lambda number: RandomConv(whole("random-conv", number, 64)),
    "resize": lambda number: Resize(*2 * (whole("resize", number, None),)),
    "box": lambda number: Box(whole("box", number, 4)),
    "grey": lambda number: _without("grey", number, Grey()),
    "group-norm": lambda number: GroupNorm(whole("group-norm", number, 27)),
    "last-characters": lambda number: LastCharacters(whole("last-characters", number, 3)),
    "unit-norm": lambda number: UnitNorm(whole("unit-norm", number, 1)),
}


def _without(word: str, number: str, step: Step) -> Step:
    if number:
        raise BadValue(f"features '{word}:{number}': {word} takes no number. Write {word}.")
    return step


@batched
@dataclass(frozen=True)
class Features:
    """Steps one after another: a map of single records, the same for everybody and fixed before training.

    The map of a record depends on no other record, to the last bit: not on the batch that it is in, nor on its place there. So a
    changed record changes no other record's features, on which rests what is stated of votes of neighbours. It holds because
    each step says so of itself (`pictures.py`, `scattering.py`, `basis.py`), or is called for one record at a time
    (`as_record_map`); here batches are only cut and joined. No client's data decide it.
    """

    steps: tuple[Step, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", tuple(map(as_record_map, self.steps)))

    @on_cpu
    def __call__(self, x: Tensor) -> Tensor:
        if not x.is_floating_point() and not isinstance(self.steps[0], LastCharacters):
            raise DataError(
                f"features map pictures and other numbers; these records are {x.dtype}. Leave --features out, or begin with "
                "last-characters:3, say, if they are text."
            )
        if not len(x):
            return self(x.new_zeros(1, *x.shape[1:]))[:0]
        with nullcontext() if self.has_own else one_thread():
            return torch.cat([self._mapped(x, start) for start in range(0, len(x), _CHUNK)])

    @property
    def has_own(self) -> bool:
        """Whether a network of the user's own is among the steps, which may be large enough for all cores."""
        return any(isinstance(step, RecordMap) for step in self.steps)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What a guarantee says of steps that somebody else made, or that were learnt from public records."""
        bases = [step for step in self.steps if isinstance(step, PublicPCA)]
        own = [step for step in self.steps if isinstance(step, RecordMap)]
        learnt = (f"the records of {step.public} are public: nothing hides them" for step in bases)
        return (*learnt, *(said for step in own for said in step.assumptions))

    def _mapped(self, records: Tensor, start: int) -> Tensor:
        """Some of the records, from one on, as float32."""
        x = records[start : start + _CHUNK]
        try:
            for step in self.steps:
                x = step(x).float()
        except RecordFailed as failed:
            raise failed.after(start) from failed.__cause__
        return x


def learns(words: str) -> bool:
    """Whether a step learns from public records.

    >>> learns("hog,pca:20"), learns("hog")
    (True, False)
    """
    return any(word.strip().partition(":")[0] == _PCA for word in words.split(","))


Mapping: TypeAlias = Callable[["Features", Tensor], Tensor]


def parse_features(
    words: str, public: PublicData | None = None, mapping: Mapping = lambda features, x: features(x)
) -> Features:
    """The map that words name, divided by commas: `hog:8`, `resize:16,random-conv:64`, `module:attribute`.

    Of `public` records, mapped by the steps before it, `pca:DIMENSION` or `pca:DIMENSION:WHITEN` learns its basis; `mapping` maps
    them, e.g. by reading what was mapped before.

    >>> parse_features("resize:16,random-conv:64")(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 576])
    """
    steps: list[Step] = []
    for word in words.split(","):
        steps.append(_step(word.strip(), tuple(steps), public, mapping))
    return Features(tuple(steps))


def _step(word: str, before: tuple[Step, ...], public: PublicData | None, mapping: Mapping) -> Step:
    name, _, number = word.partition(":")
    if name == _PCA:
        return _pca(number, Features(before), public, mapping)
    if name == PRIVATE:
        raise BadValue(
            f"features {word!r}: a basis of clients' records is paid for within a run, so it is learnt by sfumato train only. "
            "Use pca with public records here."
        )
    if name in STEPS:
        return STEPS[name](number)
    if is_import_path(word):
        return _own(word)
    raise BadValue(
        f"unknown features {word!r}. {nearest(name, [*STEPS, _PCA, PRIVATE])} Your own are module:attribute."
    )


def _pca(numbers: str, before: Features, public: PublicData | None, mapping: Mapping) -> PublicPCA:
    dimension, colon, whiten = numbers.partition(":")
    try:
        power = float(whiten) if colon else 0.5
    except ValueError:
        raise BadValue(
            f"features '{_PCA}:{numbers}': {whiten!r} is no number from 0 to 1. Write pca:200:0.5, say."
        ) from None
    wanted = whole(_PCA, dimension, None)
    if public is None:
        raise BadValue(
            f"features '{_PCA}:{numbers}' without public records: a basis learnt from clients' records tells of them. Name public "
            "records (--public, or parse_features(words, public)), or leave pca out."
        )
    few = drawn(require_public(public, "pca"))
    mapped = replace(few, records=Records(mapping(before, few.records.x), few.records.y))
    return PublicPCA.learn(mapped, wanted, power)
