"""What the commands about accounting share: reading settings, and printing an answer or a refusal."""

from __future__ import annotations

import json as jsonlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from sfumato.account.event import Unit
from sfumato.commands.paragraphs import print_lines
from sfumato.errors import BadValue, SfumatoError, UnsoundRound, nearest, refused_by_system
from sfumato.pieces.sampler import Drawn, FixedSize, parse_drawn
from sfumato.planning.setting import Setting, parse_noise, parse_relation
from sfumato.private_log import words_of

Json = Annotated[bool, typer.Option("--json", help="For programs.")]


def read_setting(
    noise: str,
    sample: str,
    rounds: int,
    unit: str = "client",
    relation: str | None = None,
    batch: str | None = None,
    steps: int = 1,
    noise_at: str = "server",
    curious: int = 1,
    dimension: int | None = None,
    shuffle: bool = False,
    votes: str = "",
) -> Setting:
    """The setting that the options describe."""
    hidden = parse_unit(unit)
    if noise_at not in ("server", "client"):
        raise BadValue(f"--noise-at {noise_at}: not known. {nearest(noise_at, ['server', 'client'])}")
    drawn = None if batch is None else _drawn(batch, "--batch", 0)
    chosen, law, cohort = parse_relation(relation), parse_noise(noise), _drawn(sample, "--sample", curious)
    at_client = noise_at == "client"
    return Setting(law, cohort, rounds, hidden, chosen, drawn, steps, at_client, dimension, shuffle, votes)


def parse_unit(words: str, option: str = "--unit") -> Unit:
    """What `--unit` says, or another option."""
    if words not in list(Unit):
        raise BadValue(f"{option} {words}: not known. {nearest(words, [str(one) for one in Unit])}")
    return Unit(words)


def _drawn(words: str, option: str, curious: int) -> Drawn:
    found = parse_drawn(words, option=option, curious=curious)
    if option == "--sample" and curious != 1 and not isinstance(found.sampler, FixedSize):
        raise BadValue(
            f"--curious {curious} has no effect with --sample {words}: it is about a fixed size. Leave it out."
        )
    if isinstance(found.sampler, FixedSize) and found.population is None:
        raise BadValue(f"{option} {words}: a fixed size needs its population, e.g. fixed:50/1000.")
    return found


@contextmanager
def refusing(json: bool) -> Iterator[None]:
    """With `--json` a refusal is an answer too: {"refused": reason} and exit status 2."""
    try:
        yield
    except (SfumatoError, OSError) as error:
        if not json or (isinstance(error, OSError) and error.filename is None):
            raise
        refusal = str(refused_by_system(error)) if isinstance(error, OSError) else words_of(error)
        if isinstance(error, UnsoundRound):
            refusal = f"{error.reason} {error.fix[0].upper()}{error.fix[1:]}"
        typer.echo(jsonlib.dumps({"refused": refusal}))
        raise typer.Exit(2) from None


def show(answer: dict[str, Any], lines: list[str], json: bool) -> None:
    """The answer, for programs or for people."""
    if json:
        typer.echo(jsonlib.dumps(answer, indent=2))
    else:
        print_lines(*lines)
