"""The data sets that are known by name, read from a folder in their public formats.

Pixels stay bytes until they are needed, and are scaled by constants that everybody knows, never by the clients' own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

from sfumato.data.formats import read_cifar, read_idx, read_pictures, read_svhn
from sfumato.data.population import PublicData, Records
from sfumato.data.record_map import as_record_map, batched
from sfumato.digest import of_pool
from sfumato.errors import DataError
from sfumato.key import Key


@batched
@dataclass(frozen=True)
class Scaling:
    """Bytes to float32: divided by the largest value, less the mean, over the standard deviation, per channel."""

    largest: float
    mean: tuple[float, ...]
    stddev: tuple[float, ...]

    def __call__(self, pixels: torch.Tensor) -> torch.Tensor:
        factor, shift = self._constants
        return pixels.to(torch.float32, copy=True).mul_(factor).sub_(shift)

    @cached_property
    def _constants(self) -> tuple[torch.Tensor, torch.Tensor]:
        factor = [1.0 / (self.largest * stddev) for stddev in self.stddev]
        shift = [mean / stddev for mean, stddev in zip(self.mean, self.stddev, strict=True)]
        return torch.tensor(factor).reshape(-1, 1, 1), torch.tensor(shift).reshape(-1, 1, 1)


@dataclass(frozen=True)
class Dataset:
    """A pool that clients will share out, and a public test split.

    `pool` holds the inputs as stored, and `scaling` makes records of them: `train` is all of them. `counts` is what the folder
    really had. Data that have clients of their own say in `own` where the rows of each begin, and where the last ends, and in
    `people` who they are; rows of a client that are at most `overlap` apart share a part of their inputs. `held` is the test split
    as stored, and `margin` how many pixels there are round the box that a picture was scaled to before it was published.
    `aside` is what others than the clients have given, as stored: public records for whoever needs such. Where the pool was
    mapped already, `origin` names it as it was, and `assumes` is what a guarantee must say of the map. A `scaling` that is not the
    library's is called for one record at a time.
    """

    name: str
    pool: Records = field(repr=False)
    test: PublicData = field(repr=False)
    classes: int
    task: str
    counts: Mapping[str, int]
    scaling: Callable[[torch.Tensor], torch.Tensor] = field(repr=False)
    own: np.ndarray | None = field(default=None, repr=False)
    overlap: int = 0
    validation: PublicData | None = field(default=None, repr=False)
    people: tuple[str, ...] = field(default=(), repr=False)
    held: Records | None = field(default=None, repr=False)
    margin: int = 0
    aside: Records | None = field(default=None, repr=False)
    origin: str = field(default="", repr=False)
    assumes: tuple[str, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "scaling", as_record_map(self.scaling))

    @cached_property
    def train(self) -> Records:
        """The whole pool, scaled: four times the memory of pictures as bytes, and far more for windows of a text."""
        return Records(self.scaling(self.pool.x), self.pool.y)

    @cached_property
    def stored(self) -> str:
        """The name of the pool alone: scaled or mapped in another way, it holds the same people's records."""
        return self.origin or of_pool(self.pool)

    @property
    def unscaled(self) -> Dataset:
        """Pictures from 0 to 1, as all sets have them alike; what are no pictures stays as it is."""
        if self.held is None or not isinstance(self.scaling, Scaling):
            return self
        scaling = Scaling(self.scaling.largest, (0.0,), (1.0,))
        test = PublicData(self.test.name, Records(scaling(self.held.x), self.held.y))
        return replace(self, scaling=scaling, test=test)

    @property
    def input_shape(self) -> tuple[int, ...]:
        return tuple(self.scaling(self.pool.x[:1]).shape[1:])


