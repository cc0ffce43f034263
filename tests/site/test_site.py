"""The site builds strictly, needs nobody else, and has every public name."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import sfumato
import sfumato.testing

ROOT = Path(__file__).parent.parent.parent
REFERENCE = "\n".join(page.read_text() for page in (ROOT / "docs" / "reference").glob("*.md"))
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    built = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True
    )
    assert built.returncode == 0, built.stderr
    return folder


class Page(HTMLParser):
    """What a page loads, where it leads, and what can be led to."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.leads: list[str] = []
        self.ids: set[str] = set()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.ids |= {found["id"]} if "id" in found else set()
        if tag in LOADED and found.get(LOADED[tag]):
            self.loads.append(found[LOADED[tag]])
        if tag == "a" and "href" in found:
            self.leads.append(found["href"])


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    """All pages, read once."""
    return {path: Page(path) for path in sorted(site.rglob("*.html"))}


def test_no_page_loads_anything_from_elsewhere(site: Path, pages: dict[Path, Page]) -> None:
    assert len(pages) > 40
    for page, found in pages.items():
        away = [link for link in found.loads if re.match(r"(https?:)?//", link)]
        assert not away, f"{page.relative_to(site)} loads {away}"


def test_every_link_of_the_site_leads_somewhere(site: Path, pages: dict[Path, Page]) -> None:
    """Notebooks too, which MkDocs does not look at, and pages made of files outside docs/."""
    for page, found in pages.items():
        if page.name == "404.html":
            continue  # it is shown at any address
        for link in {*found.leads, *found.loads}:
            path, _, anchor = link.partition("#")
            if re.match(r"[a-z]+:", link) or not path:
                continue
            target = Path(os.path.normpath(page.parent / path))
            target = target if target in pages or target.is_file() else target / "index.html"
            known = target in pages or target.is_file()
            assert known, f"{page.relative_to(site)} leads to {link}"
            assert not anchor or target not in pages or anchor in pages[target].ids, (
                f"{page.relative_to(site)} leads to {link}"
            )


def test_every_public_name_is_in_the_reference_once() -> None:
    listed = re.findall(r"^::: sfumato\.(\w+)$", REFERENCE, re.MULTILINE)
    assert sorted(listed) == sorted(set(sfumato.__all__) - {"__version__"})
    laws = re.findall(r"^::: sfumato\.testing\.(\w+)$", REFERENCE, re.MULTILINE)
    assert sorted(laws) == sorted(sfumato.testing.__all__)


def test_the_reference_shows_docstrings(site: Path) -> None:
    page = (site / "reference" / "rounds" / "index.html").read_text()
    assert (sfumato.Clip.__doc__ or "").split(".")[0].split("`")[0] in page.split('id="sfumato.Clip"')[1]


def test_examples_and_results_are_pages(site: Path) -> None:
    assert "class" in (site / "examples" / "own_piece.py" / "index.html").read_text()
    assert (site / "benchmarks" / "results" / "frontier" / "table" / "index.html").exists()
    assert (site / "benchmarks" / "results" / "audit-recipes" / "bounds.png").exists()
