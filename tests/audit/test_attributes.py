"""Attribute inference: a hidden attribute that pictures show is found, one that a coin decided is not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from sfumato.audit.attack import Found
from sfumato.audit.attacks import attack_run, build
from sfumato.audit.attributes import Hidden, penultimate, scored
from sfumato.cli import run
from sfumato.data import load
from sfumato.data.population import Records
from sfumato.errors import BadValue
from sfumato.key import Key
from sfumato.models import build as build_model

COUNT = 400


def write_faces(folder: Path) -> None:
    """Noisy pictures, reddest for the old; green is the gender, and the ethnicity is a coin's."""
    from PIL import Image

    folder.mkdir(parents=True)
    key = Key.from_seed(5)
    ages = (key.child("age").integers(COUNT) % 90).astype(int)
    gender, coin = ((key.child(word).integers(COUNT) % 2).astype(int) for word in ("gender", "coin"))
    noise = key.child("noise").normal(COUNT, 8, 8, 3).numpy() * 20
    for number in range(COUNT):
        colour = np.array([2.0 * ages[number], 60.0 + 60.0 * gender[number], 100.0])
        pixels = np.clip(colour + noise[number], 0, 255).astype(np.uint8)
        name = f"{ages[number]}_{gender[number]}_{coin[number]}_{number:08d}.jpg"
        Image.fromarray(pixels).resize((32, 32)).save(folder / name, format="PNG")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("faces")
    write_faces(root / "UTKFace")
    words = "train fedavg --data utkface --clients 4 --records-per-client 60 --split dirichlet:1 --rounds 2 --lr 0.01 --quiet"
    assert run([*words.split(), "--data-dir", str(root), "--out", str(root / "run")]) == 0
    return root / "run"


def attacked(folder: Path, attribute: str = "") -> Found:
    return attack_run(folder, build("attributes", {"attribute": attribute}), str, seed=0)


def test_what_pictures_show_is_found_and_stands_beside_what_needs_no_model(trained: Path) -> None:
    found = attacked(trained)
    assert found.numbers["members: accuracy"] > 0.9 and found.numbers["others: accuracy"] > 0.85
    assert found.baselines["raw pixels, members: accuracy"] > 0.9
    assert found.baselines["commonest, members: accuracy"] < 0.65
    low, high = found.bands["members: accuracy"]
    assert low <= found.numbers["members: accuracy"] <= high and low < 1.0
    assert attacked(trained).numbers == found.numbers


def test_what_a_coin_decided_is_not_found(trained: Path) -> None:
    found = attacked(trained, "utkface-ethnicity")
    assert 0.35 < found.numbers["members: accuracy"] < 0.65


def test_attributes_follow_the_picture_wherever_it_was_shared_out(trained: Path) -> None:
    root = str(trained.parent)
    hidden = Hidden.load("utkface-gender", root)
    ages, genders = (load(name, root, allow_download=False) for name in ("utkface", "utkface-gender"))
    order = torch.from_numpy(Key.from_seed(1).permutations(1, ages.train.count)[0])
    shuffled = Records(ages.train.x[order], ages.train.y[order])
    assert torch.equal(hidden.of(shuffled).y, genders.train.y[order])
    with pytest.raises(BadValue, match="does not hold"):
        hidden.of(Records(shuffled.x[:1] + 0.5, shuffled.y[:1]))


def test_the_penultimate_layer_is_what_the_last_one_gets() -> None:
    module = build_model("mlp", (1, 8, 8), 10, Key.from_seed(0))
    x = load("digits").test.records.x[:5]
    inner = penultimate(module)(x)
    assert inner.shape == (5, 200)
    assert torch.allclose(module[-1](inner), module(x))  # type: ignore[index]


def test_intervals_are_exact_at_the_ends() -> None:
    truth = torch.tensor([0, 1] * 10)
    found, (low, high) = scored(truth, truth)
    assert found == {"accuracy": 1.0, "f1": 1.0} and high == 1.0
    assert low == pytest.approx(0.025 ** (1 / 20))  # Clopper and Pearson: low^n = 0.025
    assert scored(1 - truth, truth)[1] == (0.0, pytest.approx(1 - 0.025 ** (1 / 20)))


def test_runs_without_a_hidden_attribute_are_refused(tmp_path: Path, trained: Path) -> None:
    assert run(["train", "fedavg", "--rounds", "1", "--quiet", "--out", str(tmp_path / "digits")]) == 0
    with pytest.raises(BadValue, match="no such hidden attribute"):
        attacked(tmp_path / "digits")
    with pytest.raises(BadValue, match="no such hidden attribute"):
        attacked(trained, "celeba")
