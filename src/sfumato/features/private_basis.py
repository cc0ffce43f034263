"""The leading directions of clients' own records, learnt from a noisy matrix of moments that a run has paid for."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from sfumato.data.record_map import batched
from sfumato.digest import digest
from sfumato.errors import BadValue, DataError
from sfumato.features.basis import along, check_whiten, finite, signed, whole_steps
from sfumato.features.pictures import whole
from sfumato.features.threads import on_cpu, one_thread

WORD = "private-pca"


@dataclass(frozen=True)
class PrivateWord:
    """What `private-pca:DIMENSION:WHITEN:NOISE` asks for; the noise is a multiple of how far one unit moves the moments."""

    dimension: int
    whiten: float = 0.5
    noise: float | None = None

    @staticmethod
    def parse(numbers: str) -> PrivateWord:
        """The numbers behind the word.

        >>> PrivateWord.parse("50"), PrivateWord.parse("50:0:8.5")
        (PrivateWord(dimension=50, whiten=0.5, noise=None), PrivateWord(dimension=50, whiten=0.0, noise=8.5))
        """
        dimension, *others = numbers.split(":")
        try:
            more = [float(other) for other in others]
        except ValueError:
            more = [float("nan")]
        if len(more) > 2 or not all(number >= 0.0 for number in more) or (len(more) == 2 and not more[1] > 0.0):
            raise BadValue(
                f"features '{WORD}:{numbers}': behind the dimension stand a power from 0 to 1 and the noise, if any. Write "
                f"{WORD}:50, {WORD}:50:0.5 or {WORD}:50:0.5:10, say."
            )
        found = PrivateWord(whole(WORD, dimension, None), *more)
        check_whiten(WORD, found.whiten)
        return found


@dataclass(frozen=True)
class Parted:
    """The words of features: those before a basis that is learnt within the run, that basis, and those after it."""

    before: str | None
    word: PrivateWord | None = None
    after: str | None = None

    @staticmethod
    def of(words: str | None) -> Parted:
        """All stand before, where there is no such basis.

        >>> Parted.of("hog,private-pca:50,unit-norm:3")
        Parted(before='hog', word=PrivateWord(dimension=50, whiten=0.5, noise=None), after='unit-norm:3')
        """
        each = [] if words is None else [word.strip() for word in words.split(",")]
        places = [place for place, word in enumerate(each) if word.partition(":")[0] == WORD]
        if not places:
            return Parted(words)
        before, after = each[: places[0]], each[places[0] + 1 :]
        if len(places) > 1 or any(word.partition(":")[0] == "pca" for word in after):
            raise BadValue(
                f"features {words!r}: one basis is learnt from clients' records, and none from public ones after it. Put pca "
                f"before {WORD}, or leave one of them out."
            )
        word = PrivateWord.parse(each[places[0]].partition(":")[2])
        return Parted(",".join(before) or None, word, ",".join(after) or None)


@batched
@dataclass(frozen=True)
class Unlearnt:
    """Stands for a basis that is not learnt yet: as many zeros."""

    dimension: int

    def __call__(self, x: Tensor) -> Tensor:
        return torch.zeros(len(x), self.dimension, device=x.device)


@batched
@dataclass(frozen=True, eq=False)
class PrivatePCA:
    """A record along the leading directions of clients' records; each coordinate over (stddev_i / stddev_1) ^ whiten.

    `learn` takes the directions from a matrix of second moments with noise in it, which was paid for when it was released: so
    the basis is free. No mean is taken off. The map of a record depends on no other record, to the last bit (`along`).
    """

    whiten: float
    shape: tuple[int, ...]  # of a record
    directions: Tensor = field(repr=False)  # [numbers, dimension], whole numbers: 2^26 times unit vectors
    scales: Tensor = field(repr=False)  # [dimension]: what coordinates are divided by
    above: int = 0  # how many of the directions stand out of the noise

    @staticmethod
    def learn(moments: Tensor, stddev: float, word: PrivateWord, shape: tuple[int, ...]) -> PrivatePCA:
        """The leading eigenvectors of released moments, with the noise of standard deviation `stddev` in their diagonal.

        Noise alone has eigenvalues up to stddev sqrt(2 numbers), nearly (Bai and Yin 1988): a direction along which there
        seems to be less is scaled as if there were so much, so that whitening makes no noise larger than that.

        >>> PrivatePCA.learn(torch.diag(torch.tensor([1.0, 9.0, 4.0])), 1e-9, PrivateWord(2), (3,))(torch.eye(3))
        tensor([[0.0000, 0.0000],
                [1.0000, 0.0000],
                [0.0000, 1.2247]])
        """
        numbers = len(moments)
        with one_thread():
            values, vectors = torch.linalg.eigh(moments.cpu().double())
        leading, least = signed(vectors[:, -word.dimension :].flip(1)), stddev * (2 * numbers) ** 0.5
        found = values[-word.dimension :].flip(0)
        spread, above = found.clamp(min=least).sqrt(), int((found > least).sum())
        return PrivatePCA(word.whiten, shape, whole_steps(leading), (spread / spread[0]) ** word.whiten, above)

    @property
    def dimension(self) -> int:
        """How many numbers a record becomes."""
        return len(self.scales)

    @on_cpu
    def __call__(self, x: Tensor) -> Tensor:
        if tuple(x.shape[1:]) != self.shape:
            raise DataError(
                f"{WORD}:{self.dimension}: records of shape {tuple(x.shape[1:])}, and the basis is of records of shape "
                f"{self.shape}. Bring all to one shape, e.g. with resize:28 or grey before it."
            )
        return along(finite(x), self.directions, self.scales)

    def to_bytes(self) -> bytes:
        """A safetensors file that `read` reads."""
        facts = {"whiten": self.whiten, "shape": self.shape, "above": self.above}
        tensors = {"directions": self.directions.contiguous(), "scales": self.scales}
        return save(tensors, {"sfumato": json.dumps(facts)})

    @staticmethod
    def read(path: Path) -> PrivatePCA:
        """The basis in a file."""
        try:
            with safe_open(path, framework="pt") as file:
                facts = json.loads(file.metadata()["sfumato"])
                directions, scales = (file.get_tensor(name) for name in ("directions", "scales"))
            return PrivatePCA(facts["whiten"], tuple(facts["shape"]), directions, scales, facts["above"])
        except Exception as error:
            raise DataError(
                f"{path} cannot be read: {error}. Restore it, or start a new run in another folder."
            ) from error

    def __repr__(self) -> str:
        return f"PrivatePCA({self.dimension}, whiten={self.whiten:g})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PrivatePCA) and digest(self) == digest(other)

    def __hash__(self) -> int:
        return hash(digest(self))
