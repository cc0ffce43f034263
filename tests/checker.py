"""The run-time type checker of the tests: a whole number will do where a float is wanted."""

from beartype import BeartypeConf, beartype

typechecked = beartype(conf=BeartypeConf(is_pep484_tower=True))
