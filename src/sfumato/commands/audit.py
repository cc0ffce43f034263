"""`sfumato audit`: attack a run, or a recipe run again with canaries, and hold the guarantee against the attack."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.commands.answers import parse_unit, refusing, show
from sfumato.commands.asked import request_from
from sfumato.commands.options import flag, option, signature
from sfumato.commands.paragraphs import print_lines
from sfumato.commands.progress import Runs
from sfumato.errors import BadValue, SfumatoError
from sfumato.recipes import RECIPES
from sfumato.run.request import Request, resolved
from sfumato.run.settings_text import parse_setting

if TYPE_CHECKING:
    from sfumato.audit.attack import Found
    from sfumato.audit.verdict import Verdict
    from sfumato.run.prepare import Prepared

_NOT_THERE = ("resume", "out", "auto", "seconds", "ray", "workers", "shards", "seed", "keep_releases", "diagnostics")
_OWN = ("attack", "runs", "seconds", "confidence", "canary", "others", "view", "canaries", "shadows", "seed")
_MEMBERSHIP = "membership"  # the attack on the artefact in the default audit: as good as half a minute allows


def _audit(target: str, **given: Any) -> int:
    """The exit status."""
    chosen = {name: value for name, value in given.items() if value is not None and value != []}
    quiet, as_json = bool(chosen.pop("quiet", False)), bool(chosen.pop("json", False))
    own = {name: chosen.pop(name) for name in _OWN if name in chosen}
    folder = Path(target) if (Path(target) / "run.toml").is_file() else None
    if "attack" in own:
        own["set"] = chosen.pop("set", [])
    if folder is not None and chosen:
        raise BadValue(
            f"{flag(next(iter(chosen)))}: a run is audited as it was trained. Leave it out, or audit a recipe."
        )
    if folder is None and target not in RECIPES:
        raise BadValue(f"{target}: neither the folder of a run nor a recipe. Give e.g. runs/first, or dp-fedavg.")
    say = _silent if quiet or as_json else lambda words: print_lines(words, err=True)
    if (name := own.pop("attack", None)) is not None:
        return _attack(folder, name, own, say, quiet, as_json)
    if "shadows" in own:
        raise BadValue(f"--shadows {own['shadows']}: that is for --attack. Give --attack lira too, or leave it out.")
    prepared, rounds = _of_run(folder) if folder is not None else _of_recipe(target, chosen)
    verdict = _canaries(prepared, rounds, own, None if quiet or as_json else say)
    if folder is None:
        _tell(verdict, quiet, as_json)
        return int(verdict.broken)
    verdict = _beside_the_run(folder, verdict)
    _write(folder, verdict, own.get("others") == "real")
    _tell(verdict, quiet, as_json)
    try:
        told = _lines(_attacked(folder, _MEMBERSHIP, {}, own.get("seed"), say))
    except SfumatoError as reason:  # the verdict does not hang on it
        told = [f"No attack was made: {reason}"]
        if quiet or as_json:
            typer.echo(told[0], err=True)
    if not (quiet or as_json):
        typer.echo("\n".join(["", "This artefact:", *told, "", f"report: {folder / 'report.html'}"]))
    return int(verdict.broken)


def _of_run(folder: Path) -> tuple[Prepared, int]:
    from sfumato.run.prepare import prepare
    from sfumato.run.schema import read_summary

    summary, path = read_summary(folder), folder / "run.toml"
    request = Request.from_toml(path)
    request.require_named("sfumato.audit.verdict.audit(Asked(round, ...), How(...)).")
    if request.federation:
        raise BadValue(f"{folder} is the run of a federation, whose clients are elsewhere. Audit its recipe instead.")
    return prepare(request, resolved(path), folder=folder), int(summary["rounds"])


def _of_recipe(recipe: str, chosen: dict[str, Any]) -> tuple[Prepared, int]:
    from sfumato.run.prepare import prepare

    settings, config = chosen.pop("set", []), chosen.pop("config", None)
    request, _ = request_from(recipe, config, chosen, settings)
    return prepare(request), request.rounds


def _canaries(prepared: Prepared, rounds: int, own: dict[str, Any], say: Callable[[str], object] | None) -> Verdict:
    """This recipe, run again with canaries."""
    from sfumato.audit.asked import Asked
    from sfumato.audit.client_worlds import Real
    from sfumato.audit.verdict import SEEDED, How, audit
    from sfumato.key import Key

    unit = parse_unit(own["canary"], "--canary") if "canary" in own else None
    others = own.get("others", "auto")
    asked = Asked.of(prepared, rounds, unit, own.get("view", "world"), others)
    real = Real(prepared.population, prepared.module, prepared.objective) if others == "real" else None
    seed = own.get("seed")
    key = (Key.from_system() if seed is None else Key.from_seed(seed)).child("audit")
    how = How(
        key, prepared.request.chosen_delta, own.get("confidence", 0.95), own.get("runs"), own.get("seconds", 45.0),
        own.get("canaries", 0),
    )  # fmt: skip
    with Runs(say) as told:
        verdict = audit(asked, how, told, real)
    if prepared.request.seed is not None:
        verdict = replace(verdict, notes=(*verdict.notes, SEEDED))
    return verdict


def _beside_the_run(folder: Path, verdict: Verdict) -> Verdict:
    """With what the run itself has spent, where that is more than its rounds cost."""
    from sfumato.guarantee import rounded_up
    from sfumato.run.schema import read_summary

    own = read_summary(folder)["guarantees"].get(verdict.unit, {}).get(verdict.view, {}).get("epsilon")
    if own is None or verdict.claimed is None or own <= verdict.claimed * (1.0 + 1e-3):
        return verdict
    more = (
        f"the run's own guarantee is epsilon {rounded_up(own, 4)}: it counts more than {verdict.rounds} rounds, and no "
        "canary attacks what was spent beside them"
    )
    return replace(verdict, notes=(*verdict.notes, more))


def _write(folder: Path, verdict: Verdict, beside_real: bool) -> None:
    """What worst-case canaries showed may be published, unless clients' own data had a part in it."""
    import json

    from sfumato.audit.attack import Found
    from sfumato.engine.checkpoint import write_atomically
    from sfumato.report import write_page
    from sfumato.report.attacks import write_attack

    if beside_real:
        numbers = {f"at least, by {name}": value for name, value in (verdict.bounds or {}).items()}
        write_attack(
            Found(
                "canaries", numbers, notes=(verdict.sentence, *verdict.words, *verdict.notes), seconds=verdict.seconds
            ),
            folder,
        )
        return
    write_atomically(folder / "audit.json", json.dumps(verdict.to_json(), indent=2) + "\n")
    write_page(folder)


