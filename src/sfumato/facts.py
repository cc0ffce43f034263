"""What names a thing: plain values and digests, the same in every process; never a `repr`, and never an address.

Two runs are one if their facts are the same, and then they draw the same noise. So whatever can change a result must be here:
all fields of a piece, the values of a tensor, the whole tree of a module with its attributes, the code of a function with
its defaults, what it closes over and what it reads from its module or from another of the user's own, and the code of classes.
Functions and classes of an installed package stand there by their names and by what was installed: a digest of the package's list
of its files and their hashes, so that another version, or the same one built anew, is another thing. A file that somebody edits
where it was installed, or a class that is patched in memory, is not noticed. What has no name but its address is refused.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib.metadata
import json
import sys
import sysconfig
import types
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any

from sfumato.errors import BadValue

_LIBRARIES = ("sfumato", "torch", "numpy", "scipy")  # their code is named by their versions
# What a dataclass writes for itself, and what no longer matters once a thing is made.
_UNTOLD = frozenset(
    ("__init__", "__repr__", "__eq__", "__hash__", "__lt__", "__le__", "__gt__", "__ge__", "__setattr__", "__delattr__")
)
_COUNTS = ("co_argcount", "co_posonlyargcount", "co_kwonlyargcount", "co_flags")
_TOLD_APART = ("_parameters", "_buffers", "_modules")
_NAMES = ("co_names", "co_varnames", "co_freevars", "co_cellvars")
_BUILTIN = (
    types.BuiltinFunctionType,
    types.MethodWrapperType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
)


def digest(*things: Any) -> str:
    """One short name for the facts of all these things.

    >>> digest(1, "a") == digest(1, "a"), digest(1) == digest(1.0), digest(lambda x: x) == digest(lambda x: -x)
    (True, False, False)
    """
    return _short(json.dumps([facts(thing) for thing in things]).encode())


def facts(thing: Any) -> Any:
    """The facts of a thing, as JSON has them; its own method `facts()` comes first.

    >>> from sfumato.account.event import GaussianEvent
    >>> facts(GaussianEvent(2.0))
    {'type': 'sfumato.account.event.GaussianEvent', 'fields': {'ratio': {'float': '0x1.0000000000000p+1'}}}
    """
    return _Walk(f"the {type(thing).__name__}", (), {}).facts(thing)


def _short(content: bytes | memoryview) -> str:
    return hashlib.blake2b(content, digest_size=16, person=b"sfumato-facts").hexdigest()


def _name(thing: Any) -> str:
    return f"{getattr(thing, '__module__', None)}.{getattr(thing, '__qualname__', type(thing).__name__)}"


def _by_name(thing: Any) -> Any:
    """The name of a function or class that a library has, with what was installed; None, if it must be told by its code."""
    if "<" in thing.__qualname__:  # <locals> and <lambda> cannot be found by their names
        return None
    home = str(getattr(thing, "__module__", None)).partition(".")[0]
    if _is_library(home):
        return _name(thing)
    installed = _installed(home)
    return None if installed is None else {"name": _name(thing), "installed": installed}


@functools.cache
def _installed(home: str) -> list[str] | None:
    """What names an installed package: its distributions, each with a digest of its list of files; None, if it is not one."""
    file = getattr(sys.modules.get(home), "__file__", None)
    if file is None or not _among_packages(file):
        return None
    found = []
    for name in sorted(set(_distributions().get(home, ()))):
        distribution = importlib.metadata.distribution(name)
        files = distribution.read_text("RECORD")
        if files is None:
            return None
        found.append(f"{name} {distribution.version} {_short(files.encode())}")
    return found or None


@functools.cache
def _distributions() -> Mapping[str, list[str]]:
    return importlib.metadata.packages_distributions()


def _among_packages(file: str) -> bool:
    return any(Path(file).is_relative_to(sysconfig.get_path(kind)) for kind in ("purelib", "platlib"))


@functools.cache
def _is_library(home: str) -> bool:
    """One of ours, or Python's own: a user's `code.py` or `test/` has the name of such a module, and lies elsewhere."""
    if home in _LIBRARIES or home not in sys.stdlib_module_names:
        return home in _LIBRARIES
    file = getattr(sys.modules.get(home), "__file__", None)
    return file is None or Path(file).is_relative_to(sysconfig.get_path("stdlib"))


@functools.cache
def _is_installed(name: str) -> bool:
    """Whether a module is a library, or was installed beside them; what lies elsewhere is the user's own."""
    file = getattr(sys.modules.get(name), "__file__", None)
    return _is_library(name.partition(".")[0]) or file is None or _among_packages(file)


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from _names(inner)


def _is(thing: Any, home: str, name: str) -> bool:
    """Whether a thing is of a class in a module that need not be loaded: if it is not, nothing is."""
    found = sys.modules.get(home)
    return found is not None and isinstance(thing, getattr(found, name))


