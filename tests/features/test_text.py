"""The last characters of a window: each by itself, and refused where there are no windows."""

from __future__ import annotations

import pytest
import torch

from sfumato.errors import SfumatoError
from sfumato.features import LastCharacters, parse_features


def test_a_character_is_a_one_at_its_place() -> None:
    windows = torch.randint(0, 80, (50, 12), generator=torch.Generator().manual_seed(0))
    found = LastCharacters(3)(windows)
    assert found.shape == (50, 3 * 128) and found.dtype is torch.float32
    slow = torch.zeros(50, 3 * 128)
    for record in range(50):
        for place in range(3):
            slow[record, 128 * place + int(windows[record, 9 + place])] = 1.0
    assert torch.equal(found, slow)


def test_a_chain_of_text_has_one_norm_whatever_the_batch() -> None:
    features = parse_features("last-characters:3,unit-norm:3")
    windows = torch.randint(0, 80, (70, 12), generator=torch.Generator().manual_seed(1))
    found = features(windows)
    assert torch.allclose(found.norm(dim=1), torch.tensor(3.0))
    assert all(torch.equal(features(windows[[one]])[0], found[one]) for one in range(70))


@pytest.mark.parametrize(
    ("words", "x", "said"),
    [
        ("last-characters:3", torch.zeros(2, 12), "no windows"),
        ("last-characters:20", torch.zeros(2, 12, dtype=torch.int64), "12 characters"),
        ("last-characters:3", torch.full((2, 12), 200), "from 0 to 127"),
        ("last-characters:0", torch.zeros(2, 12, dtype=torch.int64), "above 0"),
        ("pixels", torch.zeros(2, 12, dtype=torch.int64), "begin with last-characters"),
    ],
)
def test_what_is_no_text_is_refused(words: str, x: torch.Tensor, said: str) -> None:
    with pytest.raises(SfumatoError, match=said):
        parse_features(words)(x)
