"""The reconstruction network: better than what needs no model, and the same again after an interruption."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from sfumato.audit.attacks import attack_run, build
from sfumato.audit.reconstruct import Decoder, Reconstruction, guesses_without_a_model, parted
from sfumato.cli import run
from sfumato.data.population import Records
from sfumato.errors import BadValue
from sfumato.key import Key


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 32), (1, 7, 10)])
def test_a_picture_has_the_shape_of_the_records(shape: tuple[int, ...]) -> None:
    assert Decoder(10, shape)(torch.zeros(2, 10)).shape == (2, *shape)


def test_digits_come_back_from_answers_better_than_from_their_classes(tmp_path: Path) -> None:
    words = "train fedavg --rounds 3 --clients 50 --records-per-client 28 --quiet --seed 0"
    assert run([*words.split(), "--out", str(tmp_path / "run")]) == 0
    attack = build("reconstruction", {"records": 100, "public": 250, "epochs": 30})
    told: list[str] = []

    def stop(line: str) -> None:
        told.append(line)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        attack_run(tmp_path / "run", attack, stop, seed=0)
    found = attack_run(tmp_path / "run", attack, str, seed=0)
    assert found.numbers["members: mse"] < found.baselines["mean picture of the class, mse"]
    assert found.baselines["mean picture of the class, mse"] < found.baselines["mean picture, mse"]
    assert found.baselines["mean picture, mse"] < found.baselines["grey, mse"]
    assert attack_run(tmp_path / "run", attack, str, seed=0).numbers == found.numbers
    assert callable(found.pictures["reconstruction"]) and len(found.pictures["reconstruction"]().axes) == 5 * 8


def test_nobody_is_asked_about_what_the_network_has_learnt_from() -> None:
    records = Records(torch.arange(30.0), torch.zeros(30, dtype=torch.int64))
    public, others = parted(records, 15, 100, Key.from_seed(0))
    assert public.count == 15 and others.count == 10 and not {*public.x.tolist()} & {*others.x.tolist()}


def test_means_by_hand() -> None:
    public = Records(torch.tensor([0.0, 2.0, 7.0])[:, None], torch.tensor([0, 0, 1]))
    asked = Records(torch.zeros(3, 1), torch.tensor([1, 0, 2]))
    found = guesses_without_a_model(public, asked)
    assert found["mean picture"].flatten().tolist() == [3.0] * 3
    assert found["mean picture of the class"].flatten().tolist() == [7.0, 1.0, 3.0]


def test_nonsense_is_refused() -> None:
    with pytest.raises(BadValue, match="at least 1 record"):
        Reconstruction(epochs=0)