def _attack(
    folder: Path | None, name: str, own: dict[str, Any], say: Callable[[str], object], quiet: bool, as_json: bool
) -> int:
    """An attack by name on what a run left."""
    if folder is None:
        raise BadValue(
            f"--attack {name}: an attack needs a run. Give its folder in place of a recipe, e.g. runs/first."
        )
    options = dict(parse_setting(words) for words in own.pop("set"))
    options |= {"shadows": own.pop("shadows")} if "shadows" in own else {}
    options |= {"unit": own.pop("canary")} if "canary" in own else {}
    seed = own.pop("seed", None)
    if own:
        raise BadValue(f"{flag(next(iter(own)))}: that is for canaries, and {name} has none. Leave it out.")
    found = _attacked(folder, name, options, seed, say)
    if as_json:
        typer.echo(found.to_json(), nl=False)
    elif not quiet:
        print_lines(*_lines(found))
    return 0


def _attacked(
    folder: Path, name: str, options: dict[str, Any], seed: int | None, say: Callable[[str], object]
) -> Found:
    from sfumato.audit.attacks import attack_run, build
    from sfumato.report.attacks import write_attack

    found = attack_run(folder, build(name, options), say, seed)
    page = write_attack(found, folder)
    say(f"not private: {page}")
    return found


def _lines(found: Found) -> list[str]:
    lines = [f"{found.attack}, on the run's own records (NOT private: do not publish):"]
    wide = max((len(name) for name in found.numbers), default=0)
    for name, value in found.numbers.items():
        base = f"  (baseline {found.baselines[name]:.4g})" if name in found.baselines else ""
        low_high = found.bands.get(name)
        band = "" if low_high is None else f"  [{low_high[0]:.4g}, {low_high[1]:.4g}]"
        lines.append(f"  {name:<{wide}}  {value:.4g}{band}{base}")
    return [*lines, *found.notes]


def _tell(verdict: Verdict, quiet: bool, as_json: bool) -> None:
    answer = verdict.to_json()
    if as_json:
        show(answer, [], True)
    elif not quiet:
        show(answer, ["This recipe, run again with canaries:", *verdict.lines()], False)
    elif verdict.broken:
        print_lines(verdict.sentence, err=True)


def _silent(words: str) -> None:
    return


def _signature() -> inspect.Signature:
    kept = [one for name, one in signature().parameters.items() if name not in (*_NOT_THERE, "recipe")]
    text = "The folder of a run, or a recipe's name; a recipe takes the options of train."
    named = Annotated[str, typer.Argument(help=text, metavar="RUN|RECIPE", show_default=False)]
    panel = "Audit"
    own = [
        option("runs", int, "Runs of each world. Default: as many as --seconds allow, up to 2000.", panel),
        option("seconds", float, "Without --runs: about how long to run canaries. Default: 45.", panel),
        option("confidence", float, "Of the bounds that are printed. Default: 0.95. The exit status goes by 1 - 1e-6.", panel),
        option("canary", str, "client or record: whose guarantee is audited. Default: the run's own unit.", panel, "UNIT"),
        option("others", str, "What others send: zero, opposite or real. Default: what shows the canary best.", panel, "ROWS"),
        option("view", str, "world or server: who looks. Default: world.", panel, "WHO"),
        option("canaries", int, "Also one run with so many canaries at once, e.g. 1000.", panel),
        option("attack", str, "An attack on a run's own records, by name, e.g. lira: NOT private.", panel, "NAME"),
        option("shadows", int, "With --attack: how many shadow models.", panel),
        option("seed", int, "For tests: everything the audit draws can be drawn again.", panel),
    ]  # fmt: skip
    first = inspect.Parameter("target", inspect.Parameter.KEYWORD_ONLY, annotation=named)
    return inspect.Signature([first, *own, *kept])


def audit(**given: Any) -> None:
    """Attack a run, or a recipe with canaries, and hold the guarantee against the attack.

    Exit status 1 only if a guarantee is contradicted at confidence 1 - 1e-6.
    """
    with refusing(bool(given.get("json"))):
        status = _audit(given.pop("target"), **given)
    if status:
        raise typer.Exit(status)


audit.__signature__ = _signature()  # type: ignore[attr-defined]
audit.__annotations__ = {one.name: one.annotation for one in _signature().parameters.values()}