def dataset_of(name: str, train: Records, test: Records, classes: int, scaling: Scaling, margin: int = 0) -> Dataset:
    """Pictures with one label each, checked."""
    for part in (train, test):
        if part.x.shape[0] != part.y.shape[0]:
            raise DataError(f"{name}: {part.x.shape[0]} images and {part.y.shape[0]} labels. Fetch the files again.")
        if part.count and not 0 <= int(part.y.min()) <= int(part.y.max()) < classes:
            raise DataError(f"{name}: a label is not among 0 to {classes - 1}. Fetch the files again.")
    public = PublicData(f"{name}/test", Records(scaling(test.x), test.y))
    counts = {"train": train.count, "test": test.count}
    return Dataset(name, train, public, classes, "classification", counts, scaling, held=test, margin=margin)


def _digits(name: str, root: Path) -> Dataset:
    """scikit-learn's 1,797 digits of 8x8 pixels from 0 to 16, parted once and for all by a public key."""
    table = np.loadtxt(_digits_file(), delimiter=",", dtype=np.int64)
    order = Key.from_seed(0).child("digits").permutations(1, len(table))[0]
    x = torch.from_numpy(table[:, :-1].astype(np.uint8).reshape(-1, 1, 8, 8)[order])
    y = torch.from_numpy(table[:, -1][order])
    return dataset_of(name, Records(x[:1400], y[:1400]), Records(x[1400:], y[1400:]), 10, _SCALINGS[name])


def _digits_file() -> Path:
    """Where scikit-learn keeps its digits: loading it to read one file would double the wait."""
    home = find_spec("sklearn")
    assert home is not None and home.origin is not None, "scikit-learn is a dependency"
    return Path(home.origin).parent / "datasets" / "data" / "digits.csv.gz"


def _find(folders: Iterable[Path], *names: str) -> list[Path]:
    """These files of the first folder that has them all, each as it is or compressed."""
    for folder in folders:
        each = ([file for file in (folder / name, folder / f"{name}.gz") if file.is_file()] for name in names)
        found = [files[0] for files in each if files]
        if len(found) == len(names):
            return found
    raise FileNotFoundError(names[0])


def _idx_set(folders: Iterable[Path], prefix: str, turned: bool) -> Records:
    images, labels = _find(folders, f"{prefix}-images-idx3-ubyte", f"{prefix}-labels-idx1-ubyte")
    x, y = read_idx(images), read_idx(labels)
    if x.ndim != 3 or y.ndim != 1:
        raise DataError(
            f"{images} and {labels} have shapes {x.shape} and {y.shape}, not images and labels. Fetch them again."
        )
    return _joined([((x.transpose(0, 2, 1) if turned else x)[:, None], y)])


def _mnist(name: str, root: Path) -> Dataset:
    fashion = name == "fashion-mnist"
    folders = [root / name, root / ("FashionMNIST" if fashion else "MNIST") / "raw"]
    own = root.resolve()
    named = own.parent.name if own.name == "raw" else own.name
    if ("fashion" in named.lower()) == fashion:  # both sets use the same file names
        folders.append(root)
    train, test = (_idx_set(folders, prefix, turned=False) for prefix in ("train", "t10k"))
    return dataset_of(name, train, test, 10, _SCALINGS[name], margin=0 if fashion else 4)


def _emnist(name: str, root: Path) -> Dataset:
    """EMNIST stores its images transposed, and counts its letters from 1."""
    split = name.removeprefix("emnist-")
    folders = (root / "emnist", root / "EMNIST" / "raw", root)
    train, test = (_idx_set(folders, f"{name}-{part}", turned=True) for part in ("train", "test"))
    first = 1 if split == "letters" else 0
    train, test = (Records(part.x, part.y - first) for part in (train, test))
    return dataset_of(name, train, test, EMNIST_CLASSES[split], _SCALINGS["emnist"], margin=2)


def _cifar10(name: str, root: Path) -> Dataset:
    test, first = _find((root / "cifar-10-batches-bin", root), "test_batch.bin", "data_batch_1.bin")
    pool = _joined(map(read_cifar, sorted(first.parent.glob("data_batch_*.bin"))))
    return dataset_of(name, pool, _joined([read_cifar(test)]), 10, _SCALINGS[name])


