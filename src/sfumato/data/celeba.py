"""CelebA (Liu et al. 2015): faces with 40 attributes that hold or not; a person is a client.

The published partition divides people: 0 is the clients' pool, 1 validation and 2 test, both public.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from sfumato.data.formats import read_coloured
from sfumato.data.population import PublicData, Records
from sfumato.data.sets import IMAGENET, Dataset
from sfumato.errors import DataError

SIDE = 64  # pixels: the published 178x218 are resized
_FOLDER = "img_align_celeba"
_TABLES = ("list_attr_celeba.txt", "list_eval_partition.txt", "identity_CelebA.txt")


def celeba(name: str, root: Path) -> Dataset:
    """Pictures of the pool by person, in the order of their numbers."""
    folders = [one for one in (root / name, root) if all((one / table).is_file() for table in _TABLES)]
    if not folders or not (folders[0] / _FOLDER).is_dir():
        raise FileNotFoundError(name)
    attributes, parts, people = (_table(folders[0] / table) for table in _TABLES)
    if not attributes.keys() == parts.keys() == people.keys():
        raise DataError(f"the three tables in {folders[0]} name different pictures. Fetch them again.")
    order = sorted(attributes, key=lambda file: (people[file][0], file))

    def records(part: int) -> tuple[list[str], Records]:
        files = [file for file in order if parts[file][0] == part]
        y = torch.tensor([attributes[file] for file in files]).reshape(len(files), -1) > 0
        return files, Records(
            torch.from_numpy(read_coloured([folders[0] / _FOLDER / file for file in files], SIDE)), y.long()
        )

    files, pool = records(0)
    persons, counts = np.unique([people[file][0] for file in files], return_counts=True)
    validation, test = (records(part)[1] for part in (1, 2))
    seen = PublicData(f"{name}/validation", Records(IMAGENET(validation.x), validation.y))
    return Dataset(
        name,
        pool,
        PublicData(f"{name}/test", Records(IMAGENET(test.x), test.y)),
        int(pool.y.shape[1]),
        "multi-label",
        {"train": pool.count, "validation": validation.count, "test": test.count, "clients": len(persons)},
        IMAGENET,
        own=np.cumsum([0, *counts]),
        validation=seen,
        people=tuple(f"person {person}" for person in persons),
        held=test,
        aside=validation,
    )


def _table(path: Path) -> dict[str, list[int]]:
    """The numbers behind each picture's name; the lines before them, a count and the names of columns, are left out."""
    try:
        rows = [line.split() for line in path.read_text().splitlines()]
        found = {file: [int(number) for number in numbers] for file, *numbers in rows if file.endswith(".jpg")}
    except ValueError as error:
        raise DataError(f"{path} has lines that are no picture and its numbers: {error}. Fetch it again.") from error
    if not found or len({len(numbers) for numbers in found.values()}) > 1:
        raise DataError(f"{path} does not give every picture as many numbers. Fetch it again.")
    return found
