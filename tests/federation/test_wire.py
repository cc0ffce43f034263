"""Letters: whatever exists as one arrives bit by bit, and whatever bytes arrive are a letter or a BadLetter."""

from __future__ import annotations

import json
import struct

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sfumato.federation import wire
from sfumato.federation.wire import BadLetter, Letter

DTYPES = sorted(wire._DTYPES, key=str)
facts = st.dictionaries(
    st.text(max_size=8),
    st.text(max_size=8) | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False),
    max_size=4,
)


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    """Of any kind and shape, with any bits, as a view of something larger or not."""
    dtype = draw(st.sampled_from(DTYPES))
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    size = torch.Size(shape).numel() * dtype.itemsize
    data = draw(st.binary(min_size=size, max_size=size))
    if dtype == torch.bool:
        data = bytes(byte & 1 for byte in data)
    flat = torch.frombuffer(bytearray(data), dtype=dtype) if size else torch.empty(0, dtype=dtype)
    tensor = flat.reshape(shape)
    return tensor.transpose(0, -1) if shape and draw(st.booleans()) else tensor


letters = st.builds(
    Letter,
    st.from_regex(wire._KIND, fullmatch=True),
    facts,
    st.dictionaries(st.text(max_size=5), tensors(), max_size=3),
)


def bits(tensor: torch.Tensor) -> bytes:
    return bytes(tensor.contiguous().reshape(-1).view(torch.uint8).tolist()) if tensor.numel() else b""


@given(letters)
def test_a_letter_arrives_bit_by_bit(letter: Letter) -> None:
    again = Letter.from_bytes(letter.to_bytes())
    assert again.kind == letter.kind
    assert {name: (type(fact), repr(fact)) for name, fact in again.facts.items()} == {
        name: (type(fact), repr(fact)) for name, fact in letter.facts.items()
    }
    assert again.tensors.keys() == letter.tensors.keys()
    for name, tensor in letter.tensors.items():
        found = again.tensors[name]
        assert (found.dtype, found.shape, bits(found)) == (tensor.dtype, tensor.shape, bits(tensor))


@given(letters, st.data())
def test_a_cut_letter_is_none(letter: Letter, data: st.DataObject) -> None:
    whole = letter.to_bytes()
    with pytest.raises(BadLetter):
        Letter.from_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(BadLetter):
        Letter.from_bytes(whole + b"\0")


@given(letters, st.data())
def test_altered_bytes_are_a_letter_or_a_bad_one(letter: Letter, data: st.DataObject) -> None:
    altered = bytearray(letter.to_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        altered[data.draw(st.integers(0, len(altered) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        found = Letter.from_bytes(bytes(altered))
    except BadLetter:
        return
    Letter.from_bytes(found.to_bytes())


@given(st.binary(max_size=200))
def test_any_bytes_are_a_letter_or_a_bad_one(data: bytes) -> None:
    try:
        Letter.from_bytes(data)
    except BadLetter:
        return


def with_head(head: object, body: bytes = Letter("x").body()) -> bytes:
    text = head if isinstance(head, bytes) else json.dumps(head).encode()
    return struct.pack(">I", len(text)) + text + body


@pytest.mark.parametrize(
    "head",
    [
        [],
        {"kind": "train"},
        {"kind": "train", "facts": {}, "more": 1},
        {"kind": 7, "facts": {}},
        {"kind": "No Kind", "facts": {}},
        {"kind": "train", "facts": []},
        {"kind": "train", "facts": {"a": None}},
        {"kind": "train", "facts": {"a": True}},
        {"kind": "train", "facts": {"a": [1]}},
        {"kind": "train", "facts": {"a": 2**63}},
        b'{"kind": "train", "facts": {"a": 1e999}}',
        b'{"kind": "train", "facts": {"a": NaN}}',
        b'{"kind": "train", "facts": {"a": 1, "a": 2}}',
        b'{"kind": "train", "facts": {"a": ' + b"9" * 5000 + b"}}",
        b"[" * 100_000,
        b'\xff\xfe{"kind": "train"}',
    ],
)
def test_a_head_is_read_strictly(head: object) -> None:
    with pytest.raises(BadLetter):
        Letter.from_bytes(with_head(head))


def test_a_truth_value_is_0_or_1() -> None:
    data = bytearray(Letter("x", {}, {"b": torch.tensor([True])}).to_bytes())
    data[-1] = 2
    with pytest.raises(BadLetter, match="neither 0 nor 1"):
        Letter.from_bytes(bytes(data))


def test_tensors_that_share_memory_travel_as_their_own() -> None:
    whole = torch.arange(6.0)
    again = Letter.from_bytes(Letter("x", {}, {"a": whole, "b": whole[2:], "c": whole.expand(2, 6)}).to_bytes())
    assert again.tensors["b"].tolist() == [2.0, 3.0, 4.0, 5.0] and again.tensors["c"].shape == (2, 6)


@pytest.mark.parametrize(
    ("kind", "facts", "tensors"),
    [
        ("", {}, {}),
        ("Train", {}, {}),
        ("x" * 65, {}, {}),
        ("x", {"a": float("nan")}, {}),
        ("x", {"a": float("inf")}, {}),
        ("x", {"a": 2**63}, {}),
        ("x", {}, {"a": torch.zeros(2, dtype=torch.complex64)}),
        ("x", {}, {"a": torch.eye(2).to_sparse()}),
    ],
)
def test_what_cannot_travel_is_no_letter(
    kind: str, facts: dict[str, str | int | float], tensors: dict[str, torch.Tensor]
) -> None:
    with pytest.raises(BadLetter, match="Letter"):
        Letter(kind, facts, tensors)


def test_a_letter_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    letter = Letter("x", {"a": "b" * 100}, {"t": torch.zeros(100)})
    data = letter.to_bytes()
    for limit in ("LARGEST", "_LARGEST_HEAD"):
        with monkeypatch.context() as patch:
            patch.setattr(wire, limit, 99)
            with pytest.raises(BadLetter, match="too many"):
                letter.to_bytes()
            with pytest.raises(BadLetter, match="no letter"):
                Letter.from_bytes(data)
