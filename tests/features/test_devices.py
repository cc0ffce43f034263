"""Maps of records elsewhere: computed on the CPU, of which their exactness is known, and given back where the records are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from sfumato import PublicData, Records
from sfumato.features import (
    STEPS,
    Features,
    Fit,
    PrivatePCA,
    PrivateWord,
    PublicPCA,
    Unlearnt,
    mapped,
    parse_features,
)
from sfumato.key import Key
from tests.pretend_device import pretend_device, values

PICTURES = Key.from_seed(0).normal(5, 3, 16, 16).float()
WORDS = torch.arange(30).reshape(5, 6) % 128
NUMBERS = {"resize": "resize:9", "last-characters": "last-characters:3", "group-norm": "group-norm:3"}
BASIS = PublicPCA.learn(PublicData("public", Records(Key.from_seed(1).normal(9, 3, 16, 16).float(), torch.zeros(9))), 4)
MOMENTS = torch.diag(torch.arange(1.0, 769.0))

MAPS: dict[str, Callable[[Tensor], Tensor]] = {
    **{word: parse_features(NUMBERS.get(word, word)) for word in STEPS},
    **{f"{word} alone": parse_features(NUMBERS.get(word, word)).steps[0] for word in STEPS},
    "pca": BASIS,
    "private-pca": PrivatePCA.learn(MOMENTS, 1e-3, PrivateWord(4), (3, 16, 16)),
    "not learnt yet": Unlearnt(4),
    "one's own": Features((lambda x: x.flatten(1)[:, :4],)),
    "several": Features((*parse_features("resize:9").steps, *parse_features("hog:4").steps)),
    "a whole pool": lambda x: mapped(parse_features("grey"), x),
    "in the shape of others": Fit((1, 9, 9), margin=1),
}


@pytest.mark.parametrize("name", MAPS)
def test_a_map_elsewhere_is_that_of_the_cpu(name: str) -> None:
    x = WORDS if name.startswith("last-characters") else PICTURES
    expected = MAPS[name](x)
    with pretend_device() as device:
        found = MAPS[name](x.to(device))
    assert torch.equal(values(found), expected)


def test_bases_are_learnt_from_records_anywhere() -> None:
    x = Key.from_seed(1).normal(9, 3, 16, 16).float()

    def learnt(device: str) -> tuple[Any, Any]:
        public = PublicData("public", Records(x.to(device), torch.zeros(9, device=device)))
        return PublicPCA.learn(public, 4), PrivatePCA.learn(MOMENTS.to(device), 1e-3, PrivateWord(4), (3, 16, 16))

    expected = learnt("cpu")
    with pretend_device() as device:
        assert learnt(device) == expected
