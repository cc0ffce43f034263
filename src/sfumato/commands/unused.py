"""What a user asks for and would not get: each such option is refused, as nobody should believe that it was applied."""

from __future__ import annotations

from collections.abc import Collection

from sfumato.commands.options import KEYS, flag
from sfumato.errors import BadValue
from sfumato.run.request import DataRequest, Request


def refuse_unused(request: Request, typed: Collection[str], keys: Collection[str]) -> None:
    """Refuse options without an effect; the options `typed`, or the `keys` of run.toml that they or --set set.

    A config holds defaults too, so what stands there is refused only where it is no default.
    """
    if "options.epochs" in keys and "options.steps" in keys and request.options["steps"]:
        raise BadValue(
            f"--epochs {request.options['epochs']} and --steps {request.options['steps']} exclude each other: a client trains "
            "for so many epochs or for so many steps. Give one of them."
        )
    from sfumato.run.prepare import is_own_data

    data = request.data
    own = is_own_data(data.name)
    if (own or data.name == "digits") and (data.folder or "data_dir" in typed):
        why = "your own data are read from where --data says" if own else "digits come with scikit-learn"
        raise BadValue(f"--data-dir {data.folder}: {why}, so no folder is looked into. Leave it out.")
    if data.test and not own:
        raise BadValue(f"--test-data {data.test}: {data.name} has a public test split of its own. Leave it out.")
    for name, key in KEYS.items():
        field = key.path.rpartition(".")[2]
        if own and key.shares_out and (name in typed or not _is_default(data, field)):
            raise BadValue(
                f"{flag(name)} {getattr(data, field)}: your own data come with their clients, so nothing is shared out or held "
                f"back. Leave it out (in a config: {key.path})."
            )


def _is_default(data: DataRequest, name: str) -> bool:
    """Whether a value may stand there unasked; 0 records per client is the default of all data but digits."""
    value = getattr(data, name)
    return value == getattr(DataRequest, name) or (name == "records_per_client" and value == 0)
