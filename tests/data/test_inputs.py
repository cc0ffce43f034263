"""Records with several inputs: held as one tensor to the bit, alike for all clients, and refused where they are not."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sfumato.data import Client, Population, PublicData, Records
from sfumato.data.inputs import Inputs
from sfumato.digest import digest
from sfumato.engine.packing import packed, unpacked
from sfumato.errors import DataError

INTEGERS = {
    kind: torch.tensor([[torch.iinfo(kind).min, torch.iinfo(kind).max, 1]], dtype=kind)
    for kind in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
}
REALS = torch.tensor([[0.1, -0.0, float("inf"), float("nan"), 1e-45, 3.4e38]])
SMALL = torch.tensor([[0.1, -0.0, float("inf"), 1e-7]])
IDS = torch.tensor([[2**53 + 1, 5], [7, -(2**62) - 1]])  # no float can hold these
TEXT = {"input_ids": IDS, "attention_mask": torch.tensor([[True, False], [True, True]])}
LABELS = torch.tensor([0, 1])


def same(one: torch.Tensor, two: torch.Tensor) -> bool:
    """To the bit, the sign of zero and the bits of NaN included."""
    if one.dtype != two.dtype or one.shape != two.shape:
        return False
    return torch.equal(one.reshape(-1).view(torch.uint8), two.reshape(-1).view(torch.uint8))


@pytest.mark.parametrize(
    "several",
    [
        {"ids": INTEGERS[torch.int64], "real": REALS, "mask": torch.tensor([True])},
        {str(kind): value for kind, value in INTEGERS.items()},
        {"half": SMALL.half(), "brain": SMALL.bfloat16(), "single": REALS, "picture": torch.ones(1, 2, 3, 4)},
        {"half": SMALL.half(), "brain": SMALL.bfloat16(), "mask": torch.tensor([[False]])},
        (INTEGERS[torch.int64], REALS),
        (torch.zeros(0, 3).long(), torch.zeros(0, 2, 2)),
        (IDS,),
    ],
    ids=["mixed", "whole", "real", "small reals and a mask", "by place", "no record", "one"],
)
def test_every_value_comes_back_to_the_bit(several: Any) -> None:
    inputs = Inputs.of(several)
    rows = inputs.pack(several)
    assert rows.dim() == 2 and rows.dtype == (torch.float32 if inputs.real else torch.int64)
    found: Any = inputs.unpack(rows)
    assert type(found) is type(several)
    for name in several if isinstance(several, dict) else range(len(several)):
        assert same(found[name], several[name]), name


def test_rows_come_apart_under_vmap_and_each_alone() -> None:
    several = {"ids": torch.arange(6).reshape(3, 2), "real": torch.linspace(0, 1, 3)}
    inputs = Inputs.of(several)
    rows = inputs.pack(several)
    each: Any = torch.func.vmap(lambda row: inputs.unpack(row[None]))(rows)
    assert all(same(each[name][:, 0], several[name]) for name in several)


def test_the_order_of_names_does_not_matter_and_everything_else_does() -> None:
    assert Inputs.of(TEXT) == Inputs.of(dict(reversed(TEXT.items())))
    assert torch.equal(Inputs.of(TEXT).pack(TEXT), Inputs.of(TEXT).pack(dict(reversed(TEXT.items()))))
    others: list[Any] = [
        {"input_ids": IDS, "mask": TEXT["attention_mask"]},
        {**TEXT, "input_ids": IDS.int()},
        {**TEXT, "input_ids": IDS[:, :1]},
        (IDS, TEXT["attention_mask"]),
    ]
    assert len({Inputs.of(TEXT), *map(Inputs.of, others)}) == 5


MADE = {
    "dict and labels": (TEXT, LABELS),
    "labels inside": {**TEXT, "labels": LABELS},
    "x and y": {"x": TEXT, "y": LABELS},
    "records": Records(TEXT, LABELS),
    "client": Client({**TEXT, "labels": LABELS}, (TEXT, LABELS)),  # type: ignore[arg-type]
    "four": (TEXT, LABELS, TEXT, LABELS),
    "arrays": ({name: value.numpy() for name, value in TEXT.items()}, LABELS.numpy()),
}


@pytest.mark.parametrize("way", MADE)
def test_a_client_gives_them_in_any_of_these_ways(way: str) -> None:
    population = Population.from_function(lambda number: MADE[way], 2)
    client = population.client(0)
    for part in (client.train, client.test):
        if part is not None:
            assert str(part.inputs) == "attention_mask bool[2], input_ids int64[2]"
            assert torch.equal(part.x, Records(TEXT, LABELS).x) and torch.equal(part.y, LABELS)
    assert (client.test is None) == (way not in ("client", "four"))


def test_files_hold_them_by_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "ada.npz", **{name: value.numpy() for name, value in TEXT.items()}, labels=LABELS.numpy())
    assert Population.from_folder(tmp_path).client(0).train.inputs == Inputs.of(TEXT)


def test_what_is_made_of_a_population_keeps_them() -> None:
    population = Population.from_list([(TEXT, LABELS), {**TEXT, "labels": LABELS}])
    assert population.declared(4).client(3).train.inputs == Inputs.of(TEXT)
    assert population.declared(4).client(3).train.count == 0
    assert population.kept().client(1).train.inputs == Inputs.of(TEXT)
    joined = population.joined().client(0).train
    assert joined.inputs == Inputs.of(TEXT) and joined.count == 4
    for travelled in (pickle.loads(pickle.dumps(joined)), copy.deepcopy(joined), unpacked(packed(joined))):
        assert travelled.inputs == joined.inputs and torch.equal(travelled.x, joined.x)


def test_features_and_clients_that_differ_are_refused() -> None:
    two = Population.from_list([(TEXT, LABELS), ({"other": TEXT["input_ids"], "mask": LABELS.bool()}, LABELS)])
    with pytest.raises(DataError, match="inputs differ"):
        two.joined().client(0)
    with pytest.raises(DataError, match="features are made of one tensor"):
        two.mapped(lambda x: x).client(0)


def test_names_shapes_and_types_are_in_the_digest() -> None:
    renamed = {"a": TEXT["attention_mask"], "b": TEXT["input_ids"]}  # the same rows
    assert torch.equal(Records(renamed, LABELS).x, Records(TEXT, LABELS).x)
    names = [digest(Population.from_list([(x, LABELS)]).client(0)) for x in (TEXT, renamed, Records(TEXT, LABELS).x)]
    assert len(set(names)) == 3


@pytest.mark.parametrize(
    ("x", "words"),
    [
        ({}, "has no input"),
        ({"ids": IDS, "mask": torch.ones(3)}, "ids 2, mask 3"),
        ({"ids": IDS, "words": None}, "words is a NoneType"),
        ((IDS, torch.tensor(1.0)), "input 1 is a single number"),
        ({"ids": IDS.to(torch.complex64)}, "complex64 is not known"),
    ],
)
def test_inputs_that_cannot_be_held_are_refused_by_name(x: Any, words: str) -> None:
    with pytest.raises(DataError, match="client 1 of 'broken'") as caught:
        Population.from_function(lambda number: (x, LABELS), 2, "broken").client(1)
    assert words in str(caught.value)


def test_public_data_hold_them_alike() -> None:
    public = PublicData("public", Records(TEXT, LABELS))
    assert public.records.count == 2 and public.records.inputs == Inputs.of(TEXT)
