"""`sfumato node`: the owner's side of a federation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer.core import TyperGroup

from sfumato.commands.answers import Json, refusing, show
from sfumato.errors import BadValue, DataError


class _Group(TyperGroup):
    """Hands over a context of typer's own class; an older typer hands over click's, which is not a dependency."""

    context_class = typer.Context


node = typer.Typer(
    name="node",
    cls=_Group,
    help="Hold one client of a federation: answer its server as node.toml allows, until Ctrl-C.",
)


@node.callback(invoke_without_command=True)
def run(
    context: typer.Context,
    config: Annotated[
        Path | None, typer.Option(metavar="NODE.TOML", help="What the owner allows, and which server.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")] = False,
) -> None:
    """Answer a server's questions with this owner's data, as node.toml allows, until it is stopped (Ctrl-C)."""
    if context.invoked_subcommand is not None:
        if config is not None or quiet:
            raise BadValue(f"sfumato node {context.invoked_subcommand} takes its options after its name.")
        return
    if config is None:
        raise BadValue("sfumato node needs --config, the node.toml of this node; sfumato deploy writes one.")
    with refusing(False):
        _run(config, quiet)


def _run(config: Path, quiet: bool) -> None:
    from sfumato.federation import needs_flower

    needs_flower()
    from sfumato.federation.certificates import private_folder
    from sfumato.federation.flower.node import serve
    from sfumato.federation.node.answer import Node
    from sfumato.federation.node.policy import Policy
    from sfumato.federation.node.server import node_settings, node_signing
    from sfumato.run.lock import Lock

    policy = Policy.from_toml(config)
    settings, answer = node_settings(config), Node(policy, signing=node_signing(config))
    lock = Lock(private_folder(settings.folder), busy="another sfumato node is running in")
    if not quiet:
        typer.echo(
            f"client {policy.client} answers {settings.server}; its log is {policy.folder / 'node.log'}", err=True
        )
    try:
        serve(answer, settings)
    except KeyboardInterrupt:
        if not quiet:
            typer.echo("stopped", err=True)
        raise typer.Exit(130) from None
    finally:
        lock.release()


@node.command("key")
def key(
    path: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="Where the private key goes; it never leaves this host.")
    ] = None,
    name: Annotated[
        str, typer.Option(metavar="NAME", help="What the registry calls the node. Default: node.", show_default=False)
    ] = "node",
) -> None:
    """Make a node's keys, and print what the registry says of them: it goes to the server, and to every other node."""
    from sfumato.federation import needs_flower

    needs_flower()
    from sfumato.federation.deploy import new_member
    from sfumato.federation.node.server import signing_path

    if path is None:
        raise BadValue("sfumato node key needs the file that the private key goes to, e.g. node.key.")
    for file in (path, signing_path(path)):
        if file.exists():
            raise BadValue(f"{file} is there already, and is never overwritten. Give another name.")
    typer.echo(new_member(name, path).to_toml(), nl=False)


@node.command("check")
def check(
    config: Annotated[Path | None, typer.Option(metavar="NODE.TOML", help="What the owner allows.")] = None,
    terms: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The terms of a run, as a server sends them, to say whether it would be allowed."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Explain what a node would allow, and what its budgets have left; exit status 3 if it would refuse the given terms."""
    from sfumato.federation.node.books import Books
    from sfumato.federation.node.explain import explain, would
    from sfumato.federation.node.policy import Policy
    from sfumato.federation.terms import Terms

    if config is None:
        raise BadValue("sfumato node check needs --config, the node.toml of this node; sfumato deploy writes one.")
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
    lines = [f"{code}: {words.rstrip('.')}." for code, words in found] or ["allowed"]
    show({"refused": [{"code": code, "why": words} for code, words in found]}, lines, json)
    if found:
        raise typer.Exit(3)