@dataclasses.dataclass(frozen=True)
class _Walk:
    """Where it is, in words for errors; the things that contain it, so that a circle ends; and the functions and classes that
    were told before, with their numbers.
    """

    where: str
    above: tuple[Any, ...]
    told: dict[int, Any]

    def part(self, thing: Any, word: str) -> Any:
        return _Walk(f"{self.where}{word}", self.above, self.told).facts(thing)

    def within(self, thing: Any, word: str = "") -> _Walk:
        return _Walk(f"{self.where}{word}", (*self.above, thing), self.told)

    def once(self, thing: Any, tell: Callable[[], Any]) -> Any:
        """A function or class is told where it is met first, and by its number after that: code that is used everywhere, or that
        uses itself, would never end.
        """
        if id(thing) in self.told:
            return {"told": self.told[id(thing)][0]}
        self.told[id(thing)] = len(self.told), thing
        return tell()

    @contextmanager
    def or_nothing(self) -> Iterator[None]:
        """Leaves out what has no name, and with it whatever was told on the way there."""
        before = len(self.told)
        try:
            yield
        except BadValue:
            for key in list(self.told)[before:]:
                del self.told[key]

    def each(self, things: Any) -> list[Any]:
        return [self.part(thing, f"[{number}]") for number, thing in enumerate(things)]

    def named(self, things: Mapping[str, Any]) -> dict[str, Any]:
        return {name: self.part(thing, f".{name}") for name, thing in things.items()}

    def facts(self, thing: Any) -> Any:
        if thing is None or type(thing) in (bool, int, str):
            return thing
        if type(thing) is float:
            return {"float": thing.hex()}
        if isinstance(thing, bytes | bytearray | memoryview):
            return {"bytes": _short(memoryview(thing))}
        for height, other in enumerate(self.above):
            if other is thing:
                return {"again": height}
        if isinstance(thing, type):
            return {"class": self.kind(thing)}
        inside = self.within(thing)
        if callable(getattr(type(thing), "facts", None)):
            return {"type": _name(type(thing)), "facts": inside.part(thing.facts(), ".facts()")}
        return inside.whole(thing)

    def whole(self, thing: Any) -> Any:
        """All of a thing, the last of those above."""
        if isinstance(thing, Enum):
            return {"type": self.kind(type(thing)), "name": thing.name}
        if _is(thing, "torch", "Tensor"):
            return self.tensor(thing)
        if _is(thing, "torch.nn", "Module"):
            return self.module(thing)
        if _is(thing, "numpy", "ndarray") or _is(thing, "numpy", "generic"):
            return self.array(thing)
        if _is(thing, "numpy", "ufunc"):
            return {"ufunc": thing.__name__}
        if dataclasses.is_dataclass(thing):
            values = {field.name: getattr(thing, field.name) for field in dataclasses.fields(thing)}
            return {"type": self.kind(type(thing)), "fields": self.named(values)}
        if isinstance(thing, Mapping):
            pairs = [[self.part(key, "'s key"), self.part(value, f"[{key!r}]")] for key, value in thing.items()]
            return {"type": self.kind(type(thing)), "pairs": pairs}
        if isinstance(thing, tuple | list):
            items = self.each(thing)
            return items if type(thing) is list else {"type": self.kind(type(thing)), "items": items}
        if isinstance(thing, set | frozenset):
            return {"type": self.kind(type(thing)), "members": sorted(self.each(thing), key=json.dumps)}
        if isinstance(thing, types.FunctionType):
            return self.function(thing)
        if isinstance(thing, types.MethodType):
            return {"method": self.part(thing.__func__, ""), "of": self.part(thing.__self__, "'s owner")}
        if isinstance(thing, _BUILTIN):
            owner = getattr(thing, "__self__", getattr(thing, "__objclass__", None))
            return {"builtin": thing.__qualname__, "of": self.part(owner, "'s owner")}
        if isinstance(thing, types.ModuleType):
            return {"import": thing.__name__}
        if isinstance(thing, weakref.ref):
            return self.part(thing(), "")
        if isinstance(thing, functools._lru_cache_wrapper):
            return self.part(thing.__wrapped__, "")
        return self.state(thing)

    def kind(self, cls: type) -> Any:
        """A class by its name, and by its code if it is no package's."""
        named = _by_name(cls)
        return self.once(cls, lambda: self.within(cls, "'s class").whole_class(cls)) if named is None else named

    def whole_class(self, cls: type) -> Any:
        bases = [self.kind(base) for base in cls.__bases__]
        return {"class": _name(cls), "bases": bases, "members": self.members(cls)}

    def members(self, cls: type) -> dict[str, Any]:
        found = {}
        for name, member in sorted(vars(cls).items()):
            functions = [getattr(member, word, None) for word in ("__func__", "func", "fget", "fset")]
            functions = [one for one in (member, *functions) if isinstance(one, types.FunctionType)]
            if functions and name not in _UNTOLD:
                found[name] = [self.part(one, f".{name}") for one in functions]
            elif isinstance(member, bool | int | float | str | tuple) and not name.startswith("__"):
                found[name] = self.part(member, f".{name}")
        return found

    def function(self, thing: types.FunctionType) -> Any:
        named = _by_name(thing)
        return self.once(thing, lambda: self.whole_function(thing)) if named is None else {"function": named}

    def whole_function(self, thing: types.FunctionType) -> Any:
        cells = zip(thing.__code__.co_freevars, thing.__closure__ or (), strict=True)
        return {
            "function": _name(thing),
            "code": digest(self.code(thing.__code__)),
            "defaults": self.part(thing.__defaults__, "'s defaults"),
            "keywords": self.part(thing.__kwdefaults__, "'s defaults"),
            "closes over": {name: self.part(_inside(cell), f"'s {name}") for name, cell in cells},
            "attributes": self.part(vars(thing), "'s attributes"),
            "reads": self.read(thing),
        }

    def read(self, thing: types.FunctionType) -> dict[str, Any]:
        """The global names that a function reads, and what they stand for; what has no name but its address is left out."""
        return self.used(thing.__globals__, set(_names(thing.__code__)))

    def used(self, there: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
        """What these names stand for; in a module that somebody may edit, what they stand for there."""
        found = {}
        for name in sorted(names & there.keys()):
            value = there[name]
            if isinstance(value, types.ModuleType):
                if not _is_installed(value.__name__) and all(other is not value for other in self.above):
                    found[name] = self.within(value, f"'s {name}").used(vars(value), names)
            else:
                with self.or_nothing():
                    found[name] = self.part(value, f"'s {name}")
        return found

    def code(self, code: types.CodeType) -> list[Any]:
        """What the code does; not in which file and line it stands."""
        inner = [self.code(one) if isinstance(one, types.CodeType) else self.part(one, "") for one in code.co_consts]
        words = [self.part(getattr(code, name), "") for name in (*_COUNTS, *_NAMES)]
        return [_short(code.co_code), _short(code.co_exceptiontable), *words, inner]

    def tensor(self, thing: Any) -> Any:
        import torch

        plain = thing.detach().to_dense().cpu().resolve_conj().resolve_neg().contiguous()
        content = memoryview(plain.reshape(-1).view(torch.uint8).numpy()) if plain.numel() else b""
        shape, trains = list(thing.shape), thing.requires_grad
        return {"tensor": str(thing.dtype), "shape": shape, "trains": trains, "is": _short(content)}

    def array(self, thing: Any) -> Any:
        import numpy as np

        plain = np.ascontiguousarray(thing)
        if plain.dtype.hasobject:
            return {"objects": self.each(plain.reshape(-1).tolist()), "shape": list(plain.shape)}
        return {"array": plain.dtype.str, "shape": list(np.shape(thing)), "is": _short(plain.tobytes())}

    def module(self, thing: Any) -> Any:
        """A torch module: its class, parameters and buffers, every attribute, and its children alike."""
        own = {name: value for name, value in vars(thing).items() if name not in _TOLD_APART}
        for name, value in own.items():
            if "hooks" in name and isinstance(value, dict):  # numbered by the process
                own[name] = list(value.values())
        return {
            "module": self.kind(type(thing)),
            "attributes": self.named(own),
            "tensors": self.named({**thing._parameters, **thing._buffers}),
            "children": self.named(thing._modules),
        }

    def state(self, thing: Any) -> Any:
        """Anything else by its class and by what it would be pickled as, if that is all there is to it."""
        if type(thing) is object:
            raise self.refusal(thing)
        try:
            reduced = thing.__reduce_ex__(4)
        except Exception:
            raise self.refusal(thing) from None
        if isinstance(reduced, str):
            return {"type": self.kind(type(thing)), "name": reduced}
        make, arguments, state, *items = (*reduced, None)[: max(3, len(reduced))]
        if getattr(make, "__module__", None) == "copyreg":  # the class itself, which is told with its code
            make, arguments = None, [one for one in arguments if one is not type(thing)]
        parts = [make, arguments, state, *(None if some is None else list(some) for some in items[:2])]
        return {"type": self.kind(type(thing)), "state": [self.part(one, "") for one in parts]}

    def refusal(self, thing: Any) -> BadValue:
        return BadValue(
            f"{self.where} is a {_name(type(thing))}, which has no name but its address: nobody can tell this run from another. "
            "Give its class a method facts() that returns what it is in plain values (numbers, texts, tensors), or use a "
            "frozen dataclass or a function."
        )


def _inside(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not set yet
        return "nothing yet"
