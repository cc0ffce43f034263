"""`sfumato tune`: settings chosen on public data for free, or on clients' own for a price; and the run that they give."""

from __future__ import annotations

import inspect
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from sfumato.commands.answers import refusing
from sfumato.commands.asked import request_from, seconds_from
from sfumato.commands.options import option, signature
from sfumato.commands.paragraphs import print_lines
from sfumato.commands.preparing import preparing
from sfumato.commands.train import new_folder, tell, tell_choices, train_as_prepared
from sfumato.errors import BadValue

if TYPE_CHECKING:
    from sfumato.run.prepare import Prepared
    from sfumato.tuning.candidates import Settings

_NOT_THERE = ("resume", "config", "budgets", "auto", "ray", "workers", "shards")


def _tune(recipe: str | None, **given: Any) -> None:
    chosen = {name: value for name, value in given.items() if value is not None and value != []}
    quiet, as_json = bool(chosen.pop("quiet", False)), bool(chosen.pop("json", False))
    out, settings, words = chosen.pop("out", None), chosen.pop("set", []), chosen.pop("vary", [])
    proxy, pay, average = chosen.pop("proxy", None), bool(chosen.pop("pay", False)), chosen.pop("runs", None)
    if bool(proxy) == pay:
        raise BadValue(
            "tune: choosing settings by what they give on clients' data costs privacy. Give --proxy NAME, to choose on a public "
            "data set for free, or --pay, to choose on theirs within the budget"
            + (": one of them, not both." if proxy else ".")
        )
    if average is not None and not pay:
        raise BadValue(f"--runs {average:g}: with --proxy every setting is tried once. Leave it out, or use --pay.")
    seconds = seconds_from(chosen)
    request, keys = request_from(recipe, None, chosen, settings)
    folder = new_folder(out, request)

    from sfumato.planning.auto import TASKS
    from sfumato.run.auto import Auto, is_known
    from sfumato.run.prepare import prepare
    from sfumato.tuning.candidates import candidates

    known = is_known(request) and request.data.task in TASKS  # else all that is not given has its default
    with preparing(quiet or as_json):
        prepared = prepare(request, auto=Auto(keys, seconds) if known else None)
    if prepared.basis is not None:
        raise BadValue(
            "tune: private-pca is paid for once, in a run that trains once. Use pca with --public, or train."
        )
    tried, say = candidates(prepared.request, words), not (quiet or as_json)
    if pay:
        _pay(prepared, tried, folder, 5.0 if average is None else average, quiet, as_json)
        return
    best = _on_proxy(prepared, proxy, tried, say)
    train_as_prepared(best, folder, quiet=quiet, as_json=as_json)


def _on_proxy(prepared: Prepared, proxy: str, tried: Sequence[Settings], say: bool) -> Prepared:
    from sfumato.tuning.candidates import in_words, with_settings
    from sfumato.tuning.proxy import Tried, choose_on_proxy

    def tell_of(one: Tried) -> None:
        if say:
            print_lines(f"  {one.score:.4f} on {proxy}: {in_words(one.settings)}", err=True)

    found = choose_on_proxy(prepared, proxy, tried, tell_of)
    if say:
        tell_choices(prepared)
        print_lines(f"best on {proxy}, which cost nothing: {in_words(found[0].settings)}")
    return with_settings(
        replace(prepared, choices=()), found[0].settings
    )  # what was varied may have come out otherwise


def _pay(
    prepared: Prepared, tried: Sequence[Settings], folder: Path, average: float, quiet: bool, as_json: bool
) -> None:
    from sfumato.account.selected import gamma_for
    from sfumato.report import write_page
    from sfumato.tuning.candidates import in_words
    from sfumato.tuning.select import Law, Selection

    selection = Selection.of(prepared, tried, Law(gamma_for(average)))
    if not (quiet or as_json):
        print_lines(f"a secret number of runs, {average:g} on average; nothing is shown before the end", err=True)
    simulation = selection.run(folder, prepared.request.seed)
    write_page(folder)
    if as_json:
        typer.echo((folder / "run.json").read_text(), nl=False)
    elif not quiet:
        tell_choices(prepared)
        told = json.loads((folder / "tune.json").read_text())
        print_lines(
            f"best of {len(tried)} settings, by a noisy score of {told['score']:.4f}: {in_words(told['settings'])}"
        )
        tell(simulation, prepared, folder)


def _signature() -> inspect.Signature:
    kept = [parameter for name, parameter in signature().parameters.items() if name not in _NOT_THERE]
    panel = "Choose"
    own = [
        option("proxy", str, "Choose on this public data set, shared out as the clients' records are: free.", panel, "NAME"),
        option("pay", bool, "Choose on clients' own records, within the budget: the best of a random number of runs.", panel),
        option("runs", float, "With --pay: how many runs on average. Default: 5.", panel),
        option("vary", list[str], "Values to try, e.g. options.server_lr=0.5,1,2 or rounds=30,60; all combinations.", panel,
               "KEY=VALUES"),
    ]  # fmt: skip
    return inspect.Signature([*kept[:1], *own, *kept[1:]])


def tune(**given: Any) -> None:
    """Choose settings, on a public proxy for free or on clients' data for a price, and train with the best.

    What you do not give is chosen as train --auto does it; by default learning rates around that choice are tried.
    """
    with refusing(bool(given.get("json"))):
        _tune(given.pop("recipe"), **given)


tune.__signature__ = _signature()  # type: ignore[attr-defined]
tune.__annotations__ = {p.name: p.annotation for p in _signature().parameters.values()}
