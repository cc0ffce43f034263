"""`sfumato server`: the same run as `sfumato train`, with its clients on other machines."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.commands.answers import refusing
from sfumato.commands.paragraphs import print_lines
from sfumato.commands.train import caution, new_folder, resumed, tell
from sfumato.errors import BadValue, BudgetExceeded
from sfumato.run.request import Request

if TYPE_CHECKING:
    from sfumato.federation.settings import Settings
    from sfumato.federation.wire import Wire
    from sfumato.run.prepare import Prepared


def server(
    config: Annotated[
        str, typer.Option("--config", help="The run.toml that sfumato deploy wrote.", metavar="FILE")
    ] = "",
    out: Annotated[str, typer.Option("--out", help="Folder of the run; never overwritten.", metavar="FOLDER")] = "",
    resume: Annotated[str, typer.Option("--resume", help="Folder of a run to go on with.", metavar="FOLDER")] = "",
    rounds: Annotated[
        int, typer.Option("--rounds", help="With --resume: how many in all.", metavar="N", show_default=False)
    ] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print run.json and nothing else.")] = False,
) -> None:
    """Train with the nodes of a federation: draws cohorts, asks their nodes, adds the noise, keeps the ledger.

    Nodes run sfumato node on their owners' machines. It needs the extra 'flower'.
    """
    with refusing(json):
        if bool(config) == bool(resume) or (resume and out) or (rounds and not resume):
            raise BadValue("sfumato server takes --config FILE, with --out, or --resume FOLDER, with --rounds.")
        found: Any = {}
        if resume:
            folder, (request, found) = Path(resume), resumed(Path(resume), rounds or None, "server")
            beside = Path(resume)
        else:
            request, beside = _anew(Request.from_toml(Path(config))), Path(config).parent
            folder = new_folder(out or None, request)
        serve_run(request, found, beside, folder, resume=bool(resume), quiet=quiet or json)
        if json:
            typer.echo((folder / "run.json").read_text(), nl=False)


def _anew(request: Request) -> Request:
    """The same run once more: under a name of its own, since nodes count rounds of the same name once."""
    return replace(request, federation={name: value for name, value in request.federation.items() if name != "run"})


def serve_run(
    request: Request, found: Any, beside: Path, folder: Path, *, resume: bool = False, quiet: bool = False
) -> None:
    """Train over Flower, show how it goes, and say what it cost. Relative paths are `beside` the config."""
    if not request.federation:
        raise BadValue("this run.toml has no table [federation], so its data are here: use sfumato train.")
    from sfumato.engine.checkpoint import LEDGER
    from sfumato.federation import needs_flower

    needs_flower()
    from sfumato.federation.flower.server import FlowerWire
    from sfumato.federation.flower.settings import ServerSettings
    from sfumato.federation.server import prepared_for
    from sfumato.federation.settings import Settings

    settings = Settings.of(request.federation, beside)
    prepared = prepared_for(request, settings, found)
    known = tuple(member.key for member in settings.members())
    files = Path(settings.certificate), Path(settings.key), Path(settings.authority)
    try:
        with TemporaryDirectory(prefix="sfumato-") as private:
            at = ServerSettings(Path(private), known, *files, settings.host, settings.port)
            with closing(FlowerWire(at)) as wire:
                _over(wire, prepared, settings, folder, resume=resume, quiet=quiet)
    except KeyboardInterrupt:
        begun = (folder / LEDGER).exists()
        print_lines(f"interrupted; go on with: sfumato server --resume {folder}" if begun else "interrupted", err=True)
        raise typer.Exit(130) from None


def _over(wire: Wire, prepared: Prepared, settings: Settings, folder: Path, *, resume: bool, quiet: bool) -> None:
    from sfumato.commands.progress import follow
    from sfumato.federation.server import Served
    from sfumato.report import write_page

    def say(words: str) -> None:
        if not quiet:
            print_lines(words, err=True)

    served = Served(prepared, wire, settings, folder, resume=resume, page=write_page, tell=say)
    stopped = None
    if not quiet:
        caution(prepared, err=True)
    with closing(served.run) as run:
        served.check()
        try:
            follow(run, quiet=quiet)
        except BudgetExceeded as error:
            stopped = error
        served.end()
        if not quiet:
            tell(run.simulation, served.run.prepared, folder)
    if stopped:
        print_lines(f"sfumato: {stopped}", err=True)
        raise typer.Exit(3)
