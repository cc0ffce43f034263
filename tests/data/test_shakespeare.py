from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from sfumato.data import Dataset, build_population, load
from sfumato.data.shakespeare import CHARACTERS, LENGTH, PARTS, Roles, role_texts
from sfumato.digest import digest
from sfumato.errors import BadValue, DataError
from sfumato.key import Key

from .files import play, write_play

KEY = Key.from_seed(0)


def words(codes: torch.Tensor) -> str:
    return "".join(CHARACTERS[code] for code in codes.tolist())


@pytest.fixture(scope="module")
def made_up(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    root = tmp_path_factory.mktemp("made-up")
    write_play(root, play())
    return load("shakespeare", root, allow_download=False)


HEADS = "THE SONNETS\n\nby William Shakespeare\n  From. None\n\n{title}\n\n\n\nby William Shakespeare\n\n"
USUAL = """
ACT I. SCENE I.
  SIR Toby. What a plague,
    means   my niece
Enter MARIA
  MARIA. By my troth,
    Sir Toby,
                     Exit
  Sir TOBY. Why,

    let her except. Before
  CLOWN. Few
    words
"""
ERRORS = """
ACT I. SCENE 1
AEGEON. Proceed,
  Solinus.
<<THIS NOTE ENDS
THE SPEECH>>
DUKE. Merchant,
ACT II. SCENE 1
  nobody says this
DUKE. plead
  no more.
"""


def test_roles_are_found_as_leaf_finds_them() -> None:
    assert role_texts(HEADS.format(title="TWELFTH NIGHT") + USUAL) == {
        "TWELFTH NIGHT/SIR TOBY": "What a plague, means my niece Why, let her except. Before ",
        "TWELFTH NIGHT/MARIA": "By my troth, Sir Toby, Exit ",
    }


def test_the_comedy_of_errors_stands_further_left() -> None:
    assert role_texts(HEADS.format(title="THE COMEDY OF ERRORS") + ERRORS) == {
        "THE COMEDY OF ERRORS/DUKE": "Merchant, plead no more. ",
    }
    assert role_texts(HEADS.format(title="ANOTHER") + ERRORS) == {}


def test_windows_and_next_characters_follow_the_text(made_up: Dataset) -> None:
    text = role_texts(play())["A MADE-UP PLAY/ROLE A"]
    population = build_population(made_up, 8, "natural", KEY)
    first = next(c for c in map(population.client, range(8)) if words(c.train.x[0]) == text[:LENGTH])
    count = (len(text) - LENGTH) * 7 // 10
    assert first.train.count == count and first.train.x.dtype == first.train.y.dtype == torch.int64
    for i in (0, 1, count - 1):  # the slow twin: slices of the string
        assert words(first.train.x[i]) == text[i : i + LENGTH]
        assert CHARACTERS[int(first.train.y[i])] == text[i + LENGTH]


def test_no_character_is_in_two_parts() -> None:
    roles = Roles.of(role_texts(play()))
    taken = {
        part: [{c for s in starts.tolist() for c in range(s, s + LENGTH + 1)} for starts in roles.starts(part)]
        for part in PARTS
    }
    for role in range(len(roles.names)):
        train, validation, test = (taken[part][role] for part in PARTS)
        assert not (train & validation or train & test or validation & test)
        assert max(train) < min(test) and max(test) == roles.begins[role + 1] - 1


def test_parts_have_their_fractions_and_short_roles_are_left_out() -> None:
    roles = Roles.of({"long": "a" * (10_000 + LENGTH), "least": "b" * 223, "short": "c" * 222})
    assert roles.names == ("long", "least")
    assert [len(roles.starts(part)[0]) for part in PARTS] == [7_000, 1_000 - LENGTH, 2_000 - LENGTH]
    assert [len(roles.starts(part)[1]) for part in PARTS] == [100, 0, 0]


def test_the_public_parts_are_spread_over_all_roles(made_up: Dataset) -> None:
    roles = Roles.of(role_texts(play()))
    everything, few = roles.public("test", at_most=10**9), roles.public("test", at_most=20)
    assert (few.name, few.records.count) == ("shakespeare/test", 20)
    assert everything.records.count == sum(map(len, roles.starts("test"))) == made_up.counts["test"]
    assert made_up.validation is not None and made_up.validation.records.count == made_up.counts["validation"]
    picked = [int((everything.records.x == x).all(1).nonzero()[0]) for x in few.records.x]
    assert picked == sorted(picked) and np.diff(picked).max() <= -(-everything.records.count // 20)


def test_the_data_set_says_what_it_is(made_up: Dataset) -> None:
    assert (made_up.input_shape, made_up.classes, made_up.task) == ((LENGTH,), 80, "next-character")
    assert made_up.counts["clients"] == 8 and made_up.pool.count == made_up.counts["train"]
    assert len(set(CHARACTERS)) == len(CHARACTERS) == 80


def test_fewer_clients_are_some_of_the_roles(made_up: Dataset) -> None:
    def heads(clients: int, seed: int) -> list[str]:
        population = build_population(made_up, clients, "natural", Key.from_seed(seed))
        assert population.name == f"shakespeare/natural/{clients}"
        return [words(population.client(number).train.x[0]) for number in range(clients)]

    every, some = heads(8, 0), heads(3, 0)
    assert len(set(every)) == 8 and some == every[:3]
    assert set(heads(8, 1)) == set(every) and heads(8, 1) != every
    with pytest.raises(BadValue, match="8 of its own"):
        build_population(made_up, 9, "natural", KEY)


def test_a_cap_takes_windows_at_even_distances(made_up: Dataset) -> None:
    whole = build_population(made_up, 2, "natural", KEY).client(1).train
    capped = build_population(made_up, 2, "natural", KEY, records_per_client=7).client(1).train
    places = [i * whole.count // 7 for i in range(7)]
    assert torch.equal(capped.x, whole.x[places]) and torch.equal(capped.y, whole.y[places])
    more = build_population(made_up, 2, "natural", KEY, records_per_client=10**6).client(1).train
    assert torch.equal(more.x, whole.x)
    with pytest.raises(BadValue, match="at least one record"):
        build_population(made_up, 2, "natural", KEY, records_per_client=0)


@pytest.mark.parametrize("cap", [None, 40])
def test_a_role_tests_its_own_model_on_its_last_lines(made_up: Dataset, cap: int | None) -> None:
    whole = build_population(made_up, 1, "natural", KEY, cap).client(0).train
    parted = build_population(made_up, 1, "natural", KEY, cap, test_fraction=0.25).client(0)
    assert parted.test is not None and parted.test.count == round(0.25 * whole.count)
    assert torch.equal(parted.test.x, whole.x[-parted.test.count :])
    assert torch.equal(parted.train.x, whole.x[: parted.train.count])
    step = 1 if cap is None else made_up.pool.count // 8 // cap
    lost = whole.count - parted.test.count - parted.train.count
    assert lost == pytest.approx(LENGTH / step, abs=1)
    tiny = build_population(made_up, 1, "natural", KEY, 5, test_fraction=0.01).client(0)
    assert tiny.test is not None and (tiny.train.count, tiny.test.x.shape) == (5, (0, LENGTH))


def test_other_splits_share_out_the_windows(made_up: Dataset) -> None:
    population = build_population(made_up, 50, "iid", KEY, records_per_client=9)
    assert all(population.client(number).train.x.shape == (9, LENGTH) for number in range(50))
    with pytest.raises(BadValue, match="no clients of their own"):
        build_population(load("digits"), 5, "natural", KEY)


def test_a_role_is_one_client_however_much_of_it_is_used(made_up: Dataset) -> None:
    whole = build_population(made_up, 4, "natural", KEY).identity
    assert build_population(made_up, 4, "natural", KEY, 7, test_fraction=0.25).identity == whole
    others = [build_population(made_up, 3, "natural", KEY), build_population(made_up, 4, "natural", Key.from_seed(1))]
    assert len({whole, *(population.identity for population in others)}) == 3
    assert made_up.people and len(made_up.people) == made_up.counts["clients"]


def test_the_digest_of_a_client_follows_the_text(made_up: Dataset, tmp_path: Path) -> None:
    write_play(tmp_path, play().replace("scene 3", "scene E"))
    other = load("shakespeare", tmp_path, allow_download=False)
    assert torch.equal(other.pool.x, made_up.pool.x)
    found = [build_population(one, 8, "natural", KEY) for one in (made_up, other, made_up)]
    digests = [digest([people.client(number) for number in range(8)]) for people in found]
    assert digests[0] == digests[2] != digests[1] and digest(made_up.scaling) != digest(other.scaling)


def test_the_population_can_be_sent_to_another_process(made_up: Dataset) -> None:
    population = build_population(made_up, 8, "natural", KEY)
    sent = pickle.loads(pickle.dumps(population))
    assert torch.equal(sent.client(3).train.x, population.client(3).train.x)


def test_a_file_without_plays_is_refused(tmp_path: Path) -> None:
    write_play(tmp_path, "<html>not found</html>")
    with pytest.raises(DataError, match="holds no play"):
        load("shakespeare", tmp_path, allow_download=False)


@pytest.mark.data
def test_the_real_text_has_the_published_numbers() -> None:
    root = Path(os.environ["SFUMATO_DATA"])
    texts = role_texts((root / "shakespeare" / "t8.shakespeare.txt").read_text())
    windows = [len(text) - LENGTH for text in texts.values() if len(text) > LENGTH]
    assert (len(windows), sum(windows)) == (1130, 4_226_206)  # LEAF: 1,129 and 4,226,158
    assert set("".join(texts.values())) == set(CHARACTERS) - {"\n"}
    found = load("shakespeare", root, allow_download=False)
    assert found.counts == {"train": 2_950_380, "validation": 5_000, "test": 5_000, "clients": 975}
    population = build_population(found, 975, "natural", KEY, records_per_client=64)
    assert {population.client(number).train.count for number in range(0, 975, 50)} == {64}
