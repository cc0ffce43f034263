"""What a user asks for: one `Request`, which is run.toml. What was computed from it stands there too, under [resolved]."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from sfumato import recipes
from sfumato.errors import BadValue, nearest
from sfumato.guarantee import default_delta
from sfumato.run.defaults import data_defaults, model_default
from sfumato.run.settings_text import Tables, nested, parsed, tables_of, typed, with_part, written

SCHEMA = 1
_OWN = "budgets.own"
_TABLES = ("data", "model", "options", "budgets", "federation")
_APART = (*_TABLES, "columns")


def _asked(default: Any, words: str, flag: str = "", shares_out: bool = False) -> Any:
    """A key of run.toml: its help, and the option of `sfumato train` that sets it, if that has another name.

    With `shares_out` it shares out a pool of records, so it means nothing for data that come with their clients.
    """
    return field(default=default, metadata={"help": words, "flag": flag, "shares_out": shares_out})


@dataclass(frozen=True)
class DataRequest:
    """Which data, shared out to how many clients. What is left open (None) becomes what suits data of that name.

    `clients` is declared and public. Only a table's are counted where nobody declared them, and guarantees say so.

    >>> DataRequest("gefcom2012-wind").task, DataRequest("mnist").clients, DataRequest("digits").records_per_client
    ('regression', 100, 7)
    """

    name: str = _asked(
        "digits",
        "digits, mnist, fashion-mnist, emnist-letters, usps, cifar10, cifar100, svhn, svhn-extra, medical-mnist, "
        "office-caltech10, domainnet, celeba, utkface, shakespeare, gefcom2012-wind, a folder of client files, a table (.csv, "
        ".parquet), or module:function.",
        flag="data",
    )
    folder: str = _asked("", "Where the data sets lie; else SFUMATO_DATA, else the cache.", flag="data_dir")
    clients: int = _asked(
        None,
        "How many clients there are: declared and public. A table's are counted, if need be, and guarantees say so.",
    )
    records_per_client: int = _asked(
        None, "Records each client gets (natural: at most); 0 shares out all.", shares_out=True
    )
    split: str = _asked(
        None,
        "iid, shards:N, dirichlet:ALPHA, dirichlet-classes:ALPHA, or natural (roles, farms, domains, persons).",
        shares_out=True,
    )
    split_seed: int = _asked(0, "Public seed of the split.", shares_out=True)
    public_records: int | None = _asked(
        None,
        "Records set aside as public before there are clients: no client's, and none of the test split.",
        shares_out=True,
    )
    public: str | None = _asked(
        None,
        "A data set whose records are public: features learn from it; recipes that vote ask about 70 % of it, test on 30 %, and "
        "pictures take its shape.",
    )
    features: str | None = _asked(
        None,
        "Maps of single records, fixed before training, divided by commas: scattering, group-norm, pca:DIMENSION (of --public), "
        "private-pca:DIMENSION (of clients' own records, paid for within the budget), unit-norm, pixels, hog:CELL, "
        "random-conv:WIDTH, resize:SIDE, box:MARGIN, grey, last-characters:N or module:attribute.",
    )
    test_fraction: float = _asked(0.0, "Part of each client's records kept to test its own model.", shares_out=True)
    task: str = _asked(None, "classification, multi-label, next-character or regression.")
    outputs: int = _asked(0, "Outputs of the model, for your own data.")
    test: str | None = _asked(
        None,
        "Public test data for your own data: module:name that gives PublicData, or a table with the same columns; or another data "
        "set's by its name, whose shape pictures take.",
        "test_data",
    )
    counted: bool = False  # whether nobody declared `clients`: it is what a table has, and guarantees say so
    columns: dict[str, Any] = field(default_factory=dict)  # of a table; see `sfumato.data.columns`

    def __post_init__(self) -> None:
        if None in (self.clients, self.records_per_client, self.split, self.task):
            for name, value in data_defaults(self.name).items():
                if getattr(self, name) is None:
                    object.__setattr__(self, name, value)


@dataclass(frozen=True)
class ModelRequest:
    """Which model; its initial weights come from a public seed."""

    name: str = _asked(
        "",
        "logistic, mlp, cnn-mnist, cnn-emnist, cnn-cifar, cnn-medical, cnn-wind, resnet-18, char-lstm, char-lstm:UNITS or "
        "module:function. By default logistic; char-lstm:64 for shakespeare.",
        flag="model",
    )
    seed: int = _asked(0, "Public seed of the initial weights.", flag="model_seed")


@dataclass(frozen=True)
class Request:
    """A whole run. None and empty mean: left to the default, or not asked for.

    A run from Python has `pieces` in place of a recipe, its Round as Python writes it; `unnamed` is what run.toml cannot hold.
    """

    recipe: str = "dp-fedavg"
    pieces: str | None = None
    unnamed: str | None = None
    rounds: int = _asked(30, "Rounds to train.")
    epsilon: float | None = _asked(None, "Budget: finds the noise before training, and stops before passing it.")
    delta: float | None = _asked(
        None, "Default: 1e-5, or 1/(10 n) if that is less, for n clients or protected records, as declared."
    )
    seed: int | None = _asked(None, "For simulations: anybody who knows it can undo the noise.")
    evaluate_every: int = _asked(1, "Rounds between evaluations on public test data.")
    device: str = _asked("cpu", "cpu, cuda, cuda:1 or xpu. No real GPU was tried.")
    ledger: str = _asked("", "A ledger shared by all runs on this population; its budget stops them.")
    force_ledger: bool = _asked(False, "Let the shared ledger take a seeded, unproven or non-private run.")
    diagnostics: bool = _asked(
        False, "Write norms, cohort sizes and personal accuracy to a folder of their own: NOT private."
    )
    keep_releases: bool = _asked(False, "Keep the model of every round in the run's folder: released values only.")
    checkpoint_every: int = _asked(
        1, "Rounds between checkpoints: an interruption makes at most that many rounds count twice."
    )
    restarts: int = _asked(
        0,
        "Interruptions that the budget plans for, each for checkpoint-every rounds more; without, a run ends that much earlier.",
    )
    most_rounds: int = _asked(
        0,
        "Rounds that the plan has room for, if they are more than --rounds: all of them are accounted for. Default: --rounds.",
    )
    adaptive: bool = _asked(
        False,
        "Account at one Renyi order instead of a plan: rounds may be added and settings chosen from what was released.",
    )
    keep_personal: bool = _asked(
        False, "Keep clients' personal models after the run, to train it further: NOT private."
    )
    unproven: bool = _asked(False, "Train what cannot be proven; no epsilon is printed.")
    secure: bool = _asked(False, "Exact noise on a grid: the guarantee then assumes nothing of floating point.")
    data: DataRequest = field(default_factory=DataRequest)
    model: ModelRequest = field(default_factory=ModelRequest)
    options: dict[str, Any] = field(default_factory=dict)
    budgets: dict[str, Any] = field(default_factory=dict)  # each client's own, as a file of budgets has them
    federation: dict[str, Any] = field(default_factory=dict)  # of a run between machines: who, where, which shapes

    def __post_init__(self) -> None:
        counts = {"rounds": 1, "evaluate_every": 1, "checkpoint_every": 1, "restarts": 0, "most_rounds": 0}
        for name, least in counts.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise BadValue(f"{name}={value}: at least {least}, as a whole number.")
        if self.restarts and (self.epsilon is None or self.noise_is_given):
            raise BadValue(
                f"restarts={self.restarts}: a budget that finds the noise plans for them. Give --epsilon and no noise, or leave "
                "--restarts out."
            )
        if self.adaptive and self.most_rounds:
            raise BadValue(
                f"most_rounds={self.most_rounds} declares the rounds of a plan, and an adaptive run has none. Leave one out."
            )
        if self.data.clients < (self.data.name == "digits"):
            raise BadValue(f"clients={self.data.clients}: at least 1.")
        if not self.model.name and self.pieces is None:
            object.__setattr__(self, "model", replace(self.model, name=model_default(self.data.name)))
        if self.epsilon is not None and not self.epsilon > 0:
            raise BadValue(f"epsilon={self.epsilon}: a budget is positive, e.g. 2.0.")
        if self.epsilon is not None and self.budgets:
            raise BadValue(
                f"epsilon={self.epsilon} and budgets exclude each other: with budgets each client has its own. Leave one out."
            )
        if self.epsilon is not None and self.unproven:
            raise BadValue(
                "epsilon and unproven exclude each other: what is not proven has no epsilon to hold to. "
                "Leave one of them out, or take a config's epsilon away with --set epsilon=none."
            )

    @property
    def chosen_delta(self) -> float:
        """The delta that was asked for; by default that of the declared number of clients, or of records if these are protected."""
        if self.delta is not None:
            return self.delta
        return default_delta(None if self.data.counted else self.units)

    @property
    def central(self) -> bool:
        """Whether one holder has all the records."""
        return self.pieces is None and recipes.find(self.recipe).central

    @property
    def noise_is_given(self) -> bool:
        """Whether an option says how much noise there is."""
        return "noise_multiplier" in self.options or "stddev" in self.options

    @property
    def units(self) -> int:
        """How many clients are declared; how many records, if those are hidden."""
        if self.pieces is not None:
            return self.data.clients
        known = recipes.find(self.recipe).options
        records = self.options.get("records", known["records"].default if "records" in known else 1) or 1
        if not isinstance(records, int) or records < 1:
            raise BadValue(f"records={records!r}: how many records a client has at least, a whole number, e.g. 100.")
        return self.data.clients * records

    def require_named(self, instead: str) -> None:
        """Refuse a run from Python that run.toml does not hold whole; `instead` says what to do in Python."""
        if self.unnamed is not None:
            raise BadValue(
                f"this run was begun in Python, and its {self.unnamed} cannot be named in run.toml. Go on there: {instead}"
            )

    @property
    def description(self) -> str:
        """What the run's name depends on, besides what it computes with: a run that goes on for longer keeps its name.

        Rounds, budget, delta and the ledger are no part of it, nor what is only shown. The noise is: it is in the Round.
        """
        if self.pieces is not None:
            return ""
        same = Request(recipe=self.recipe, unproven=self.unproven, data=replace(self.data, test=None), model=self.model)
        return replace(same, options=self.options, secure=self.secure).to_toml()

    def to_toml(self, resolved: Mapping[str, Any] | None = None) -> str:
        """The text of run.toml."""
        tables: Tables = [("", _scalars(self)), ("data", _scalars(self.data))]
        tables += nested("data.columns", self.data.columns) if self.data.columns else []
        tables += [("model", _scalars(self.model)), ("options", self.options), *_budget_tables(self.budgets)]
        if self.federation:
            tables.append(("federation", self.federation))
        if resolved:
            tables.append(("resolved", resolved))
        return "\n".join([f"schema = {SCHEMA}", *written(tables, lists=_OWN)]) + "\n"

    @staticmethod
    def of_recipe(name: object, data: str = "digits") -> Request:
        """What is asked for where only a recipe and the data are named; without one that is known, the defaults of dp-fedavg."""
        found = recipes.RECIPES.get(name) if isinstance(name, str) else None
        if found is None:
            return Request(data=DataRequest(data))
        asked = DataRequest(data, clients=1, records_per_client=0, split="iid") if found.central else DataRequest(data)
        return Request(recipe=found.name, rounds=found.rounds or Request.rounds, data=asked)

    @staticmethod
    def from_toml(path: Path) -> Request:
        """The request in a run.toml; what stands under [resolved] was computed from it."""
        return Request._of_tables(tables_of(path), str(path))

    @staticmethod
    def from_text(text: str, name: str) -> Request:
        """The request in the text of a run.toml; `name` is what a mistake in it calls it.

        >>> Request.from_text(Request(rounds=7).to_toml(), "the text").rounds
        7
        """
        return Request._of_tables(parsed(text, name), name)

    @staticmethod
    def _of_tables(found: dict[str, Any], name: str) -> Request:
        if found.pop("schema", SCHEMA) != SCHEMA:
            raise BadValue(f"{name} was written by another version of Sfumato. Its schema is not {SCHEMA}.")
        found.pop("resolved", None)
        tables: dict[str, Any] = {name: found.pop(name, {}) for name in ("budgets", "federation")}
        data = found.get("data")
        named = data.get("name") if isinstance(data, dict) else None
        start = Request.of_recipe(found.get("recipe"), named if isinstance(named, str) else "digits")
        request = replace(start, **tables)
        for table, values in found.items():
            for name, value in values.items() if isinstance(values, dict) else [("", values)]:
                request = request.with_value(f"{table}.{name}" if name else table, value)
        return request

    def with_value(self, key: str, value: Any) -> Request:
        """The request with one key of run.toml changed: `rounds`, `data.clients`, `options.lr`.

        >>> Request().with_value("data.clients", 500).data.clients
        500
        """
        table, _, name = key.rpartition(".")
        if table in ("options", "federation"):
            held: dict[str, Any] = {table: {**getattr(self, table), name: value}}
            return replace(self, **held)
        if key == "data.columns" or key.startswith("data.columns."):
            columns = with_part(self.data.columns, key.split(".", 3)[2:], value)
            return replace(self, data=replace(self.data, columns=columns))
        owners: dict[str, Request | DataRequest | ModelRequest] = {"": self, "data": self.data, "model": self.model}
        owner = owners.get(table)
        if owner is None:
            raise BadValue(f"{key!r}: run.toml has no table {table!r}. {nearest(table, _TABLES)}")
        known = {part.name: part.type for part in dataclasses.fields(owner) if part.name not in _APART}
        if name not in known:
            option = table == "" and name in recipes.find(self.recipe).options
            near = f"Did you mean 'options.{name}'?" if option else nearest(name, known)
            raise BadValue(f"{key!r}: there is no such key. {near}")
        declared: dict[str, Any] = {"counted": False} if key == "data.clients" else {}
        changed: Any = replace(owner, **{name: typed(key, str(known[name]), value)}, **declared)
        if table == "":
            return cast(Request, changed)
        return replace(self, **{table: changed})


def resolved(path: Path) -> Mapping[str, Any]:
    """What stands under [resolved] in a run.toml; nothing, where the run did not get so far."""
    found = tables_of(path).get("resolved", {})
    return found if isinstance(found, dict) else {}


def _budget_tables(budgets: Mapping[str, Any]) -> Tables:
    usual = [("budgets.default", budgets["default"])] if "default" in budgets else []
    return usual + [(_OWN, table) for table in budgets.get("own", ())]


def _scalars(part: Any) -> dict[str, Any]:
    return {name: value for name, value in vars(part).items() if name not in _APART}
