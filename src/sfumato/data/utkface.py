"""UTKFace (Zhang, Song and Qi 2017): faces whose file names say how old somebody was, which gender and which ethnicity.

| name                | target                                                                   |
|---------------------|--------------------------------------------------------------------------|
| `utkface`           | the age group: up to 9 years, 19, 29, 44, 59, and older                  |
| `utkface-gender`    | 0 male, 1 female                                                         |
| `utkface-ethnicity` | White, Black, Asian, Indian, other, as the authors' annotators guessed it |

All three hold the same pictures in the same order. So one is what a model learns, and another what its owner never told.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import replace
from pathlib import Path

import torch

from sfumato.data.formats import pictures_in, read_coloured
from sfumato.data.population import Records
from sfumato.data.sets import IMAGENET, Dataset, dataset_of
from sfumato.errors import DataError
from sfumato.key import Key

SIDE = 32  # pixels: the published 200x200 are resized to what CIFAR has
EDGES = (10, 20, 30, 45, 60)  # the first year of each age group but the first: public, whoever is in the data
NAMES = {"utkface": len(EDGES) + 1, "utkface-gender": 2, "utkface-ethnicity": 5}
_NAME = re.compile(r"(\d{1,3})_([01])_([0-4])_\d+\.")
_TEST = 4  # one of so many pictures is tested on


def utkface(name: str, root: Path) -> Dataset:
    """AGE_GENDER_ETHNICITY_DATE.jpg; nobody published a split, so a public key keeps a quarter to test on.

    A few published names lack one of the numbers: their pictures are left out, whatever the target, and counted.
    """
    folders = [one for one in (root / "UTKFace", root / "utkface") if one.is_dir()]
    if not folders:
        raise FileNotFoundError(name)
    files = pictures_in(folders[0])
    said = {file: match.groups() for file in files if (match := _NAME.match(file.name))}
    if not said:
        raise DataError(
            f"{folders[0]} holds no picture that is called AGE_GENDER_ETHNICITY_DATE.jpg, e.g. {files[0].name}. Fetch it again."
        )
    x = torch.from_numpy(read_coloured(list(said), SIDE))
    y = torch.tensor([_target(name, *map(int, numbers)) for numbers in said.values()])
    order = torch.from_numpy(Key.from_seed(0).child("utkface").permutations(1, len(y))[0])
    test, train = (Records(x[rows], y[rows]) for rows in order.tensor_split([len(y) // _TEST]))
    found = dataset_of(name, train, test, NAMES[name], IMAGENET)
    left_out = {"left out": len(files) - len(said)} if len(said) < len(files) else {}
    return replace(found, counts={**found.counts, **left_out})


def _target(name: str, age: int, gender: int, ethnicity: int) -> int:
    return {"utkface": bisect_right(EDGES, age), "utkface-gender": gender, "utkface-ethnicity": ethnicity}[name]
