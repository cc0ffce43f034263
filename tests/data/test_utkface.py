"""UTKFace: small files that are called as the published ones are, and the real ones."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from sfumato.data import load
from sfumato.data.load import share_records
from sfumato.data.utkface import EDGES, NAMES
from sfumato.errors import DataError

AGES = (1, 9, 10, 19, 20, 29, 30, 44, 45, 59, 60, 116)


def write_faces(folder: Path) -> None:
    """Pictures that are their age in red, and 100 times their gender in green and 40 times their ethnicity in blue."""
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    for number, age in enumerate(AGES):
        gender, ethnicity = number % 2, number % 5
        picture = Image.new("RGB", (48, 48), (2 * age, 100 * gender, 40 * ethnicity))
        picture.save(folder / f"{age}_{gender}_{ethnicity}_2017010{number}.jpg.chip.jpg", format="PNG")  # exact colours


@pytest.mark.parametrize("place", ["UTKFace", "utkface"])
def test_targets_are_what_the_names_say(tmp_path: Path, place: str) -> None:
    write_faces(tmp_path / place)
    ages, genders, ethnicities = (load(name, tmp_path, allow_download=False) for name in NAMES)
    assert [found.classes for found in (ages, genders, ethnicities)] == [6, 2, 5]
    assert (ages.counts, ages.input_shape) == ({"train": 9, "test": 3}, (3, 32, 32))
    red, green, blue = (ages.pool.x[:, colour, 5, 5].float() for colour in range(3))
    groups = [sum(round(float(value) / 2) >= edge for edge in EDGES) for value in red]
    assert ages.pool.y.tolist() == groups
    assert genders.pool.y.tolist() == (green / 100).round().long().tolist()
    assert ethnicities.pool.y.tolist() == (blue / 40).round().long().tolist()


def test_the_same_pictures_stand_in_the_same_order_whatever_the_target(tmp_path: Path) -> None:
    write_faces(tmp_path / "UTKFace")
    ages, *others = (load(name, tmp_path, allow_download=False) for name in NAMES)
    for other in others:
        assert torch.equal(ages.pool.x, other.pool.x) and torch.equal(ages.test.records.x, other.test.records.x)
        assert share_records("utkface", other.name)  # so neither is public where the other is private
    whole = torch.cat([ages.pool.x, ages.held.x if ages.held is not None else ages.pool.x])[:, 0, 5, 5]
    assert len(whole.unique()) == len(AGES)


def test_names_that_lack_a_number_are_left_out_and_counted(tmp_path: Path) -> None:
    write_faces(tmp_path / "UTKFace")
    (tmp_path / "UTKFace" / f"{AGES[0]}_0_0_20170100.jpg.chip.jpg").rename(tmp_path / "UTKFace" / "61_1_20170109.jpg")
    found = load("utkface", tmp_path, allow_download=False)
    assert found.counts == {"train": 9, "test": 2, "left out": 1}
    for file in (tmp_path / "UTKFace").iterdir():
        file.rename(file.with_name(f"face {file.name}"))
    with pytest.raises(DataError, match="no picture that is called AGE_GENDER"):
        load("utkface", tmp_path, allow_download=False)


@pytest.mark.data
def test_the_real_faces() -> None:
    found = load("utkface-gender", allow_download=False)
    assert found.counts == {"train": 3000, "test": 1000}
    assert 0.5 < float(found.pool.y.double().mean()) < 0.6
