"""Shows on the site what lies beside `docs/`: the README, the examples, the results of tables.

Links in pages are written for the repository. Here each is led to the page that the site makes of the same file, so
that one text serves both; what leads nowhere fails the strict build.
"""

from __future__ import annotations

import logging
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

OUTSIDE = (
    "*.md",
    "LICENSE",
    "examples/*.*",
    "benchmarks/results/*.md",
    "benchmarks/results/*/*.md",
    "benchmarks/results/*/*.png",
)
ELSEWHERE = re.compile(r"[a-z]+:|#|//")
log = logging.getLogger("mkdocs.plugins.docs_hook")


def on_files(files: Any, config: Any) -> Any:
    """Every file beside `docs/` that pages speak of; sources become pages, so that a browser shows them."""
    root = Path(config.config_file_path).parent
    for path in sorted(found for pattern in OUTSIDE for found in root.glob(pattern)):
        place = path.relative_to(root).as_posix()
        if path.suffix in (".py", ".toml"):
            text = f"# {place}\n\n```{'python' if path.suffix == '.py' else 'toml'}\n{path.read_text()}```\n"
            files.append(File.generated(config, _on_site(place), content=text))
        else:
            files.append(File.generated(config, _on_site(place), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Links as the repository has them, led to where the site has their target."""

    def led(found: re.Match[str]) -> str:
        return f"]({_led(found[1], page.file.src_uri)})"

    return re.sub(r"\]\(([^)\s]+)\)", led, markdown)


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """The same for notebooks, whose links MkDocs does not look at."""
    if not page.file.src_uri.endswith(".ipynb"):
        return html

    def led(found: re.Match[str]) -> str:
        if ELSEWHERE.match(found[1]):
            return found[0]
        path, _, anchor = _led(found[1], page.file.src_uri).partition("#")
        target = files.get_file_from_path(
            posixpath.normpath(posixpath.join(posixpath.dirname(page.file.src_uri), path))
        )
        if target is None:
            log.warning("%s links to %s, which is not there", page.file.src_uri, found[1])
            return found[0]
        return f'href="{target.url_relative_to(page.file)}{"#" + anchor if anchor else ""}"'

    return re.sub(r'href="([^"]+)"', led, html)


def _on_site(place: str) -> str:
    """Where the site has the file that the repository has at `place`."""
    if place == "README.md":
        return "readme.md"  # README.md would be taken for the folder's index
    if re.fullmatch(r"examples/.*\.(py|toml)", place):
        return place + ".md"
    return place.removeprefix("docs/")


def _in_repository(place: str) -> str:
    if place == "readme.md":
        return "README.md"
    outside = place.startswith(("examples/", "benchmarks/")) or place in ("CHANGELOG.md", "CONTRIBUTING.md")
    return place if outside else f"docs/{place}"


def _led(link: str, page: str) -> str:
    if ELSEWHERE.match(link):
        return link
    path, mark, anchor = link.partition("#")
    target = posixpath.normpath(posixpath.join(posixpath.dirname(_in_repository(page)), path))
    return posixpath.relpath(_on_site(target), posixpath.dirname(page) or ".") + mark + anchor
