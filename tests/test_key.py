"""Keys: one path, one stream, of a cryptographic generator."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

from sfumato.chacha import Keystream
from sfumato.key import Key
from tests.slow_chacha import slow_stream


def test_the_stream_is_chacha20_as_published() -> None:
    """RFC 8439, appendix A.1, test vectors 1 and 2: key and nonce of zeros, blocks 0 and 1."""
    expected = (
        "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586"
        "9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed29b721769ce64e43d57133b074d839d531ed1f28510afb45ace10a1f4b794d6f"
    )
    assert slow_stream(bytes(32), 128).hex() == expected
    assert Keystream(bytes(32)).read(128).hex() == expected
    assert Key.from_secret(bytes(32)).stream(128).hex() == expected


@pytest.mark.parametrize("size", [1, 63, 64, 65, 4097, 100_000, 2**22 + 17])
def test_every_way_to_read_gives_the_bytes_of_the_twin(size: int) -> None:
    secret = bytes(range(32))
    expected = slow_stream(secret, size)
    key, stream = Key.from_secret(secret), Keystream(secret)
    assert key.stream(size) == expected
    assert b"".join(key.blocks(size)) == expected
    assert b"".join(list(key.blocks(size))) == expected, "a later block overwrites an earlier one"
    assert stream.read(size // 3) + stream.read(size - size // 3) == expected


def test_what_was_read_is_left_alone_by_later_reads() -> None:
    stream = Keystream(bytes(32))
    first = stream.read(2**20)
    kept = bytes(first)
    stream.read(2**20)
    assert first == kept


def test_paths_decide_not_order() -> None:
    root = Key.from_seed(0)
    a = root.child("noise", round=3, place=1)
    root.child("other").normal(10)
    assert torch.equal(a.normal(5), root.child("noise", place=1, round=3).normal(5))


def test_different_paths_differ() -> None:
    root = Key.from_seed(0)
    keys = [root, root.child("a"), root.child("b"), root.child("a", n=1), root.child("a", n=2), root.child("a").child("b"),
            Key.from_seed(1), Key.from_system(), Key.from_system()]  # fmt: skip
    assert len({bytes(key.stream(16)) for key in keys}) == len(keys)
    assert len({key.digest for key in keys}) == len(keys)


def test_neither_text_nor_name_shows_the_bytes() -> None:
    key = Key.from_secret(bytes(range(32)))
    for shown in (repr(key), str(key), key.digest, repr(key.child("x"))):
        assert bytes(range(32)).hex() not in shown
        assert "\\x01\\x02" not in shown


def test_a_root_has_32_bytes() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        Key.from_secret(b"short")


@pytest.mark.parametrize("count", [8001, 200_001])
def test_normal_numbers_are_normal(count: int) -> None:
    drawn = Key.from_seed(2).child("n", count=count).normal(count).numpy()
    assert stats.kstest(drawn, "norm").pvalue > 1e-4
    assert stats.kstest(drawn / 1.1, "norm").pvalue < 1e-3
    half = count // 2
    assert abs(np.corrcoef(drawn[:half], drawn[half : 2 * half])[0, 1]) < 6 / math.sqrt(half)


def test_the_tail_is_there() -> None:
    drawn = Key.from_seed(3).normal(2_000_000).abs()
    assert 4.8 < float(drawn.max()) < 9.5
    assert int((drawn > 4).sum()) == pytest.approx(2_000_000 * 6.334e-5, rel=0.4)


def angles_fit(released: torch.Tensor, guess: torch.Tensor, places: int) -> float:
    """How well what is left of a release lies on that many rays, in standard deviations: the attack on a coarse angle."""
    left = released.double() - guess
    half = len(left) // 2
    turns = torch.atan2(left[half:], left[:half]) / (2 * math.pi) * places
    return float(torch.cos(2 * math.pi * turns).mean()) * math.sqrt(2 * half)


@pytest.mark.parametrize("bits", [16, 20, 24, 26])
def test_noise_that_was_rounded_to_float32_does_not_tell_what_it_was_added_to(bits: int) -> None:
    clean = Key.from_seed(6).normal(20_000) * 0.3
    released = (clean + Key.from_seed(7).normal(20_000)).float()
    assert abs(angles_fit(released, clean, 2**bits)) < 5.0
    pairs = torch.from_numpy(Key.from_seed(8).uniform(20_000)).reshape(2, -1)
    turns = (pairs[1] * 2**24).floor() * (2 * math.pi * 2.0**-24)
    coarse = torch.cat([turns.cos(), turns.sin()]) * (-2.0 * pairs[0].log()).sqrt().repeat(2)
    if bits == 24:  # the attack works where there is something to see
        assert angles_fit((clean + coarse).float(), clean, 2**bits) > 50.0


def test_uniform_numbers_are_uniform_and_never_0_or_1() -> None:
    drawn = Key.from_seed(4).uniform(100_000)
    assert stats.kstest(drawn, "uniform").pvalue > 1e-4
    assert 0 < drawn.min() < drawn.max() < 1


def test_permutations_are_uniform() -> None:
    orders = Key.from_seed(5).permutations(60_000, 3)
    counts = np.unique(orders @ np.array([9, 3, 1]), return_counts=True)[1]
    assert len(counts) == 6
    assert stats.chisquare(counts).pvalue > 1e-4


def test_shapes() -> None:
    assert Key.from_seed(0).normal(3, 5).shape == (3, 5)
    assert Key.from_seed(0).normal(0).shape == (0,)
    assert Key.from_seed(0).permutations(2, 0).shape == (2, 0)
