from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sfumato.data import Records
from sfumato.data.split import dirichlet, dirichlet_classes, iid, parse, partition, shards
from sfumato.errors import BadValue, DataError
from sfumato.key import Key

KEY = Key.from_seed(0)


def pool(count: int, classes: int = 10) -> Records:
    return Records(torch.zeros(count, 1), torch.arange(count) % classes)


def mixtures(records: Records, parts: list[np.ndarray]) -> np.ndarray:
    """The frequencies of classes at each client."""
    counts = np.stack([np.bincount(records.y.numpy()[part], minlength=10) for part in parts])
    return np.asarray(counts / counts.sum(1, keepdims=True))


def check_laws(records: Records, parts: list[np.ndarray], clients: int) -> None:
    rows = np.concatenate(parts)
    assert len(parts) == clients
    assert len(np.unique(rows)) == len(rows)
    assert rows.min(initial=0) >= 0 and rows.max(initial=0) < records.count


@given(
    text=st.sampled_from(["iid", "shards:1", "shards:3", "dirichlet:0.1", "dirichlet:100"]),
    clients=st.integers(1, 12),
    each=st.integers(1, 5).map(lambda n: 3 * n),
    spare=st.integers(0, 40),
    classes=st.integers(1, 12),
    seed=st.integers(0, 2**32),
)
def test_fixed_sizes_hold_and_no_record_is_used_twice(
    text: str, clients: int, each: int, spare: int, classes: int, seed: int
) -> None:
    records = pool(clients * each + spare, classes)
    key = Key.from_seed(seed)
    parts = partition(text, records, clients, key, records_per_client=each)
    check_laws(records, parts, clients)
    assert {len(part) for part in parts} == {each}
    again = partition(text, records, clients, key, records_per_client=each)
    assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True))


@given(
    text=st.sampled_from(["iid", "shards:2", "dirichlet:0.3", "dirichlet-classes:0.3", "dirichlet-classes:1e-4"]),
    clients=st.integers(1, 12),
    count=st.integers(24, 200),
)
def test_without_a_size_the_pool_is_shared_out(text: str, clients: int, count: int) -> None:
    records = pool(count)
    parts = partition(text, records, clients, KEY)
    check_laws(records, parts, clients)
    used = sum(map(len, parts))
    if text.startswith("dirichlet-classes"):
        assert used == count
    elif text == "iid":
        assert used == count and max(map(len, parts)) - min(map(len, parts)) <= 1
    else:
        shards_each = 2 if text.startswith("shards") else 1
        assert {len(part) for part in parts} == {count // (clients * shards_each) * shards_each}


def test_another_key_gives_another_split() -> None:
    for text in ("iid", "shards:2", "dirichlet:0.3", "dirichlet-classes:0.3"):
        a, b = (partition(text, pool(200), 10, Key.from_seed(seed)) for seed in (1, 2))
        assert not all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def test_iid_clients_look_like_the_pool() -> None:
    records = pool(20_000)
    assert abs(mixtures(records, iid(records, 10, KEY)) - 0.1).max() < 0.03


def test_shards_give_few_labels() -> None:
    records = pool(2_000)
    parts = shards(records, 20, 2, KEY)
    labels = [len(np.unique(records.y.numpy()[part])) for part in parts]
    assert max(labels) <= 4 and np.mean(labels) < 3


def test_what_is_left_over_by_shards_is_no_label() -> None:
    records = pool(1_090)  # 40 shards of 27 leave ten records out, at random
    used = np.concatenate(shards(records, 20, 2, KEY))
    counts = np.bincount(records.y.numpy()[used], minlength=10)
    assert counts.sum() == 1_080 and counts.min() > 100


def test_dirichlet_has_the_spread_of_its_law() -> None:
    """With plenty of records the variance of a class's share is (1/10)(9/10)/(10a + 1)."""
    records = pool(100_000)
    for concentration in (0.1, 0.5, 5.0):
        found = mixtures(records, dirichlet(records, 200, concentration, KEY, records_per_client=100))
        expected = 0.09 / (10 * concentration + 1) + 0.09 * (1 - 1 / (10 * concentration + 1)) / 100
        assert 0.8 < found.var() / expected < 1.25


def test_dirichlet_classes_has_the_spread_of_its_law() -> None:
    records = pool(100_000)
    for concentration in (0.3, 3.0):
        parts = dirichlet_classes(records, 50, concentration, KEY)
        shares = np.stack([np.bincount(records.y.numpy()[part], minlength=10) for part in parts]) / 10_000
        expected = 0.02 * 0.98 / (50 * concentration + 1)
        assert 0.7 < shares.var() / expected < 1.4


def test_small_concentrations_do_not_fail() -> None:
    parts = dirichlet(pool(1000), 100, 1e-6, KEY)
    assert {len(part) for part in parts} == {10}
    assert sum(map(len, dirichlet_classes(pool(1000), 100, 1e-6, KEY))) == 1000


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("idd", "Did you mean 'iid'"),
        ("iid:3", "iid takes no number"),
        ("shards", "needs a number. Write shards:4"),
        ("shards:2.5", "not a whole number above 0"),
        ("shards:0", "not a whole number above 0"),
        ("dirichlet:-1", "not a finite number above 0"),
        ("dirichlet:nan", "not a finite number above 0"),
        ("dirichlet-classes:inf", "not a finite number above 0"),
        ("dirichlet:few", "needs a number"),
    ],
)
def test_a_text_that_cannot_be_meant_is_refused(text: str, words: str) -> None:
    with pytest.raises(BadValue, match=words):
        parse(text)


def test_counts_that_do_not_fit_are_refused() -> None:
    records = pool(100)
    for call, words in [
        (lambda: iid(records, 101, KEY), "101 clients of at least 1 need 101 records, the pool has 100"),
        (lambda: iid(records, 11, KEY, 10), "need 110 records"),
        (lambda: partition("iid", records, 0, KEY), "at least one"),
        (lambda: partition("iid", records, 5, KEY, 0), "at least one record"),
        (lambda: shards(records, 10, 3, KEY, 10), "Use a multiple of 3"),
        (lambda: shards(records, 60, 2, KEY), "do not fill 120 shards"),
        (lambda: partition("shards:0", records, 10, KEY), "above 0"),
        (lambda: partition("dirichlet:0", records, 10, KEY), "above 0"),
        (lambda: partition("dirichlet-classes:-1", records, 10, KEY), "above 0"),
        (lambda: partition("dirichlet-classes:1", records, 10, KEY, 5), "sizes"),
    ]:
        with pytest.raises(BadValue, match=words):
            call()


def test_splits_by_label_need_labels() -> None:
    numbers = Records(torch.zeros(10, 1), torch.zeros(10))
    assert len(iid(numbers, 2, KEY)) == 2
    with pytest.raises(DataError, match="one class per record"):
        shards(numbers, 2, 1, KEY)
