"""What a user asks for and would not get: each such option is refused, as nobody should believe that it was applied."""

from __future__ import annotations

from collections.abc import Collection

from sfumato.errors import BadValue
from sfumato.run.request import DataRequest, Request

# Options that share out a pool of records: flag -> field of `DataRequest`.
_SHARING = {
    "--split": "split",
    "--split-seed": "split_seed",
    "--records-per-client": "records_per_client",
    "--test-fraction": "test_fraction",
}


def refuse_unused(request: Request, flags: Collection[str], keys: Collection[str]) -> None:
    """Refuse options without an effect; `flags` were typed, `keys` of run.toml were set by flags or by --set.

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
    if (own or data.name == "digits") and (data.folder or "--data-dir" in flags):
        why = "your own data are read from where --data says" if own else "digits come with scikit-learn"
        raise BadValue(f"--data-dir {data.folder}: {why}, so no folder is looked into. Leave it out.")
    for flag, name in _SHARING.items() if own else ():
        if flag in flags or not _is_default(data, name):
            raise BadValue(
                f"{flag} {getattr(data, name)}: your own data come with their clients, so nothing is shared out or held back. "
                f"Leave it out (in a config: data.{name})."
            )


def _is_default(data: DataRequest, name: str) -> bool:
    """Whether a value may stand there unasked; 0 records per client is the default of all data but digits."""
    value = getattr(data, name)
    return value == getattr(DataRequest, name) or (name == "records_per_client" and value == 0)
