"""Shakespeare's plays by speaking role, cut as LEAF cuts them (Caldas et al. 2018): a role is a client.

A play starts at a line with "by William Shakespeare", its title above; the sonnets before the first play and the poem after
the last one have no roles. A line with two spaces, a name and a full stop starts a speech of that role, lines with four
spaces go on with it. The Comedy of Errors stands two spaces further left, and its acts are no roles. Upper and lower
case name the same role. A role of at most two lines is left out, the lines of the others are joined, and runs of spaces
become one. A record is a window of 80 characters and the character that follows; windows start at every character.

| on t8.shakespeare.txt                                    | roles | windows   |
|----------------------------------------------------------|-------|-----------|
| here                                                     | 1,130 | 4,226,206 |
| as published by LEAF, from another edition of the file   | 1,129 | 4,226,158 |
| 64 windows or more, not counting the 79 that a cut loses | 975   | 4,215,453 |

Kept are the 975 that are also those of DP-Fed-LS (Liang et al. 2020). Each role's windows are parted in the order of the
text: 0.7 to train, 0.1 to validate, 0.2 to test. A window that starts in one part and shares a character with the part
before is left out, so no character of the public parts is one that a client trains on.
"""

from __future__ import annotations

import re
import string
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

from sfumato.data.population import PublicData, Records
from sfumato.data.record_map import batched
from sfumato.data.sets import Dataset
from sfumato.data.split import spread
from sfumato.errors import DataError

FILE = "t8.shakespeare.txt"
LENGTH = 80
LEAST_WINDOWS = 64
PUBLIC_WINDOWS = 5_000
CHARACTERS = "\n !\"&'(),-." + string.digits + ":;>?" + string.ascii_uppercase + "[]" + string.ascii_lowercase + "}"
PARTS = {"train": (0, 7), "validation": (7, 8), "test": (8, 10)}  # tenths of a role's windows

_AUTHOR = "by William Shakespeare"
_FLUSH_LEFT = "THE COMEDY OF ERRORS"
_SPEECH = re.compile(r"([a-zA-Z][a-zA-Z ]*)\. (.*)")
_CODES = np.zeros(256, np.uint8)  # what is no known character becomes the line end, which the joined lines do not have
_CODES[np.frombuffer(CHARACTERS.encode(), np.uint8)] = np.arange(len(CHARACTERS))


@batched
@dataclass(frozen=True)
class Windows:
    """From where a window starts to its characters as numbers.

    >>> Windows(torch.arange(6, dtype=torch.uint8), length=3)(torch.tensor([0, 2]))
    tensor([[0, 1, 2],
            [2, 3, 4]])
    """

    text: torch.Tensor = field(repr=False)
    length: int

    def __call__(self, starts: torch.Tensor) -> torch.Tensor:
        return self.text.unfold(0, self.length, 1)[starts].long()


@dataclass(frozen=True)
class Roles:
    """Roles by name, their texts end to end, and where each begins."""

    names: tuple[str, ...]
    text: torch.Tensor = field(repr=False)
    begins: np.ndarray = field(repr=False)

    @staticmethod
    def of(texts: dict[str, str]) -> Roles:
        """The roles with enough windows."""
        kept = {name: text for name, text in texts.items() if len(text) - 2 * LENGTH + 1 >= LEAST_WINDOWS}
        codes = _CODES[np.frombuffer("".join(kept.values()).encode("latin-1"), np.uint8)]
        begins = np.cumsum([0, *map(len, kept.values())])
        return Roles(tuple(kept), torch.from_numpy(codes), begins)

    @property
    def windows(self) -> Windows:
        return Windows(self.text, LENGTH)

    def starts(self, part: str) -> list[np.ndarray]:
        """Where the windows of a part start, for each role."""
        first, last = PARTS[part]
        gap = LENGTH if first else 0
        counts = np.diff(self.begins) - LENGTH
        return [
            begin + np.arange(first * count // 10 + gap, last * count // 10)
            for begin, count in zip(self.begins[:-1], counts, strict=True)
        ]

    def records(self, part: str) -> Records:
        """Where every window of a part starts, and its next character."""
        starts = torch.from_numpy(np.concatenate(self.starts(part)))
        return Records(starts, self.text[starts + LENGTH].long())

    def public(self, part: str, at_most: int = PUBLIC_WINDOWS) -> PublicData:
        """Windows of a part, evenly spaced over all roles: enough to measure on, few enough for every round."""
        stored = self.records(part)
        chosen = torch.from_numpy(spread(stored.count, at_most))
        return PublicData(f"shakespeare/{part}", Records(self.windows(stored.x[chosen]), stored.y[chosen]))


def shakespeare(name: str, root: Path) -> Dataset:
    """Roles as clients of the first 0.7 of their lines; the last 0.2 of every role's is the public test split."""
    path = next((p for p in (root / "shakespeare" / FILE, root / FILE) if p.is_file()), None)
    if path is None:
        raise FileNotFoundError(FILE)
    roles = Roles.of(role_texts(path.read_bytes().decode("latin-1")))
    if not roles.names:
        raise DataError(f"{path} holds no play with roles of {LEAST_WINDOWS} windows or more. Fetch it again.")
    own = np.cumsum([0, *(len(starts) for starts in roles.starts("train"))])
    pool, test, validation = roles.records("train"), roles.public("test"), roles.public("validation")
    counts = {"train": pool.count, "validation": validation.records.count, "test": test.records.count}
    counts["clients"] = len(roles.names)
    kind = "next-character"
    windows, names = roles.windows, roles.names
    return Dataset(name, pool, test, len(CHARACTERS), kind, counts, windows, own, LENGTH, validation, names)


def role_texts(text: str) -> dict[str, str]:
    """What each role says, by PLAY/ROLE.

    >>> role_texts("by William Shakespeare\\nA PLAY\\n\\nby William Shakespeare\\n  ANN. One\\n    two\\n    three\\n  Bob. No")
    {'A PLAY/ANN': 'One two three '}
    """
    lines = text.splitlines()
    heads = [number for number, line in enumerate(lines) if _AUTHOR in line][1:]
    texts = {}
    for head, end in pairwise([*heads, len(lines)]):
        title = next((line.strip() for line in reversed(lines[:head]) if line.strip()), "")
        speeches = _speeches(lines[head + 1 : end], flush_left=title == _FLUSH_LEFT)
        if len(speeches) > 1:
            for role, said in speeches.items():
                if len(said) > 2:
                    texts[f"{title}/{role}"] = re.sub(" {2,}", " ", "".join(f"{line} " for line in said))
    return texts


def _speeches(lines: list[str], flush_left: bool) -> dict[str, list[str]]:
    said: dict[str, list[str]] = defaultdict(list)
    indent, further = ("", "") if flush_left else ("  ", "    ")
    role = ""
    for line in lines:
        if line.startswith(indent) and (speech := _SPEECH.match(line, len(indent))):
            role, words = " ".join(speech[1].upper().split()), speech[2]
        elif role and line.startswith(further):
            words = line[len(further) :]
        else:
            continue
        if flush_left and (role.startswith("ACT ") or line.startswith("<")):  # acts, and notes of the publisher
            role = ""
        else:
            said[role].append(words)
    return dict(said)
