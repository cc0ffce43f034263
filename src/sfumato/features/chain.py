"""Steps one after another, by words: `parse_features("resize:16,random-conv:64")`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from sfumato.data.population import PublicData, Records, require_public
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

# A map of records, [n, ...] to [n, ...]: each record by itself, fixed before any client's data is seen.
Step: TypeAlias = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Own:
    """A user's callable or frozen module, such as a pretrained network, called with one record at a time.

    Alone in a tensor of its own, a record has the same shape and the same place in memory as every other, so what it becomes
    depends on no other record. What draws random numbers, or keeps something of what it has seen, is refused as far as
    calling it again for the first record can tell; what is made for whole batches and mixes their records, as far as two can.
    """

    path: str
    function: Step = field(repr=False)

    def __call__(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            rows = [self._one(one) for one in torch.split(x, 1)]
            if not torch.equal(self._one(x[:1]).nan_to_num(), rows[0].nan_to_num()):
                raise BadValue(f"features {self.path}: called twice with one record, it gives two answers. Fix it.")
            if self._mixes(x[:2], torch.cat(rows[:2])):
                raise BadValue(
                    f"features {self.path}: what a record becomes changes with the records beside it in a batch, and alone it "
                    "means something else. Scale by constants that everybody knows, not by those of a batch."
                )
        return torch.cat(rows)

    def _mixes(self, both: Tensor, alone: Tensor) -> bool:
        """Whether a map that takes batches gives a record something else when another stands beside it."""
        try:
            found = self.function(both.clone(memory_format=torch.contiguous_format))
        except Exception:  # it takes one record only
            return False
        same = isinstance(found, Tensor) and found.shape == alone.shape
        return same and not torch.allclose(found.float(), alone, rtol=1e-2, atol=1e-4, equal_nan=True)

    def _one(self, record: Tensor) -> Tensor:
        found = self.function(record.clone(memory_format=torch.contiguous_format))
        if not isinstance(found, Tensor) or found.ndim < 2 or found.shape[0] != 1:
            shape = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise BadValue(f"features {self.path}: one record [1, ...] gives {shape}. Give a tensor [1, numbers].")
        return found.float()


def _own(path: str) -> Own:
    """What a path names: a module, a map, or a function without arguments that gives one of these.

    Weights that it draws meanwhile follow from a public seed, so that they are the same when a run is evaluated.
    """
    with Key.from_seed(0).child("features").seeding_torch():
        found = import_path(path)
        if not isinstance(found, nn.Module) and callable(found) and not _takes_something(found):
            found = found()
    if isinstance(found, nn.Module):
        found = found.eval().requires_grad_(False)
    if not callable(found):
        raise BadValue(f"features {path}: a {type(found).__name__} maps nothing. Give a module or a function.")
    return Own(path, found)


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


@dataclass(frozen=True)
class Features:
    """Steps one after another: a map of single records, the same for everybody and fixed before training.

    The map of a record depends on no other record, to the last bit: not on the batch that it is in, nor on its place there. So a
    changed record changes no other record's features, on which rests what is stated of votes of neighbours. It holds because
    each step says so of itself (`pictures.py`, `scattering.py`, `basis.py`, `Own`); here batches are only cut and joined. No
    client's data decide it.
    """

    steps: tuple[Step, ...]

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
            return torch.cat([self._mapped(part) for part in torch.split(x, _CHUNK)])

    @property
    def has_own(self) -> bool:
        """Whether a network of the user's own is among the steps, which may be large enough for all cores."""
        return any(isinstance(step, Own) for step in self.steps)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What a guarantee says of steps that somebody else made, or that were learnt from public records."""
        bases = [step for step in self.steps if isinstance(step, PublicPCA)]
        own = [step for step in self.steps if isinstance(step, Own)]
        learnt = (f"the records of {step.public} are public: nothing hides them" for step in bases)
        return (*learnt, *(f"the features {step.path} were made without clients' data" for step in own))

    def _mapped(self, x: Tensor) -> Tensor:
        for step in self.steps:
            x = step(x)
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
