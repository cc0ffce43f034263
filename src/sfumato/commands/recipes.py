"""`sfumato recipes` and `sfumato explain`: what there is, and what each proves."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from sfumato.recipes import RECIPES, build, find


def recipes(json_: Annotated[bool, typer.Option("--json", help="For programs.")] = False) -> None:
    """List the recipes."""
    if json_:
        typer.echo(json.dumps({r.name: {"summary": r.summary, "paper": r.paper} for r in RECIPES.values()}, indent=2))
        return
    width = max(map(len, RECIPES))
    for recipe in RECIPES.values():
        typer.echo(f"{recipe.name:<{width}}  {recipe.summary} ({recipe.paper})")


def explain(
    recipe: Annotated[str, typer.Argument(help="A recipe's name; see sfumato recipes.")],
    clients: Annotated[int, typer.Option(help="The declared population.")] = 1000,
    rounds: Annotated[int, typer.Option(help="After how many rounds to compare with a paper's claim.")] = 100,
) -> None:
    """Show a recipe: its pieces in order, what is provable after each, and its options."""
    from sfumato.account.describe import describe
    from sfumato.account.papers.prifedsync import Federated
    from sfumato.claim import table

    found = find(recipe)
    derivation = build(recipe, clients, {}).derive(population=clients, dimension=1000)
    proof = derivation.primary
    typer.echo(f"{found.name}: {found.summary} ({found.paper})\n")
    relation = proof.relation.replace("add_remove", "add/remove").replace("_", "-")
    typer.echo(f"derivation for one {proof.unit}, {relation}, {clients} clients:")
    typer.echo(table(proof.steps))
    typer.echo(f"\neach round costs, against everyone who sees the model: {describe(proof.world)}")
    server = "nothing is proven" if proof.server is None else describe(proof.server)
    typer.echo(f"each round costs, against the server: {server}")
    if proof.assumptions:
        typer.echo(f"assuming: {'; '.join(proof.assumptions)}")
    federated = Federated.of(proof.world, clients, rounds)
    if federated is not None:
        typer.echo(f"\n{federated.text(1e-5)}")
    typer.echo("\noptions:")
    for name, parameter in found.options.items():
        typer.echo(f"  --{name.replace('_', '-')} {parameter.default}".rstrip())
