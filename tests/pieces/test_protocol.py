"""One declared protocol per slot: the table of hooks in the documents is that of the code, and Round asks for no others."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from sfumato import Clip, Everyone, LaplacianSmoothing, Mean, Sgd, UnsoundRound
from sfumato.claim import Claim, Sampling
from sfumato.pieces.protocol import SECOND_FORMS, SLOTS, ClientPiece, FreshSampler, Noisy, Piece, StepRule, abstract
from tests.helpers import dp_round

PAGE = Path(__file__).parents[2] / "docs" / "own-pieces.md"
SOURCES = Path(__file__).parents[2] / "src" / "sfumato"


def hooks(protocol: type[Any]) -> Iterator[tuple[str, str]]:
    """What a protocol itself declares: how it is written, and its sentence."""
    for name in vars(protocol).get("__annotations__", ()):
        found = re.search(rf"^    {name}: .*# (.*)$", inspect.getsource(protocol), re.MULTILINE)
        assert found is not None, f"{protocol.__name__}.{name} has no sentence"
        yield name, found[1]
    for name, value in vars(protocol).items():
        if isinstance(value, property):
            yield name, inspect.getdoc(value.fget) or ""
        elif inspect.isfunction(value) and (not name.startswith("_") or name == "__call__") and name != "__init__":
            arguments = [one for one in inspect.signature(value).parameters if one != "self"]
            yield f"{name}({', '.join(arguments)})", inspect.getdoc(value) or ""


def table() -> list[str]:
    groups = [("every", Piece), ("local, client, server", Noisy)]
    for slot, protocol in SLOTS.items():
        groups += [(f"{slot}: {protocol.__name__}", one) for one in (protocol, Sampling) if one in protocol.__mro__]
        groups += [(f"{slot}: {one.__name__}", one) for one in (FreshSampler, StepRule) if protocol in one.__mro__]
        groups += [(f"{slot}: {one.__name__}", one) for name, one in SECOND_FORMS.items() if name == slot]
    lines = []
    for group, protocol in groups:
        for written, sentence in hooks(protocol):
            assert sentence.endswith((".", ").")), f"{group}.{written} has no sentence"
            name = written.partition("(")[0]
            derived = protocol in (FreshSampler, StepRule) and name in ("cohort", "learn")  # by the rule's own method
            if not derived:
                needed = "yes" if name in abstract(protocol) else ""
                lines.append(f"| {group} | `{written}` | {needed} | {sentence} |")
    return lines


def test_the_table_of_the_documents_is_that_of_the_protocols() -> None:
    page = PAGE.read_text()
    start = page.index("| slot | hook | needed | |")
    found = page[start:].split("\n\n")[0].splitlines()[2:]
    assert found == table()


def test_no_hook_is_looked_for_by_name() -> None:
    """`hasattr` and `getattr` with a default find what nobody declared."""
    searched = [
        *(SOURCES / "engine").glob("*.py"),
        *(SOURCES / "run").glob("*.py"),
        *(SOURCES / "testing").glob("*.py"),
    ]
    searched += [*(SOURCES / "local").glob("*.py"), SOURCES / "calibration.py", SOURCES / "derive.py"]
    looked = re.compile(r"(?:has|get)attr\((?:self\.\w+|round\.\w+|local|piece|optimizer|sampler), \"")
    found = [
        f"{file.name}: {line}" for file in searched for line in file.read_text().splitlines() if looked.search(line)
    ]
    assert [line for line in found if '"carry"' not in line] == []


@pytest.mark.parametrize("protocol", SLOTS.values(), ids=SLOTS)
def test_a_piece_that_lacks_something_is_told_what(protocol: type[Any]) -> None:
    slot = next(slot for slot, one in SLOTS.items() if one is protocol)

    class Nearly:
        def carry(self, claim: Claim) -> Claim:
            return claim

    piece: Any = (Nearly(),) if slot in ("client", "server") else Nearly()
    wanted = [name for name in abstract(protocol) if name != "carry"]
    with pytest.raises(UnsoundRound, match=f"does not belong in the {slot} slot: it lacks {wanted[0]}"):
        dp_round(**{slot: piece})


def test_a_piece_without_its_protocol_is_told_which() -> None:
    @dataclass(frozen=True)
    class Halves:
        def __call__(self, rows: torch.Tensor, context: object) -> torch.Tensor:
            return rows * 0.5

        def carry(self, claim: Claim) -> Claim:
            return claim.scaled(0.5)

    with pytest.raises(UnsoundRound, match="lacks hooks") as refused:
        dp_round(client=(Clip(1.0), Halves()))
    assert "class Halves(ClientPiece)" in refused.value.fix

    class Derived(Halves, ClientPiece):
        pass

    dp_round(client=(Clip(1.0), Derived()))


def test_a_piece_of_another_slot_is_told_where_to_go() -> None:
    with pytest.raises(UnsoundRound, match="move it to the server slot"):
        dp_round(client=(Clip(1.0), LaplacianSmoothing(1.0)))
    for slot, piece in (("sample", Mean(3.0)), ("local", Everyone()), ("aggregate", Sgd(lr=0.1, epochs=1))):
        with pytest.raises(UnsoundRound, match=f"does not belong in the {slot} slot"):
            dp_round(**{slot: piece})
