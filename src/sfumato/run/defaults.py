"""What a run is asked for where only its data are named: as many clients, split and trained as suits these data."""

from __future__ import annotations

from typing import Any

_DIGITS: dict[str, Any] = {"clients": 200, "records_per_client": 7, "split": "iid", "task": "classification"}
_OTHERS: dict[str, Any] = {"clients": 100, "records_per_client": 0, "split": "iid", "task": "classification"}


def data_defaults(name: str) -> dict[str, Any]:
    """What is left open of data with this name. Of a user's own, 0 clients are none that anybody declared.

    >>> data_defaults("shakespeare")["split"], data_defaults("people.csv")["clients"]
    ('natural', 0)
    """
    if name == "digits":  # so that whoever asks for no other data waits for no loader
        return _DIGITS
    from sfumato.data.load import NAMES, NATURAL

    return {**_OTHERS, **NATURAL.get(name, {})} if name in NAMES else {**_OTHERS, "clients": 0}


def model_default(data: str) -> str:
    """The model of data with this name."""
    return "char-lstm:64" if data == "shakespeare" else "logistic"
