"""USPS in both its formats, and pictures by domain or by person: tiny files in their public layouts, and the real ones."""

from __future__ import annotations

import bz2
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from sfumato.data import build_population, load
from sfumato.data.domain_names import FRUIT
from sfumato.data.load import hold_out, share_records
from sfumato.errors import DataError
from sfumato.key import Key

from .files import write_pictures

KEY = Key.from_seed(0)
DOMAINS = ("amazon", "caltech10", "dslr", "webcam")


def digits(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Numbers with three decimals, as the published ones have, and their labels."""
    x = np.round(Key.from_seed(count).uniform(256 * count) * 2 - 1, 3).reshape(count, 256)
    x[:, 5] = 0.0  # what is 0 is not written
    return x, np.arange(count) % 10


def write_libsvm(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, count in (("usps.bz2", 12), ("usps.t.bz2", 11)):
        x, y = digits(count)
        lines = [
            " ".join([str(label + 1), *(f"{i + 1}:{value}" for i, value in enumerate(row) if value)])
            for row, label in zip(x, y, strict=True)
        ]
        (folder / name).write_bytes(bz2.compress("\n".join(lines).encode()))


def write_hdf5(folder: Path) -> None:
    import h5py

    folder.mkdir(parents=True, exist_ok=True)
    with h5py.File(folder / "usps.h5", "w") as file:
        for part, count in (("train", 12), ("test", 11)):
            x, y = digits(count)
            file[f"{part}/data"], file[f"{part}/target"] = ((x + 1) / 2).astype(np.float32), y.astype(np.int32)


def test_usps_is_the_same_in_both_formats(tmp_path: Path) -> None:
    write_libsvm(tmp_path / "text" / "usps")
    write_hdf5(tmp_path / "hdf5")
    text, hdf5 = (load("usps", tmp_path / name, allow_download=False) for name in ("text", "hdf5"))
    assert text.counts == hdf5.counts == {"train": 12, "test": 11}
    assert (text.input_shape, text.classes, text.pool.y[:3].tolist()) == ((1, 16, 16), 10, [0, 1, 2])
    assert torch.equal(text.pool.x, hdf5.pool.x) and text.stored == hdf5.stored
    assert float(text.pool.x[3, 0, 0, 5]) == 0.5
    before = text.pool.x.clone()
    assert torch.equal(text.train.x, text.scaling(text.pool.x)) and torch.equal(before, text.pool.x)
    assert torch.equal(text.unscaled.train.x, text.pool.x) and text.unscaled.stored == text.stored
    assert float(text.unscaled.test.records.x.max()) <= 1.0


def test_without_h5py_the_error_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_hdf5(tmp_path)
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(DataError, match=r"pip install 'sfumato\[usps\]', or put usps.bz2"):
        load("usps", tmp_path, allow_download=False)


def test_broken_usps_files_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "usps.h5").write_bytes(b"<html>")
    with pytest.raises(DataError, match="usps.h5 is no HDF5 file"):
        load("usps", tmp_path, allow_download=False)
    for text, words in ((b"1 1:x\n", "is no text of LIBSVM"), (b"1 1:7.0\n", "not 256 in range")):
        for name in ("usps", "usps.t"):
            (tmp_path / name).write_bytes(text)
        with pytest.raises(DataError, match=words):
            load("usps", tmp_path, allow_download=False)


def test_each_domain_is_a_client_and_the_same_in_every_set(tmp_path: Path) -> None:
    for number, domain in enumerate(DOMAINS):
        write_pictures(tmp_path / "office-caltech10" / domain, {"bike": 6 + number, "mug": 4}, ".png", mode="RGB")
    every = load("office-caltech10", tmp_path, allow_download=False)
    others, one = (load(f"office-caltech10-{name}", tmp_path, allow_download=False) for name in ("not-dslr", "dslr"))
    assert every.counts == {"train": 38, "test": 8, "clients": 4} and every.classes == 2
    assert (every.people, others.people, one.people) == (DOMAINS, ("amazon", "caltech10", "webcam"), ("dslr",))
    assert every.own is not None and every.input_shape == (3, 64, 64)
    assert torch.equal(every.pool.x[every.own[2] : every.own[3]], one.pool.x)
    assert torch.equal(one.pool.y, (one.pool.x[:, 0, 0, 0] >= 20).long())
    population = build_population(every, 4, "natural", KEY)
    assert sorted(population.client(i).train.count for i in range(4)) == [8, 9, 10, 11]
    (tmp_path / "office-caltech10" / "webcam" / "mug").rename(tmp_path / "gone")
    with pytest.raises(DataError, match="mug is missing"):
        load("office-caltech10", tmp_path, allow_download=False)


def test_what_is_public_is_no_clients() -> None:
    for one, other, said in (
        ("office-caltech10-not-dslr", "office-caltech10-dslr", False),
        ("office-caltech10", "office-caltech10-dslr", True),
        ("domainnet-fruit-real", "domainnet-real", True),
        ("svhn", "svhn-extra", True),
        ("emnist-letters", "emnist-byclass", True),
        ("digits", "mnist", False),
        ("mnist", "fashion-mnist", False),
    ):
        assert share_records(one, other) == share_records(other, one) == said


def test_domainnet_is_read_by_its_lists_and_the_fruit_by_their_names(tmp_path: Path) -> None:
    folder = tmp_path / "domainnet"
    for domain in ("clipart", "infograph", "painting", "quickdraw", "real", "sketch"):
        write_pictures(folder / domain, {"zebra": 2, "pear": 3}, ".jpg", side=70, mode="RGB")
        for part, numbers in (("train", (0, 1)), ("test", (1,))):
            lines = [
                f"{domain}/{kind}/00000{n}.jpg {label}"
                for kind, label in (("zebra", 344), ("pear", 218))
                for n in numbers
            ]
            (folder / f"{domain}_{part}.txt").write_text("\n".join(lines) + "\n")
    whole, fruit = (load(name, tmp_path, allow_download=False) for name in ("domainnet", "domainnet-fruit-not-real"))
    assert (whole.counts, whole.classes) == ({"train": 24, "test": 12, "clients": 6}, 345)
    assert whole.pool.y.unique().tolist() == [218, 344] and whole.pool.x.shape[1:] == (3, 64, 64)
    assert (fruit.counts, fruit.classes) == ({"train": 10, "test": 5, "clients": 5}, 7)
    assert fruit.pool.y.unique().tolist() == [FRUIT.index("pear")] and "real" not in fruit.people
    (folder / "sketch_test.txt").write_text("sketch/pear/000002.jpg\n")
    with pytest.raises(DataError, match="not a picture and its label"):
        load("domainnet", tmp_path, allow_download=False)


def test_celeba_has_persons_as_clients_and_its_own_parts(tmp_path: Path) -> None:
    from PIL import Image

    folder = tmp_path / "celeba"
    (folder / "img_align_celeba").mkdir(parents=True)
    names = [f"{number:06d}.jpg" for number in range(1, 9)]
    for number, name in enumerate(names):
        Image.new("RGB", (178, 218), (20 * number, 0, 0)).save(folder / "img_align_celeba" / name, quality=100)
    persons, parts = [9, 4, 9, 4, 4, 7, 7, 2], [0, 0, 0, 0, 0, 1, 1, 2]
    signs = [" ".join("1" if (number + column) % 3 == 0 else "-1" for column in range(40)) for number in range(8)]
    head = f"8\n{' '.join(f'Attribute_{column}' for column in range(40))} \n"
    (folder / "list_attr_celeba.txt").write_text(head + "\n".join(map(" ".join, zip(names, signs, strict=True))) + "\n")
    for file, values in (("list_eval_partition.txt", parts), ("identity_CelebA.txt", persons)):
        (folder / file).write_text(
            "\n".join(f"{name} {value}" for name, value in zip(names, values, strict=True)) + "\n"
        )
    found = load("celeba", tmp_path, allow_download=False)
    assert found.counts == {"train": 5, "validation": 2, "test": 1, "clients": 2}
    assert (found.task, found.classes, found.people) == ("multi-label", 40, ("person 4", "person 9"))
    assert found.own is not None and found.own.tolist() == [0, 3, 5] and found.pool.x.shape == (5, 3, 64, 64)
    red = (found.pool.x[:, 0, 5, 5].float() / 20).round().long()  # which picture it was
    assert red.tolist() == [1, 3, 4, 0, 2]
    assert torch.equal(found.pool.y, ((red[:, None] + torch.arange(40)) % 3 == 0).long())
    assert float(found.unscaled.test.records.x[0, 0, 0, 0]) == pytest.approx(140 / 255, abs=0.02)
    parted = hold_out(found.unscaled, 1, Key.from_seed(0), "public")  # of people who are no clients
    assert parted.pool.count == 5 and parted.validation is not None and parted.validation.records.count == 1
    assert 90 / 255 < float(parted.validation.records.x[0, 0, 5, 5]) < 130 / 255
    (folder / "identity_CelebA.txt").write_text("000001.jpg 9\n")
    with pytest.raises(DataError, match="name different pictures"):
        load("celeba", tmp_path, allow_download=False)


@pytest.mark.data
def test_the_real_usps_and_office() -> None:
    usps = load("usps", allow_download=False)
    assert usps.counts == {"train": 7291, "test": 2007}
    assert abs(float(usps.train.x.mean())) < 0.001 and abs(float(usps.train.x.std()) - 1) < 0.001
    dslr = load("office-caltech10-dslr", allow_download=False)
    assert (dslr.counts, dslr.classes) == ({"train": 126, "test": 31, "clients": 1}, 10)
