"""`sfumato node`: the owner's side of a federation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sfumato.commands.answers import Json, show
from sfumato.errors import DataError

node = typer.Typer(name="node", help="The owner's side of a federation: one client, its policy and its own ledger.")


@node.callback()
def options() -> None:
    """The owner's side of a federation: one client, its policy and its own ledger."""


@node.command("check")
def check(
    config: Annotated[Path, typer.Option(metavar="NODE.TOML", help="What the owner allows.")],
    terms: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The terms of a run, as a server sends them: would it be allowed?"),
    ] = None,
    json: Json = False,
) -> None:
    """Explain what a node would allow, and what its budgets have left; exit status 3 if it would refuse the given terms."""
    from sfumato.federation.node.books import Books
    from sfumato.federation.node.explain import explain, would
    from sfumato.federation.node.policy import Policy
    from sfumato.federation.terms import Terms

    policy = Policy.from_toml(config)
    with Books.opened(policy, make=False) as books:
        said = explain(policy, books)
        if terms is None:
            show({"allows": said.splitlines()}, said.splitlines(), json)
            return
        try:
            found = would(policy, Terms.read(terms.read_text()), books)
        except OSError as error:
            raise DataError(f"{terms} cannot be read: {error.strerror}. Give a file with the terms of a run.") from None
    lines = [f"{code}: {words}." for code, words in found] or ["allowed"]
    show({"refused": [{"code": code, "why": words} for code, words in found]}, lines, json)
    if found:
        raise typer.Exit(3)
