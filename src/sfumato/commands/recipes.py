"""`sfumato recipes` and `sfumato explain`: what there is, and what each proves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.commands.answers import Json, show
from sfumato.errors import BadValue
from sfumato.recipes import RECIPES, build, find

if TYPE_CHECKING:
    from sfumato.account.event import Event
    from sfumato.account.papers.prifedsync import Published
    from sfumato.derive import Derivation
    from sfumato.round import Round


def recipes(json: Json = False) -> None:
    """List the recipes."""
    answer = {recipe.name: {"summary": recipe.summary, "paper": recipe.paper} for recipe in RECIPES.values()}
    width = max(map(len, RECIPES))
    show(answer, [f"{name:<{width}}  {about['summary']} ({about['paper']})" for name, about in answer.items()], json)


def explain(
    recipe: Annotated[str, typer.Argument(help="A recipe's name; see sfumato recipes.")],
    clients: Annotated[
        int | None, typer.Option(help="The declared population: 1000, and 1 where one holder has all records.")
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(help="After how many rounds to say what was spent: the recipe's own number, or 100.")
    ] = None,
    delta: Annotated[float | None, typer.Option(help="At which delta: 1e-5; with --auto as train has it.")] = None,
    secure: Annotated[bool, typer.Option("--secure", help="With exact noise, as train --secure has it.")] = False,
    budgets: Annotated[str, typer.Option(help="A file with each client's own budget.", metavar="FILE")] = "",
    auto: Annotated[bool, typer.Option("--auto", help="What train --auto would choose for --data, and why.")] = False,
    epsilon: Annotated[float | None, typer.Option(help="With --auto: the budget; else 2.")] = None,
    data: Annotated[
        str, typer.Option(help="With --auto: the data, as train names them; else digits.", metavar="NAME")
    ] = "",
    data_dir: Annotated[str, typer.Option(help="With --auto: where data lie.", metavar="FOLDER")] = "",
    records_per_client: Annotated[int | None, typer.Option(help="With --auto: as train has it.")] = None,
    records: Annotated[
        int | None, typer.Option(help="With --auto, dp-sgd and your own data: how many there are.")
    ] = None,
    outputs: Annotated[int | None, typer.Option(help="With --auto and your own data: the classes.")] = None,
    public: Annotated[str, typer.Option(help="With --auto: a data set to learn a basis from.", metavar="NAME")] = "",
    seconds: Annotated[float | None, typer.Option(help="With --auto: about how long to train; else 10.")] = None,
) -> None:
    """Show a recipe: its pieces in order, what is provable after each, what it costs, and its options."""
    from sfumato.claim import table
    from sfumato.exact_round import secure as exactly

    found = find(recipe)
    given: dict[str, Any] = {"clients": clients, "rounds": rounds, "delta": delta}
    of_data: dict[str, Any] = {"records_per_client": records_per_client, "records": records, "outputs": outputs}
    of_data |= {"data_dir": data_dir or None, "public": public or None, "epsilon": epsilon, "data": data or None}
    clients = clients if clients is not None else 1 if found.central else 1000
    round, rounds = build(recipe, clients, {}), rounds if rounds is not None else found.rounds or 100
    if auto:
        round, clients, rounds, delta = _chosen(recipe, {**given, **of_data}, 10.0 if seconds is None else seconds)
    elif unused := [name for name, value in {**of_data, "seconds": seconds}.items() if value is not None]:
        raise BadValue(
            f"explain --{unused[0].replace('_', '-')}: that is for --auto. Give --auto too, or leave it out."
        )
    delta = 1e-5 if delta is None else delta
    each = _Each(budgets, clients, rounds) if budgets else None
    round = round if each is None else each.plan(round)
    round = exactly(round) if secure else round
    derivation = round.derive(population=clients, dimension=1000)
    proof = derivation.primary
    typer.echo(f"{found.name}: {found.summary} ({found.paper})\n")
    receiver, who = round.channel.receiver, "one holder" if found.central else f"{clients} clients"
    typer.echo(f"derivation for one {proof.unit}, {proof.relation.words}, {who}:")
    typer.echo(table(proof.steps))
    typer.echo(f"\neach round costs, against everyone who sees the model: {proof.world.words()}")
    server = "nothing is proven" if proof.server is None else proof.server.words()
    typer.echo(f"each round costs, against {receiver}: {server}")
    if proof.assumptions:
        typer.echo(f"assuming: {'; '.join(proof.assumptions)}")
    typer.echo(f"\nafter {rounds} {'round' if rounds == 1 else 'rounds'}, epsilon at delta {delta:g}:")
    views = {"everyone who sees the model": "world", receiver: "server"}
    if not found.central:
        views = {
            "everyone who sees the model": "world",
            f"{receiver}, if it samples honestly": "server",
            f"{receiver}, whoever chooses the cohort": "chooser",
        }
    for whom, view in views.items():
        typer.echo(f"  {whom:<40} {_epsilon(proof.seen(view, rounds), delta)}")
    if round.unproven:
        from sfumato.unproven import claims

        said = claims(round, derivation, rounds, delta)
        for words, epsilon in {"claimed, and not proven": said["claimed_epsilon"], **said.get("really", {})}.items():
            typer.echo(f"  {words:<40} {'-' if epsilon is None else format(epsilon, '.4g')}")
    if each is not None:
        each.tell(round, proof.after(rounds))
    if (published := _published(round, derivation, rounds)) is not None:
        typer.echo(f"\n{published.text(delta)}")
    typer.echo("\noptions:")
    for name, parameter in found.options.items():
        typer.echo(f"  --{name.replace('_', '-')} {parameter.default}".rstrip())


def _chosen(recipe: str, given: dict[str, Any], seconds: float) -> tuple[Round, int, int, float]:
    """Say what --auto chooses, with its reasons; the round that it makes, for how many clients, how often and at which delta."""
    from sfumato.calibration import calibrate
    from sfumato.commands.asked import request_from
    from sfumato.run.auto import Auto
    from sfumato.run.clients import settled

    asked = {"epsilon": 2.0, "data": "digits", **{name: value for name, value in given.items() if value is not None}}
    request, keys = request_from(recipe, None, asked, [])
    request, source, choices = settled(request, Auto(keys, seconds))
    clients, delta, epsilon = request.data.clients, request.chosen_delta, asked["epsilon"]
    holders = "one holder" if request.central else f"{clients} clients"
    typer.echo(
        f"auto: {request.data.name}, {holders}, records of shape {source.shape}, {source.outputs} classes, epsilon {epsilon:g}, "
        f"delta {delta:.3g}, {seconds:g} s. No record was looked at.\n"
    )
    wide = max(len(f"{choice.key} = {choice.value}") for choice in choices)
    for choice in choices:
        typer.echo(f"  {f'{choice.key} = {choice.value}':<{wide}}  {choice.why}")
    typer.echo("")
    budget = {"epsilon": epsilon, "delta": delta, "rounds": request.rounds}
    round = calibrate(build(recipe, clients, request.options), **budget, population=clients, dimension=1000)
    return round, clients, request.rounds, delta


class _Each:
    """Each client's own budget, from a file: the round that keeps to it, and what that round spends."""

    def __init__(self, file: str, clients: int, rounds: int) -> None:
        from sfumato.budget.budgets import Budgets

        self.given, self.clients, self.rounds = Budgets.of(file, clients), clients, rounds

    def plan(self, round: Round) -> Round:
        from sfumato.budget.plan import planned

        return planned(round, self.given, self.rounds, self.clients, dimension=1000)

    def tell(self, round: Round, event: Event) -> None:
        from sfumato.budget.told import told
        from sfumato.budget.words import in_words

        typer.echo("\neach client's own budget, and the epsilon that is spent of it:")
        for line in in_words(told(self.given, round, self.clients, event)):
            typer.echo(f"  {line}")


def _epsilon(event: Event | None, delta: float) -> str:
    from sfumato.account.event import why_not_private
    from sfumato.account.protocol import accountant
    from sfumato.guarantee import check_delta, rounded_up

    check_delta(delta)
    if event is None or why_not_private(event) is not None:
        return "nothing is proven"
    return rounded_up(accountant("auto").epsilon(event, delta), 4)


def _published(round: Round, derivation: Derivation, rounds: int) -> Published | None:
    """The paper's claims about a round of PriFedSync's kind: fixed-size batches under replace, at the client."""
    from sfumato.account.event import Relation
    from sfumato.account.papers.prifedsync import Published
    from sfumato.local.dp_sgd import DpSgd
    from sfumato.pieces.law import Gaussian
    from sfumato.pieces.sampler import FixedSize

    local = round.local
    if not isinstance(local, DpSgd) or not isinstance(local.batch, FixedSize) or not isinstance(local.law, Gaussian):
        return None
    if local.batch.relation is not Relation.REPLACE:
        return None
    clients = derivation.population
    rate = round.sample.expected(clients) / clients
    sigma = local.law.noise_multiplier / 2  # the paper's counts twice the clip norm
    return Published(local.batch.size / local.records, local.steps, rounds, sigma, rate, clients)
