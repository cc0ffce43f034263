"""The attacks by name. Each is loaded when it is asked for."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sfumato.audit.attack import FOLDER, Attack, Found, Keep, Subject, Tell
from sfumato.errors import BadValue, nearest
from sfumato.imports import import_path
from sfumato.run.settings_text import typed

ATTACKS = {
    "membership": "sfumato.audit.default_attack:Membership",
    "threshold": "sfumato.audit.membership:Threshold",
    "lira": "sfumato.audit.membership:Lira",
    "rmia": "sfumato.audit.membership:Rmia",
    "shokri": "sfumato.audit.shokri:Shokri",
    "canary": "sfumato.audit.canary_record:CanaryRecord",
    "inversion": "sfumato.audit.inversion:Inversion",
    "reconstruction": "sfumato.audit.reconstruct:Reconstruction",
    "attributes": "sfumato.audit.attributes:Attributes",
}


def find(name: str) -> Any:
    """The class of that name, an `Attack`."""
    if name not in ATTACKS:
        raise BadValue(f"there is no attack {name!r}. {nearest(name, ATTACKS)}")
    return import_path(ATTACKS[name])


def build(name: str, options: Mapping[str, Any]) -> Attack:
    """The attack with these options; the others keep their defaults."""
    attack = find(name)
    known = {part.name: str(part.type) for part in dataclasses.fields(attack)}
    for option, value in options.items():
        if option not in known:
            raise BadValue(f"{name} has no option {option!r}. {nearest(option, known)}")
        typed(option, known[option], value)
    built: Attack = attack(**options)
    return built


def attack_run(folder: Path, attack: Attack, tell: Tell, seed: int | None = None) -> Found:
    """Attack the run in a folder; what was computed before an interruption is not computed again."""
    started = time.perf_counter()
    subject = Subject.of(folder)
    with Keep(folder / FOLDER, seed) as keep:
        found = attack(subject, keep, tell)
    return dataclasses.replace(found, seconds=time.perf_counter() - started)
