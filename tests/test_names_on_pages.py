"""What users can name is on the page where they look for it: data sets, models, recipes, attacks, commands, features, examples."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"


def _data_sets() -> Iterable[str]:
    from sfumato.data import domain_names
    from sfumato.data.load import DOMAIN_NAMES, NAMES

    parts = {*domain_names.OFFICE_DOMAINS, *domain_names.DOMAINNET_DOMAINS}
    whole = {"office-caltech10", "domainnet", "domainnet-fruit"}
    one = set(DOMAIN_NAMES) - whole  # of one domain, or of all others: the page says how they are named
    return [*(name for name in NAMES if name not in one), *parts]


def _models() -> Iterable[str]:
    from sfumato.models.build import NAMES

    return NAMES


def _recipes() -> Iterable[str]:
    from sfumato.recipes import RECIPES

    return RECIPES


def _attacks() -> Iterable[str]:
    from sfumato.audit.attacks import ATTACKS

    return ATTACKS


def _commands() -> Iterable[str]:
    import typer

    from sfumato.commands.app import app

    return [f"sfumato {name}" for name in typer.main.get_command(app).commands]  # type: ignore[attr-defined]


def _examples() -> Iterable[str]:
    return [path.name for path in (DOCS.parent / "examples").glob("*.py")]


def on_page(name: str, page: str) -> bool:
    """Whether a page has the name as code, at the beginning of a line that a command prints, or as the target of a link."""
    return re.search(rf"(`|/|^){re.escape(name)}(?![\w-])", (DOCS / page).read_text(), re.MULTILINE) is not None


@pytest.mark.parametrize(
    ("names", "page"),
    [
        (_data_sets, "data.md"),
        (_models, "models.md"),
        (_recipes, "rounds.md"),
        (_recipes, "../README.md"),
        (_attacks, "attacks.md"),
        (_commands, "reference/commands.md"),
        (_examples, "index.md"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_every_name_is_on_its_page(names: Callable[[], Iterable[str]], page: str) -> None:
    listed = list(names())
    assert listed
    missing = [name for name in listed if not on_page(name, page)]
    assert not missing, f"{page} lacks {', '.join(missing)}"


def test_a_missing_name_is_noticed() -> None:
    assert on_page("digits", "data.md")
    assert not on_page("digit", "data.md")
    assert not on_page("no-such-set", "data.md")
