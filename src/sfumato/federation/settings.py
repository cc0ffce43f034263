"""The server's side of a federation, as run.toml has it under [federation], and the registry of its nodes."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sfumato.data.population import Population
from sfumato.digest import digest
from sfumato.errors import BadValue, DataError, nearest
from sfumato.federation.terms import declared_example, nobody_here
from sfumato.run.settings_text import toml_value
from sfumato.secure_sum import Power

KEYS = ("own", "shared")
_KEY = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Member:
    """A node that may take part: its name, the public line of the key by which the server knows it, and the public key that it
    signs with in a secure sum, as hexadecimal digits.
    """

    name: str
    key: str
    signs: str

    def to_toml(self) -> str:
        return f"[[node]]\nname = {toml_value(self.name)}\nkey = {toml_value(self.key)}\nsigns = {toml_value(self.signs)}\n"


@dataclass(frozen=True)
class Settings:
    """Who takes part, which records they have, where the server listens, and how long it waits. Paths are files.

    Shapes are those of a record before any features. `keys = "shared"` is for tests: the server then knows what clients draw.
    """

    registry: str
    certificate: str
    key: str
    authority: str
    input_shape: tuple[int, ...]
    input_type: str = "float32"
    target_shape: tuple[int, ...] = ()
    target_type: str = "int64"
    host: str = "127.0.0.1"
    port: int = 9092
    deadline: float = 60.0
    wait: float = 60.0
    keys: str = "own"
    power: str = Power.FOLLOWS.value  # of the server in a secure sum
    run: str = ""  # the name of the run, once it has begun

    @staticmethod
    def of(table: dict[str, Any], beside: Path) -> Settings:
        """The settings in a table; relative paths are `beside` the file that it stands in."""
        known = {part.name: part for part in dataclasses.fields(Settings)}
        for name, value in table.items():
            if name not in known:
                raise BadValue(f"federation.{name}: there is no such key. {nearest(name, known)}")
            _check(name, str(known[name].type), value)
        if missing := [
            name for name, part in known.items() if part.default is dataclasses.MISSING and name not in table
        ]:
            raise BadValue(f"[federation] lacks {', '.join(missing)}. Let sfumato deploy write it.")
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in table.items()
        }
        paths = {name: str(beside / table[name]) for name in ("registry", "certificate", "key", "authority")}
        found = Settings(**{**values, **paths})
        if found.keys not in KEYS:
            raise BadValue(f"federation.keys={found.keys!r}: {nearest(found.keys, KEYS)}")
        if found.power not in (powers := [power.value for power in Power]):
            raise BadValue(f"federation.power={found.power!r}: {nearest(found.power, powers)}")
        for name in ("deadline", "wait"):
            if not 0.0 < getattr(found, name) <= 86_400.0:
                raise BadValue(f"federation.{name}={getattr(found, name):g}: seconds, more than 0 and at most a day.")
        return found

    def table(self) -> dict[str, Any]:
        """What stands in run.toml of a run that has begun: whole paths, so that it can be gone on with from anywhere."""
        found: dict[str, Any] = {
            name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()
        }
        for name in ("registry", "certificate", "key", "authority"):
            found[name] = str(Path(found[name]).resolve())
        return found

    def members(self) -> tuple[Member, ...]:
        """Everybody in the registry, in the order of their numbers."""
        return read_registry(Path(self.registry))

    def people(self, name: str, seeded: bool) -> Population:
        """The population that the registry declares: nobody's data are here.

        Who replies, and what, may change. Only where clients' keys are shared, which tests do, a seeded run has fixed data.
        """
        members, seeded = self.members(), seeded and self.keys == "shared"
        identity = digest("nodes", [member.key for member in members])
        example = declared_example(self.input_shape, self.input_type, self.target_shape, self.target_type)
        found = Population(name, len(members), nobody_here, identity=identity, is_fixed=seeded)
        return dataclasses.replace(found, example=example)


def read_registry(path: Path) -> tuple[Member, ...]:
    """The nodes in a registry file: `[[node]]` tables with a name and a key each; the order counts clients from 0."""
    try:
        found = tomllib.loads(path.read_text())["node"]
        members = tuple(Member(*(str(one[word]) for word in ("name", "key", "signs"))) for one in found)
    except OSError as error:
        raise DataError(f"the registry {path} cannot be read: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, KeyError, TypeError, UnicodeDecodeError):
        raise DataError(
            f"{path} is no registry: it has a table [[node]] with name, key and signs for each node."
        ) from None
    for word in ("name", "key", "signs"):
        if len({getattr(member, word) for member in members}) < len(members):
            raise DataError(f"{path}: two nodes have the same {word}. Give each its own.")
    if not members:
        raise DataError(f"{path} names no node.")
    return members


def write_registry(path: Path, members: tuple[Member, ...]) -> None:
    """A registry file."""
    from sfumato.engine.checkpoint import write_atomically

    tables = (member.to_toml() for member in members)
    write_atomically(path, "# Client 0 is the first. Never change the order.\n\n" + "\n".join(tables))


def verifying_keys(members: tuple[Member, ...]) -> dict[int, bytes]:
    """The public keys that clients sign with, by number; whoever has none that can be read is left out."""
    return {
        number: bytes.fromhex(member.signs) for number, member in enumerate(members) if _KEY.fullmatch(member.signs)
    }


def _check(name: str, wanted: str, value: Any) -> None:
    kinds: dict[str, tuple[type, ...]] = {"str": (str,), "int": (int,), "float": (int, float), "tuple": (list, tuple)}
    right = type(value) in kinds[wanted.partition("[")[0]]
    if right and wanted.startswith("tuple"):
        right = all(type(one) is int and one >= 0 for one in value)
    if not right:
        raise BadValue(f"federation.{name}={value!r}: it has another type. Let sfumato deploy write it.")
