"""Broken secure sums. The laws hold of ours, and catch each of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sfumato.key import Key
from sfumato.secure_sum import SumSettings, client, masks, shamir, unmasking
from tests.secure_sum import laws

LAWS = [
    laws.law_of_the_sum,
    laws.law_of_one_pad,
    laws.law_of_fresh_masks,
    laws.law_of_whole_keys,
    laws.law_of_unlike_polynomials,
]


@pytest.mark.parametrize("law", LAWS)
def test_ours_holds(law: Callable[[], None]) -> None:
    law()


def _everywhere(patch: pytest.MonkeyPatch, name: str, broken: Callable[..., object]) -> None:
    for module in (masks, client, unmasking):
        if hasattr(module, name):
            patch.setattr(module, name, broken)


def _same_sign(patch: pytest.MonkeyPatch) -> None:
    _everywhere(patch, "sign_of", lambda one, other: 1)


def _sign_of_drop_outs_turned(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(unmasking, "sign_of", lambda one, other: -masks.sign_of(one, other))


def _no_round_in_the_keys(patch: pytest.MonkeyPatch) -> None:
    """The same seed in every round: what a client sends twice under one mask tells the difference."""
    child = Key.child

    def without(self: Key, name: str, **numbers: int | str) -> Key:
        return child(self, name) if name == "secure sum" else child(self, name, **numbers)

    patch.setattr(Key, "child", without)


def _folded_pair_keys(patch: pytest.MonkeyPatch) -> None:
    """All 256 bits added up to 32, as in Flower's SecAgg+."""
    whole = masks.pair_key

    def folded(settings: SumSettings, private: bytes, public: bytes, one: int, other: int) -> bytes:
        return _fold(whole(settings, private, public, one, other))

    _everywhere(patch, "pair_key", folded)


def _folded_own_keys(patch: pytest.MonkeyPatch) -> None:
    whole = masks.own_key
    _everywhere(patch, "own_key", lambda settings, seed, one: _fold(whole(settings, seed, one)))


def _fold(key: bytes) -> bytes:
    return (sum(int.from_bytes(key[at : at + 4], "big") for at in range(0, 32, 4)) % 2**32).to_bytes(32, "big")


def _half_masks(patch: pytest.MonkeyPatch) -> None:
    """Masks of small numbers."""
    whole = masks.add_mask

    def small(row: object, key: bytes, sign: int) -> None:
        import numpy as np

        assert isinstance(row, np.ndarray)
        mask = np.zeros_like(row)
        whole(mask, key, 1)
        mask %= 2**16
        row += mask if sign > 0 else np.zeros_like(row) - mask

    _everywhere(patch, "add_mask", small)


def _no_own_mask(patch: pytest.MonkeyPatch) -> None:
    _everywhere(patch, "own_key", lambda settings, seed, one: bytes(32))


def _one_coefficient(patch: pytest.MonkeyPatch) -> None:
    """Both secrets under the same polynomial: the difference of two shares is the difference of the secrets."""
    whole = shamir.polynomial
    key = Key.from_seed(0)
    patch.setattr(shamir, "polynomial", lambda secret, threshold, own: whole(secret, threshold, key))


def _narrow_coefficients(patch: pytest.MonkeyPatch) -> None:
    whole = shamir.polynomial

    def narrow(secret: bytes, threshold: int, key: Key) -> list[int]:
        first, *others = whole(secret, threshold, key)
        return [first, *(other % 2**64 for other in others)]

    patch.setattr(shamir, "polynomial", narrow)


@pytest.mark.parametrize(
    ("sabotage", "law"),
    [
        (_same_sign, laws.law_of_the_sum),
        (_sign_of_drop_outs_turned, laws.law_of_the_sum),
        (_no_round_in_the_keys, laws.law_of_fresh_masks),
        (_folded_pair_keys, laws.law_of_whole_keys),
        (_folded_own_keys, laws.law_of_whole_keys),
        (_half_masks, laws.law_of_one_pad),
        (_no_own_mask, laws.law_of_whole_keys),
        (_one_coefficient, laws.law_of_unlike_polynomials),
        (_narrow_coefficients, laws.law_of_unlike_polynomials),
    ],
)
def test_a_broken_one_is_caught(
    sabotage: Callable[[pytest.MonkeyPatch], None], law: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    sabotage(monkeypatch)
    with pytest.raises(AssertionError):
        law()
