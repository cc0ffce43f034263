"""What a user names by an import path, `module:name`."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from sfumato.errors import BadValue, nearest


def is_import_path(text: str) -> bool:
    """Whether a text has the form `module:name` and not that of a short name or an option such as `shards:4`.

    >>> is_import_path("my.package:build"), is_import_path("cnn-mnist"), is_import_path("shards:4")
    (True, False, False)
    """
    module, colon, name = text.partition(":")
    return bool(colon) and all(word.isidentifier() for word in [*module.split("."), *name.split(".")])


def import_path(path: str) -> Any:
    """The object that `module:name` names; modules are also looked for in the working folder.

    >>> import_path("math:sqrt")(9.0)
    3.0
    """
    if not is_import_path(path):
        raise BadValue(f"{path!r} is no import path. Write module:function, e.g. mypackage.models:build.")
    module_name, _, name = path.partition(":")
    here = os.getcwd()
    added = here not in sys.path and "" not in sys.path
    if added:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module_name)
    except ImportError as error:
        raise BadValue(
            f"{path}: cannot import {module_name!r} ({error}). Install it, or run where {module_name} lies."
        ) from error
    finally:
        if added:
            sys.path.remove(here)
    for word in name.split("."):
        if not hasattr(found, word):
            raise BadValue(f"{path}: {module_name!r} has no {word!r}. {nearest(word, dir(found))}")
        found = getattr(found, word)
    return found
