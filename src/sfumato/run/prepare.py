"""From a request to everything that a run needs: data, model, objective, and a Round with its noise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from sfumato import recipes
from sfumato.account.event import Event
from sfumato.budget.budgets import Budgets
from sfumato.calibration import calibrate_with_order, with_noise
from sfumato.data.population import Population, PublicData
from sfumato.errors import BadValue, nearest
from sfumato.exact_round import secure
from sfumato.key import Key
from sfumato.local.dp_sgd import DpSgd
from sfumato.models import build as build_model
from sfumato.objective import Objective, classification, multi_label, next_character, regression
from sfumato.pieces.sampler import FixedSize
from sfumato.planning.auto import Choice
from sfumato.round import Round, Unproven
from sfumato.run.auto import Auto
from sfumato.run.basis import Basis, basis_of
from sfumato.run.budgeted import budgeted, price_for
from sfumato.run.clients import before_a_basis, clients_of, settled
from sfumato.run.naming import naming
from sfumato.run.read_round import read_round
from sfumato.run.request import DataRequest, ModelRequest, Request
from sfumato.run.settings_text import typed
from sfumato.run.source import check_labels_of, example, is_own_data
from sfumato.several_inputs import taking
from sfumato.update import Layout


@dataclass(frozen=True, repr=False)
class Prepared:
    """Everything that a request names, loaded and calibrated."""

    request: Request
    population: Population
    test: PublicData | None
    module: nn.Module
    objective: Objective
    round: Round
    input_shape: tuple[int, ...]
    outputs: int
    counts: Mapping[str, int]  # what the folder of a named data set held; nothing of a user's own data is counted
    budgets: Budgets | None = None  # each client's own, by number
    public: PublicData | None = None  # what the round may use as such
    choices: tuple[Choice, ...] = ()  # what was chosen for the user, and why
    basis: Basis | None = None  # what is learnt and paid for before the first round
    order: float | None = (
        None  # the Renyi order that clients' own budgets were priced at, if an adaptive ledger begins here
    )

    def __repr__(self) -> str:
        what, model = self.request.recipe if self.request.pieces is None else "a round", type(self.module).__name__
        return f"Prepared({what}, {self.population!r}, {model}, {self.request.rounds} rounds)"

    def with_basis(self, basis: Basis) -> Prepared:
        """With records as a basis maps them that has been learnt."""
        source = basis.mapped
        population = clients_of(self.request, source, basis.learnt)
        return replace(self, population=population, test=source.test, basis=basis)


def prepare(
    request: Request,
    found: Mapping[str, Any] | None = None,
    *,
    auto: Auto | None = None,
    open_to_all: bool = False,
    folder: Path | None = None,
    elsewhere: Population | None = None,
) -> Prepared:
    """Load the data, build the model, and find the noise; refuses before anything is spent.

    `found` is what stands in run.toml under [resolved]: a run that goes on keeps its noise, and with budgets its whole round,
    however many rounds it gets. With `auto`, settings are chosen from public facts.
    `open_to_all`: nobody's data are private here, as those of a proxy are not. `folder` is that of a run that was begun, which may
    hold a basis that it has paid for. `elsewhere` are clients whose data are not here, and whose shapes are declared.
    """
    request, source, choices = settled(request, auto, open_to_all, elsewhere)
    objective = objective_of(request.data.task, source.outputs)
    if source.population is not None:
        check_labels_of(source.population, source.test, objective)
    source, parted = before_a_basis(request, source)
    population, test, outputs = clients_of(request, source), source.test, source.outputs
    budgets = Budgets.of(request.budgets, population.size, population.ids) if request.budgets else None
    if budgets is not None:
        population = population.with_public_ids()
    if budgets is not None and request.delta is None:
        request = replace(request, delta=budgets.delta)
    records = example(population, test)
    shape = tuple(records.x.shape[1:])
    trained, basis = built(request, source.public, outputs), None
    if not found:
        refuse_unrequested(request, trained)
    if parted.word is not None:
        basis = basis_of(request, parted, trained, source, shape, found or {}, folder)
        source = basis.mapped
        population, test = clients_of(request, source, basis.learnt), source.test
        shape = tuple(example(population, test).x.shape[1:])
    module = taking(model_of(request.model, shape, outputs), records.inputs)
    spent = None if basis is None else basis.event
    round, order = round_and_order(request, found or {}, trained, budgets, source.public, Layout.of(module), spent)
    return Prepared(
        request=request,
        population=population,
        test=test,
        module=module,
        objective=objective,
        round=round,
        input_shape=shape,
        outputs=outputs,
        counts=source.counts,
        budgets=budgets,
        public=source.public,
        choices=choices,
        basis=basis,
        order=order,
    )


def model_of(request: ModelRequest, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
    """The model before training; its weights come from a public seed."""
    key = Key.from_seed(request.seed).child("model")
    with naming(f"the model {request.name!r}"):
        return build_model(request.name, input_shape, outputs, key)


def built(request: Request, public: PublicData | None, outputs: int) -> Round:
    """The Round that a request names, before its noise is found."""
    clients, name = request.data.clients, request.recipe
    options = _typed(request)
    if request.pieces is None and "classes" in recipes.find(name).options:
        options = {"classes": outputs, **options}
    round = recipes.build(name, clients, options, public) if request.pieces is None else read_round(request.pieces)
    round = secure(round) if request.secure else round
    _check_records(request.data, round)
    if request.unproven and not round.unproven:
        round = replace(round, unproven=True)
    if request.epsilon is not None and round.nonprivate:
        raise BadValue(
            f"{request.recipe or 'this round'} hides nothing, so no epsilon can be asked of it. Leave --epsilon out (--set "
            "epsilon=none takes it out of a config), or use dp-fedavg."
        )
    return round


def refuse_unrequested(request: Request, round: Round) -> None:
    """Refuse a recipe whose privacy is not proven, unless the request says that it may run all the same."""
    if not round.unproven or request.unproven or request.pieces is not None:
        return
    said = round.unproven if isinstance(round.unproven, Unproven) else Unproven()
    raise BadValue(
        f"{request.recipe}: its privacy could not be proven{f', for {said.step}' if said.step else ''}. Give --unproven and no "
        "--epsilon (in a config: unproven = true) to run it all the same, without a guarantee."
    )


def round_of(
    request: Request,
    found: Mapping[str, Any],
    round: Round,
    budgets: Budgets | None,
    public: PublicData | None,
    layout: Layout,
    spent: Event | None = None,
) -> Round:
    """The Round with its noise, where so much was `spent` before the first."""
    return round_and_order(request, found, round, budgets, public, layout, spent)[0]


def round_and_order(
    request: Request,
    found: Mapping[str, Any],
    round: Round,
    budgets: Budgets | None,
    public: PublicData | None,
    layout: Layout,
    spent: Event | None = None,
) -> tuple[Round, float | None]:
    """The same, and the Renyi order that clients' own budgets were priced at, if an adaptive ledger begins here."""
    clients = request.data.clients
    if request.pieces is not None:
        return round, None
    dimension = round.local.message_length(layout)
    if "round" in found:  # a run that goes on, in which clients have settings of their own
        return read_round(found["round"], public), None
    if budgets is not None:
        return budgeted(round, budgets, request, clients, dimension, request.options.get("noise_multiplier"))
    if (noise_multiplier := found.get("noise_multiplier")) is not None:
        return (with_noise(round, noise_multiplier) if request.epsilon and not request.noise_is_given else round), None
    order = None
    if request.epsilon is not None and not request.noise_is_given:
        round, order = calibrate_with_order(
            round,
            price_for(request),
            epsilon=request.epsilon,
            delta=request.chosen_delta,
            rounds=max(request.rounds, request.most_rounds),
            population=clients,
            dimension=dimension,
            before=spent,
            restarts=request.restarts,
            checkpoint_every=request.checkpoint_every,
        )
    return budgeted(round, None, request, clients, dimension, order=order)


