"""`sfumato recipes` and `sfumato explain`: what there is, and what each proves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.commands.answers import Json, show
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
    delta: Annotated[float, typer.Option(help="At which delta.")] = 1e-5,
    secure: Annotated[bool, typer.Option("--secure", help="With exact noise, as train --secure has it.")] = False,
    budgets: Annotated[str, typer.Option(help="A file with each client's own budget.", metavar="FILE")] = "",
) -> None:
    """Show a recipe: its pieces in order, what is provable after each, what it costs, and its options."""
    from sfumato.claim import table
    from sfumato.exact_round import secure as exactly

    found = find(recipe)
    clients = clients if clients is not None else 1 if found.central else 1000
    round = build(recipe, clients, {})
    rounds = rounds if rounds is not None else found.rounds or 100
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