def _cifar100(name: str, root: Path) -> Dataset:
    """The 100 fine classes; the 20 coarse ones, which come first in each record, are not read."""
    files = _find((root / "cifar-100-binary", root), "train.bin", "test.bin")
    train, test = (_joined([read_cifar(file, 2)]) for file in files)
    return dataset_of(name, train, test, 100, _SCALINGS[name])


def _svhn(name: str, root: Path) -> Dataset:
    """Street View House Numbers, cropped; `svhn-extra` adds the 531,131 easier images to the pool (1.9 GB of bytes)."""
    parts = ("test", "train", "extra") if name == "svhn-extra" else ("test", "train")
    test, *train = _find((root / "svhn", root / "SVHN", root), *(f"{part}_32x32.mat" for part in parts))
    return dataset_of(name, _joined(map(read_svhn, train)), _joined([read_svhn(test)]), 10, _SCALINGS["svhn"])


def _medical_mnist(name: str, root: Path) -> Dataset:
    """Six kinds of medical pictures, a folder each; nobody published a split, so a public key keeps a sixth to test on."""
    folders = next((own for own in (root / name, root / "MedNIST", root) if (own / MEDICAL[0]).is_dir()), None)
    if folders is None or not all((folders / kind).is_dir() for kind in MEDICAL):
        raise FileNotFoundError(name)
    found = [read_pictures(folders / kind) for kind in MEDICAL]
    if len({pictures.shape[1:] for pictures in found}) > 1:
        raise DataError(f"{folders} has pictures of several sizes. Give them one size.")
    whole = _joined((pictures, np.full(len(pictures), label)) for label, pictures in enumerate(found))
    order = torch.from_numpy(Key.from_seed(0).child(name).permutations(1, whole.count)[0])
    test, train = (Records(whole.x[rows], whole.y[rows]) for rows in order.tensor_split([whole.count // 6]))
    return dataset_of(name, train, test, len(MEDICAL), _SCALINGS[name])


def _joined(parts: Iterable[tuple[np.ndarray, np.ndarray]]) -> Records:
    x, y = (np.concatenate(part) for part in zip(*parts, strict=True))
    return Records(torch.from_numpy(x), torch.from_numpy(y.astype(np.int64)))


# Means and standard deviations of the published training sets, as commonly quoted.
_SCALINGS = {
    "digits": Scaling(16.0, (0.3053,), (0.3760,)),
    "mnist": Scaling(255.0, (0.1307,), (0.3081,)),
    "fashion-mnist": Scaling(255.0, (0.2860,), (0.3530,)),
    "emnist": Scaling(255.0, (0.1736,), (0.3317,)),
    "cifar10": Scaling(255.0, (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "cifar100": Scaling(255.0, (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
    "svhn": Scaling(255.0, (0.4377, 0.4438, 0.4728), (0.1980, 0.2010, 0.1970)),
    "medical-mnist": Scaling(255.0, (0.3551,), (0.2754,)),
}
IMAGENET = Scaling(255.0, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))  # of photographs
MEDICAL = ("AbdomenCT", "BreastMRI", "CXR", "ChestCT", "Hand", "HeadCT")
EMNIST_CLASSES = {"letters": 26, "balanced": 47, "byclass": 62, "bymerge": 47, "digits": 10, "mnist": 10}
READERS: dict[str, Callable[[str, Path], Dataset]] = {
    "digits": _digits,
    "mnist": _mnist,
    "fashion-mnist": _mnist,
    **{f"emnist-{split}": _emnist for split in EMNIST_CLASSES},
    "cifar10": _cifar10,
    "cifar100": _cifar100,
    "svhn": _svhn,
    "svhn-extra": _svhn,
    "medical-mnist": _medical_mnist,
}
