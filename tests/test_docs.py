"""The documents tell the truth as far as a machine can see: links lead somewhere, code compiles, examples run."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
SAYS = {
    "own_data": "round 20: accuracy",
    "budget": "stopped: round 9",
    "mlflow_log": "epsilon by round: 7.423, 7.423, 7.423, 7.423, 7.423",
    "own_csv": "round 15: accuracy",
    "fine_tune_head": "the statistics are as they were: True",
    "low_rank_adapters": "656 of 6292 parameters were trained",
    "own_piece": "as stated by __main__.Signs",
    "own_sampler": "round 6: epsilon 3.709",
    "own_training": "r2 1.00",
    "own_voter": "as stated by __main__.NearestMean",
    "smoothing_2d": "picture: ",
    "tensorboard_log": "epsilon by round: 7.423, 7.423, 7.423, 7.423, 7.423",
    "torchrun": "round 5: epsilon 7.423, parameters",
}
ALONE = ("mlflow_log", "tensorboard_log")  # in a process of their own, where packages may warn of each other


def _named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _code(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)


def _anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=_named)
def test_relative_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", page.read_text())
    for link in links:
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path) if path else page
        assert target.exists(), f"{_named(page)} links to {link}, which is not there"
        assert not anchor or anchor in _anchors(target), f"{_named(page)} links to {link}, which has no such title"


@pytest.mark.parametrize("page", PAGES, ids=_named)
def test_python_blocks_compile(page: Path) -> None:
    for block in _code(page):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            compile(block, _named(page), "exec")


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text()
    missing = [page.name for page in (ROOT / "docs").glob("*.md") if page.name != "index.md" and page.name not in index]
    assert not missing


def test_the_example_of_the_readme_runs_as_written(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = _code(ROOT / "README.md")
    assert len([line for line in block.splitlines() if line]) <= 10
    scope: dict[str, object] = {"__name__": "readme"}
    exec(compile(block, "README.md", "exec"), scope)
    assert "differential privacy" in capsys.readouterr().out
    assert "trained" in scope


def test_the_commands_of_the_readme_are_those_of_the_makefile() -> None:
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    used = re.findall(r"^\$ make (\w+)$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert set(used) == {"run", "test"} <= set(targets)


def test_the_recipes_of_the_readme_are_those_that_exist() -> None:
    from sfumato.recipes import RECIPES

    listed = re.findall(r"^\| `([\w-]+)` \|", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(RECIPES)


@pytest.mark.parametrize("example", EXAMPLES, ids=_named)
def test_examples_run_and_are_short(example: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert len(example.read_text().splitlines()) < 60
    if example.stem in ALONE:
        done = subprocess.run([sys.executable, str(example)], cwd=tmp_path, capture_output=True, text=True)
        assert SAYS[example.stem] in done.stdout, done.stderr
        assert not list(tmp_path.iterdir()), "it left files where it stood"
        return
    runpy.run_path(str(example), run_name="__main__")
    assert SAYS[example.stem] in capsys.readouterr().out


PURE = ("account", "plan", "curve", "explain", "recipes")  # what they print depends on their options only


def _shown(page: Path) -> list[tuple[str, str]]:
    """The commands of a page whose output can be checked, with the output that the page shows."""
    found = []
    for block in re.findall(r"^```console\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            words = command.split()
            if words[0] == "sfumato" and words[1] in PURE:
                found.append((command, output))
    return found


@pytest.mark.parametrize(
    ("command", "output"),
    [pytest.param(*shown, id=f"{_named(page)}: {shown[0]}") for page in PAGES for shown in _shown(page)],
)
def test_what_a_page_shows_is_what_a_command_prints(command: str, output: str) -> None:
    shell = f"{sys.executable} -m {command} 2>&1"
    printed = subprocess.run(["bash", "-c", shell.replace(" | ", " 2>&1 | ", 1)], capture_output=True, text=True).stdout
    assert len(output.split()) == len(printed.split()), printed
    assert all(map(_alike, output.split(), printed.split())), printed


def _alike(shown: str, printed: str) -> bool:
    """The same word, or a number but for its last digits, which a machine may round in its own way."""
    try:
        return float(shown.strip("(),;")) == pytest.approx(float(printed.strip("(),;")), rel=2e-4)
    except ValueError:
        return shown == printed
