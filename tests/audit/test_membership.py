"""Attacks find members where a model remembers them, and nobody where there is nothing to find."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from sfumato import Sgd
from sfumato.audit.attack import Keep, Subject
from sfumato.audit.attacks import ATTACKS, build, find
from sfumato.audit.canary_record import CanaryRecord
from sfumato.audit.default_attack import Membership
from sfumato.audit.local_world import LocalWorld
from sfumato.audit.membership import Lira, Rmia, Scores, Threshold, in_turn, summary
from sfumato.audit.roc import Roc
from sfumato.audit.run_world import world_of
from sfumato.audit.shadows import Seen, shadows_of
from sfumato.audit.shokri import Shokri
from sfumato.audit.study import study
from sfumato.data.load import load
from sfumato.data.population import Records
from sfumato.errors import BadValue
from sfumato.key import Key
from sfumato.models import build as build_model
from sfumato.objective import classification
from tests.audit.runs import noisy_labels, train

SHADOWS = 16
EVERY: tuple[Scores, ...] = (Lira(), Lira(online=False), Rmia(), Shokri(), CanaryRecord(steps=6))


def quiet(line: str) -> None:
    pass


@pytest.fixture(scope="module")
def keep() -> Keep:
    return Keep(None, seed=0)


@pytest.fixture(scope="module")
def seen(keep: Keep) -> Seen:
    """An overfitted model; the last two shadows are the target and its opposite."""
    world = noisy_labels()
    rows, held = shadows_of(world, SHADOWS + 2, keep, quiet)
    return Seen.of(world, rows[-1], rows, held).instead(SHADOWS)


def truth(keep: Keep) -> np.ndarray:
    world = noisy_labels()
    _, held = shadows_of(world, SHADOWS + 2, keep, quiet)
    return np.asarray(held[SHADOWS])


@pytest.mark.parametrize("attack", EVERY, ids=lambda attack: f"{attack.label}")
def test_members_of_an_overfitted_model_are_found(attack: Scores, seen: Seen, keep: Keep) -> None:
    roc = Roc.of(attack.scores(seen, keep, Key.from_seed(3), quiet), truth(keep))
    low, _ = roc.area_band
    assert low > 0.6, roc.area
    assert attack != Lira() or roc.band(0.01)[0] > 0.05, roc.at(0.01)


@pytest.mark.parametrize("attack", EVERY, ids=lambda attack: f"{attack.label}")
def test_where_membership_is_a_coin_nothing_is_found(attack: Scores, seen: Seen, keep: Keep) -> None:
    coin = Key.from_seed(9).uniform(seen.world.units.count) < 0.5
    roc = Roc.of(attack.scores(seen, keep, Key.from_seed(3), quiet), coin)
    low, high = roc.area_band
    assert low < 0.5 < high and roc.at(0.01) < 0.06


@pytest.mark.parametrize("attack", [Lira(), Rmia(), Threshold()], ids=lambda attack: f"{attack.label}")
def test_a_model_that_never_learnt_gives_nobody_away(attack: Scores, keep: Keep) -> None:
    """With steps too small to move a float32 all shadows know the same, which is nothing."""
    world = noisy_labels(epochs=1, lr=1e-60)
    rows, held = shadows_of(world, 8, keep, quiet)
    found = in_turn(attack, Seen.of(world, rows[0], rows, held), 4, keep, quiet)
    assert found["auc"][0] == pytest.approx(0.5, abs=0.08) and found["tpr at fpr 0.01"][0] < 0.05


def test_lira_beats_the_global_threshold_and_says_what_is_assumed(seen: Seen, keep: Keep) -> None:
    found = summary(Lira(), seen, truth(keep), keep, quiet)
    assert found.numbers["tpr at fpr 0.01"] > found.baselines["global threshold: tpr at fpr 0.01"]
    assert found.numbers["auc"] > found.baselines["a coin, in 1 of 20: auc"]
    low, high = found.bands["shadows in turn: auc"]
    assert low < found.numbers["shadows in turn: auc"] < high and low > 0.6
    assert any("attacker" in note for note in found.notes)
    assert [curve.name for curve in found.curves["roc"].curves] == ["lira", "global threshold", "a coin"]


def test_a_shadow_as_target_leaves_its_opposite_out(seen: Seen) -> None:
    turned = seen.instead(5)
    rest = [0, 1, 2, 3, *range(6, SHADOWS)]
    assert torch.equal(turned.models[-1], seen.models[5]) and torch.equal(turned.models[:-1], seen.models[rest])
    assert torch.equal(turned.inside, seen.inside[rest]) and (turned.inside.sum(0) == (SHADOWS - 2) // 2).all()
    again = Seen.of(seen.world, seen.models[5], seen.models[rest], seen.inside[rest])
    assert torch.allclose(again.losses, turned.losses)


@pytest.mark.parametrize("unit", ["record", "client"])
def test_members_of_a_run_without_privacy_are_found(unit: str, tmp_path: Path, keep: Keep) -> None:
    subject = Subject.of(train(tmp_path / "run", sample="everyone", epochs=40, lr=1.0))
    found = Rmia(shadows=8, unit=unit)(subject, keep, quiet)
    assert found.bands["shadows in turn: auc"][0] > 0.53
    assert found.attack == ("rmia" if unit == "record" else "rmia-of-clients")
    assert any(f"one {unit}" in note for note in found.notes)


def test_shadows_have_others_in_the_places_of_members(tmp_path: Path) -> None:
    subject = Subject.of(train(tmp_path / "run"))
    people, key = subject.prepared.population, Key.from_seed(0)
    for kind in ("record", "client"):
        world = world_of(subject, kind, 20, 1, key)
        choice = torch.arange(world.units.pairs) % 3 > 0
        other = world.with_choice(choice)
        swapped = 0
        for number in range(people.size):
            own, new = people.client(number).train, other.client(number).train
            assert own.x.shape == new.x.shape and own.y.dtype == new.y.dtype
            swapped += int((own.x != new.x).flatten(1).any(1).sum())
        same = world.with_choice(torch.ones_like(choice))
        assert all(torch.equal(people.client(n).train.x, same.client(n).train.x) for n in range(people.size))
        sizes = world.units.sizes[world.units.pairs :][~choice]
        assert swapped == int(sizes.sum())
        members = torch.cat([people.client(number).train.x for number in range(people.size)])
        first = world.units.records.x[: int(world.units.sizes[: world.units.pairs].sum())]
        assert all(bool((members == x).flatten(1).all(1).any()) for x in first)


def test_the_models_of_several_rounds_are_seen_where_they_were_kept(tmp_path: Path) -> None:
    subject = Subject.of(train(tmp_path / "run", rounds=3))
    with pytest.raises(BadValue, match="--keep-releases"):
        world_of(subject, "record", 20, 2, Key.from_seed(0))
    row = torch.zeros(650)
    kept = replace(subject, releases=(row, row + 1, row + 2))
    world = world_of(kept, "record", 20, 2, Key.from_seed(0))
    assert world.looks in ((1, 3), (2, 3))
    choices = torch.ones(1, world.units.pairs, dtype=torch.bool)
    trained = world.train(choices, [Key.from_seed(0)], world.plan(1))
    assert trained.shape == (1, 2, 650) and not torch.equal(trained[0, 0], trained[0, 1])


def test_attacks_are_built_by_name_with_their_options() -> None:
    assert build("lira", {"shadows": 64, "online": False}) == Lira(shadows=64, online=False)
    assert all(find(name).name == name and find(name).summary for name in ATTACKS if name in OWN)
    with pytest.raises(BadValue, match="Did you mean 'lira'"):
        find("lyra")
    with pytest.raises(BadValue, match="Did you mean 'shadows'"):
        build("lira", {"shadow": 3})
    with pytest.raises(BadValue, match="whole number"):
        build("lira", {"shadows": "many"})


@pytest.mark.parametrize(
    ("seconds", "name", "word"), [(1000.0, "rmia", "16 shadows"), (1e-6, "threshold", "No shadow")]
)
def test_the_default_attack_keeps_to_its_time(seconds: float, name: str, word: str, tmp_path: Path, keep: Keep) -> None:
    subject = Subject.of(train(tmp_path / "run", rounds=1, clients=10))
    found = Membership(seconds=seconds, most=40)(subject, keep, quiet)
    assert found.attack == name and word in found.notes[-1]
    assert "NOT private" in json.loads(found.to_json())["warning"]
    assert ("shadows in turn: auc" in found.numbers) == (name == "rmia")


OWN = ("membership", "threshold", "lira", "rmia", "shokri", "canary")


@pytest.mark.parametrize(
    ("attack", "words"),
    [
        (Lira(shadows=3), "even number"),
        (Lira(unit="person"), "one record or one client"),
        (Lira(unit="client", most=5), "fewer than 10"),
        (Lira(looks=9), "rounds"),
        (Lira(shadows=0), "at least 2"),
        (Rmia(shadows=0), "at least 2"),
        (Lira(most=-1), "at least 1 member"),
        (Shokri(shadows=0), "at least 2"),
        (CanaryRecord(shadows=0), "at least 2"),
    ],
)
def test_what_cannot_be_meant_is_refused(attack: Lira, words: str, tmp_path: Path, keep: Keep) -> None:
    subject = Subject.of(train(tmp_path / "run", rounds=1))
    with pytest.raises(BadValue, match=words):
        attack(subject, keep, quiet)


def test_a_study_attacks_models_in_turn(keep: Keep) -> None:
    found, models = study({Lira(): 6, Rmia(): 3}, noisy_labels(), 6, keep, quiet)
    assert len(models) == 6 and set(found) == {"lira", "rmia"}
    mean, (low, high) = found["rmia"]["auc"]
    assert low < mean < high and mean > 0.6
    with pytest.raises(BadValue, match="at least 4 models"):
        study({Lira(): 2}, noisy_labels(), 2, keep, quiet)


@pytest.mark.data
def test_lira_finds_digits_that_a_threshold_does_not(keep: Keep) -> None:
    """16 linear models on 500 digits of MNIST each."""
    digits = load("mnist").train
    pool, module = Records(digits.x[:1000], digits.y[:1000]), build_model("logistic", (1, 28, 28), 10, Key.from_seed(0))
    world = LocalWorld(pool, module, Sgd(lr=0.1, epochs=20, batch_size=32), classification(10))
    found, _ = study({Lira(): 16, Rmia(): 16, Threshold(): 16}, world, 16, keep, quiet)
    _, (_, plain) = found["threshold"]["tpr at fpr 0.01"]
    assert plain < 0.03
    for name in ("lira", "rmia"):
        _, (low, _) = found[name]["tpr at fpr 0.01"]
        assert low > 3 * plain