def _check_records(data: DataRequest, built: Round) -> None:
    """Refuse a declared number of records that no client can have, by what is declared alone."""
    local, share = built.local, data.records_per_client
    if not share or is_own_data(data.name) or not isinstance(local, DpSgd) or not isinstance(local.batch, FixedSize):
        return
    held = share - round(data.test_fraction * share)
    if held < local.records:
        raise BadValue(
            f"a client gets {held} records to train on, fewer than the {local.records} that are declared. Give --records {held} "
            "(and a --batch that fits), or more with --records-per-client."
        )


def _typed(request: Request) -> dict[str, Any]:
    """The recipe's options; a file may hold anything, so their types are checked."""
    if request.pieces is not None and request.options:
        raise BadValue(
            f"options.{next(iter(request.options))}: the round stands there whole, and takes no option of a recipe."
        )
    known = {} if request.pieces is not None else recipes.find(request.recipe).options
    for name, value in request.options.items():
        if name in known:
            typed(f"options.{name}", known[name].annotation.__name__, value)
    return request.options


def objective_of(task: str, outputs: int) -> Objective:
    """What is learnt, by the name of its task."""
    if task == "regression":
        return regression()
    known = {"classification": classification, "multi-label": multi_label, "next-character": next_character}
    if task not in known:
        raise BadValue(f"task={task!r}: there is no such task. {nearest(task, [*known, 'regression'])}")
    return known[task](outputs)
