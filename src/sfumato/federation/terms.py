"""What a run between machines is, as text: it travels with each letter, and whoever reads it builds the Round for himself.

Shapes, the number of clients and the number of rounds are public facts of the run and stand here; nothing is looked up in
anybody's data. Nothing here is secret: neither a seed nor a key is part of it.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any, NoReturn

import torch

from sfumato.calibration import noise_and_clip, with_noise
from sfumato.data.population import Population, PublicData, Records
from sfumato.derive import Derivation
from sfumato.digest import digest
from sfumato.engine.clients import Job
from sfumato.engine.simulate import job_of
from sfumato.engine.slots import permutes
from sfumato.errors import BadValue, DataError, SfumatoError
from sfumato.features import learns
from sfumato.round import Round
from sfumato.run.prepare import Prepared, built, model_of, objective_of
from sfumato.run.read_round import read_round, round_text
from sfumato.run.request import DataRequest, ModelRequest, Request
from sfumato.version import __version__

_TYPES = {str(kind).removeprefix("torch."): kind for kind in (torch.float32, torch.int64, torch.uint8, torch.bool)}

_KINDS: dict[str, Any] = {"str": str, "int": int, "float": float, "bool": bool, "tuple": list, "dict": dict}


class BadTerms(SfumatoError):
    """Terms that cannot be read, or that say one thing and mean another."""


@dataclass(frozen=True)
class Terms:
    """The public facts of a run. `round` is its Round as text; `recipe` and `options` are what it was made from.

    >>> Terms.read('{"recipe": "dp-fedavg"}')  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    sfumato.federation.terms.BadTerms: the terms of a run lack clients, delta, input_shape, input_type, model, ...
    """

    run: str  # its name, which tells nothing of its key
    recipe: str
    round: str
    model: str
    model_seed: int
    task: str
    outputs: int
    input_shape: tuple[int, ...]
    input_type: str
    target_shape: tuple[int, ...]
    target_type: str
    clients: int
    rounds: int
    delta: float
    secure: bool = False
    unproven: bool = False
    features: str = ""
    public: str = ""  # the name of the public records that the round uses, which travel along
    keys: str = "own"  # whose keys clients draw from: their own, or, for tests, "shared" ones that the server sends
    options: dict[str, Any] = field(default_factory=dict)
    sum: dict[str, Any] = field(default_factory=dict)  # the settings of a secure sum; empty, where there is none

    @property
    def text(self) -> str:
        return json.dumps(dataclasses.asdict(self), sort_keys=True)

    @staticmethod
    def read(text: str) -> Terms:
        """Terms from text that came from somebody else."""
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            raise BadTerms("the terms of a run are not JSON.") from None
        known = {part.name: part for part in dataclasses.fields(Terms)}
        if not isinstance(found, dict) or not found.keys() <= known.keys():
            raise BadTerms("the terms of a run hold what this version does not know.")
        needed = [name for name, part in known.items() if part.default is part.default_factory is dataclasses.MISSING]
        missing = sorted(name for name in needed if name not in found)
        if missing:
            raise BadTerms(f"the terms of a run lack {', '.join(missing)}.")
        values: dict[str, Any] = {}
        for name, value in found.items():
            kind = _KINDS[str(known[name].type).partition("[")[0]]
            if type(value) is not kind or (kind is list and any(type(one) is not int or one < 0 for one in value)):
                raise BadTerms(f"the terms of a run have another kind of {name} than this version knows.")
            values[name] = tuple(value) if kind is list else value
        return Terms(**values)

    @staticmethod
    def of(prepared: Prepared, run: str, *, keys: str = "own", sum: dict[str, Any] | None = None) -> Terms:
        """The terms of a run that was prepared where its data are not; refuses what cannot travel as text."""
        request, people = prepared.request, prepared.population
        assert people.example is not None, "shapes are declared"
        said = round_text(prepared.round, prepared.public)
        _check_travels(prepared, said)
        x, y = people.example
        return Terms(
            run=run,
            recipe=request.recipe,
            round=said or "",
            model=request.model.name,
            model_seed=request.model.seed,
            task=request.data.task,
            outputs=prepared.outputs,
            input_shape=tuple(x.shape[1:]),
            input_type=str(x.dtype).removeprefix("torch."),
            target_shape=tuple(y.shape[1:]),
            target_type=str(y.dtype).removeprefix("torch."),
            clients=people.size,
            rounds=request.rounds,
            delta=request.chosen_delta,
            secure=request.secure,
            unproven=request.unproven,
            features=request.data.features or "",
            public="" if prepared.public is None else prepared.public.name,
            keys=keys,
            options=request.options,
            sum=sum or {},
        )

    @property
    def example(self) -> Records:
        """Two records of the declared shapes and types."""
        return declared_example(self.input_shape, self.input_type, self.target_shape, self.target_type)

    @property
    def request(self) -> Request:
        """What `sfumato train` would be asked for, to get the same Round."""
        data = DataRequest(clients=self.clients, task=self.task, outputs=self.outputs, records_per_client=0)
        model = ModelRequest(self.model, self.model_seed)
        asked = Request(self.recipe, rounds=self.rounds, delta=self.delta, secure=self.secure, unproven=self.unproven)
        return dataclasses.replace(asked, data=data, model=model, options=self.options)


@dataclass(frozen=True)
class Agreement:
    """What somebody built from terms: the work of every client, what a round of it costs, and a name for the two.

    Two who have the same `hash` have built the same Round, for the same model, from the same text, with the same version.
    """

    terms: Terms
    job: Job
    derivation: Derivation
    hash: str

    @staticmethod
    def of(terms: Terms, public: PublicData | None = None) -> Agreement:
        """Build everything from the text, and from public records that came along with it; refuses as `simulate` does."""
        round = read_round(terms.round, public)
        module = model_of(ModelRequest(terms.model, terms.model_seed), terms.input_shape, terms.outputs)
        people = Population(terms.run, terms.clients, nobody_here, example=terms.example)
        job, derivation = job_of(round, people, module, objective_of(terms.task, terms.outputs), "cpu")
        records = None if public is None else tuple(public.records)
        return Agreement(terms, job, derivation, digest(terms.text, round, job.slots.layout, records, __version__))

    @property
    def is_its_recipe(self) -> bool:
        """Whether the Round is the one that the named recipe makes of the options, with some amount of noise."""
        if not self.terms.recipe:
            return False
        round = self.job.slots.round
        public = _public_of(round)
        try:
            made = built(self.terms.request, public, self.terms.outputs)
            noise, _ = noise_and_clip(round)
            return digest(made if noise is None else with_noise(made, noise)) == digest(round)
        except SfumatoError:
            return False


def declared_example(
    input_shape: tuple[int, ...], input_type: str, target_shape: tuple[int, ...], target_type: str
) -> Records:
    """Two records of declared shapes and types; values are not used."""
    for kind in (input_type, target_type):
        if kind not in _TYPES:
            raise BadTerms(f"records of type {kind!r}: use one of {', '.join(_TYPES)}.")
    if len(input_shape) > 8 or len(target_shape) > 8:
        raise BadTerms("records of more than 8 axes: declare another shape.")
    x = torch.zeros((2, *input_shape), dtype=_TYPES[input_type])
    return Records(x, torch.zeros((2, *target_shape), dtype=_TYPES[target_type]))


def nobody_here(number: int) -> NoReturn:
    """In place of a loader, where the data are elsewhere."""
    raise DataError(f"client {number}: its data are with their owner, and nobody else can load them.")


def _public_of(round: Round) -> PublicData | None:
    """The public records that a round uses, wherever they stand in it."""
    found: list[PublicData] = []

    def look(thing: object) -> None:
        if isinstance(thing, PublicData):
            found.append(thing)
        elif dataclasses.is_dataclass(thing) and not isinstance(thing, type):
            for part in dataclasses.fields(thing):
                look(getattr(thing, part.name))
        elif isinstance(thing, tuple):
            for one in thing:
                look(one)

    look(round)
    return found[0] if found else None


def _check_travels(prepared: Prepared, said: str | None) -> None:
    request = prepared.request
    if said is None:
        raise BadValue(
            "this round holds a piece of your own, which has no text that another machine could read. Use the library's pieces, "
            "or simulate it on one machine."
        )
    if prepared.basis is not None or (request.data.features and learns(request.data.features)):
        raise BadValue(
            f"features {request.data.features!r} are learnt, and between machines nobody sends what was learnt. Use features that "
            "need no data, e.g. scattering or group-norm."
        )
    if permutes(prepared.round):
        raise BadValue(
            "a shuffler is simulated only: between machines nobody permutes the messages. Leave --shuffle out."
        )
    if prepared.budgets is not None:
        raise BadValue("budgets of single clients are for simulations: between machines each node.toml has its own.")
