"""`plan --compare`: the numbers that are held, the distortions, and which law wins."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from sfumato import Key
from sfumato.account.event import Relation, Unit
from sfumato.claim import Claim
from sfumato.commands.app import app
from sfumato.pieces.law_names import LAWS, law_named
from sfumato.pieces.sampler import Drawn, Everyone
from sfumato.planning.compare import compare, distortion

HELD = {
    "gaussian": (1.946, 1.224, 0.983, 0.856),
    "laplace": (2.318, 1.262, 0.917, 0.747),
    "staircase": (2.506, 1.411, 1.036, 0.848),
    "laplace-l2": (2.954, 1.845, 1.465, 1.280),
}


def asked(*words: str) -> Any:
    done = CliRunner().invoke(app, ["plan", "--compare", *words, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.output)


@pytest.mark.parametrize(("place", "epsilon"), list(enumerate((2, 4, 6, 8))))
def test_every_law_needs_at_most_what_is_held(place: int, epsilon: int) -> None:
    words = f"--epsilon {epsilon} --delta 1e-5 --rate 0.05 --steps 300 --dimension 7850 --clip 1"
    found = {one["law"]: one for one in asked(*words.split())["laws"]}
    assert found.keys() == HELD.keys() == LAWS.keys()
    for law, held in HELD.items():
        assert found[law]["stddev_over_clip"] <= held[place] * 1.001, law
        assert found[law]["stddev_over_clip"] >= held[place] * 0.99, f"{law}: less than is known to be needed"
        assert found[law]["epsilon"] <= epsilon


def test_one_release_of_one_number() -> None:
    found = asked(*["--epsilon", "8", "--delta", "1e-5", "--steps", "1", "--dimension", "1"])
    sizes = {one["law"]: round(one["stddev"], 3) for one in found["laws"]}
    assert sizes == {"gaussian": 0.6, "laplace": 0.177, "laplace-l2": 0.177, "staircase": 0.058}
    assert found["wins"]["under_l2_clip"]["l2"] == found["wins"]["under_l1_clip"]["l1"] == "staircase"
    many = {
        one["law"]: one["stddev"]
        for one in asked(*["--epsilon", "8", "--delta", "1e-5", "--steps", "1", "--dimension", "1000"])["laws"]
    }
    assert many["staircase"] == pytest.approx(many["laplace"], rel=1e-4)


def test_the_clip_scales_the_noise_and_decides_nothing_else() -> None:
    words = ["--epsilon", "8", "--delta", "1e-5", "--rate", "0.05", "--steps", "300", "--dimension", "7850", "--clip"]
    one, half = asked(*words, "1"), asked(*words, "0.5")
    for whole, part in zip(one["laws"], half["laws"], strict=True):
        assert (
            part["stddev"] == pytest.approx(whole["stddev"] / 2)
            and part["stddev_over_clip"] == whole["stddev_over_clip"]
        )
        assert part["l1_distortion"] == pytest.approx(whole["l1_distortion"] / 2)
    assert one["wins"] == half["wins"]
    assert one["wins"]["under_l2_clip"] == {"l1": "gaussian", "l2": "gaussian"}
    assert one["wins"]["under_l1_clip"] == {"l1": "laplace", "l2": "laplace"}
    assert one["wins"]["l1_clip_pays_below"] == pytest.approx(0.856 / 0.747, rel=2e-3)


@pytest.mark.parametrize("name", list(LAWS))
@pytest.mark.parametrize("dimension", [1, 6])
def test_distortions_are_those_of_drawn_noise(name: str, dimension: int) -> None:
    law, order = law_named(name, 0.8)
    claim = Claim(Unit.CLIENT, Relation.ADD_REMOVE, 9, dimension).clipped(0.5, order)
    stddev, key = law.stddev(claim), Key.from_seed(6)
    drawn = np.stack([law.sample((dimension,), stddev, key.child("n", n=n)).numpy() for n in range(1200)])
    l1, l2 = distortion(LAWS[name](0.8), claim)
    assert np.abs(drawn).sum(1).mean() == pytest.approx(l1, rel=0.1)
    assert math.sqrt((drawn**2).sum(1).mean()) == pytest.approx(l2, rel=0.15)


def test_a_staircase_of_too_many_levels_says_so_and_the_others_are_shown() -> None:
    *others, last = compare(5e-6, 1e-9, Drawn(Everyone()), 1, 1, 1.0)
    assert last.law == "staircase" and "fit into memory" in last.note
    assert all(one.noise_multiplier is not None for one in others)


def test_it_reads_well_and_says_what_is_missing() -> None:
    words = "plan --compare --epsilon 4 --delta 1e-5 --rate 0.05 --steps 300 --dimension 7850 --clip 1"
    told = CliRunner().invoke(app, words.split()).output
    assert all(len(line) <= 80 for line in told.splitlines()) and "staircase" in told
    for wrong, said in {
        "plan --compare --epsilon 4 --delta 1e-5 --rate 0.05": "--steps",
        "plan --compare --epsilon 4 --delta 1e-5 --rate 0.05 --sample everyone --steps 3 --dimension 5": "--sample",
        "plan --compare --epsilon 4 --delta 1e-5 --steps 3 --dimension 5 --noise gaussian:1": "--noise",
        "plan --compare --epsilon 4 --delta 1e-5 --steps 3 --dimension 0": "--dimension",
        "plan --epsilon 4 --delta 1e-5 --rounds 3 --sample everyone --clip 2": "--compare",
    }.items():
        done = CliRunner().invoke(app, wrong.split())
        assert done.exit_code != 0 and said in str(done.exception or done.output), wrong
    refused = asked(
        *["--epsilon", "4", "--delta", "1e-5", "--sample", "fixed:5/100", "--steps", "3", "--dimension", "5"]
    )
    assert all(one["noise_multiplier"] for one in refused["laws"])
