"""`sfumato audit`: a run and a recipe, what is written where, the exit status, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sfumato.audit.measure import Measured
from sfumato.cli import run
from sfumato.run.releases import read_releases
from tests.cli.conftest import SMALL, Command
from tests.helpers import unchecked

FEW = ["--runs", "40", "--seed", "1"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "first"
    assert run(["train", *SMALL, "--seed", "5", "--keep-releases", "--out", str(folder), "--quiet"]) == 0
    return folder


def _json(found: Any) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(found.out)
    return answer


def test_the_default_audit_of_a_run(sfumato: Command, trained: Path) -> None:
    before = (trained / "run.json").read_text()
    with unchecked():
        found = sfumato("audit", str(trained), *FEW)
    assert found.status == 0 and "No contradiction" in found.out and "This artefact" in found.out
    assert "nothing here is about whoever knows the seed" in found.out.lower()
    told = json.loads((trained / "audit.json").read_text())
    summary = json.loads(before)
    for fact in ("unit", "relation", "delta", "rounds"):
        assert told[fact] == summary[fact]
    assert told["claimed"] == pytest.approx(summary["epsilon"], rel=1e-3) and told["runs"] == 40
    assert "Held against attacks" in (trained / "report.html").read_text()
    assert (trained / "run.json").read_text() == before
    private = trained / "audit-not-private"
    assert private.stat().st_mode & 0o077 == 0 and (private / "index.html").exists()
    assert "auc" not in (trained / "report.html").read_text() and "auc" not in (trained / "audit.json").read_text()


def test_a_recipe_and_its_options(sfumato: Command) -> None:
    words = ("dp-fedavg", "--sample", "everyone", "--rounds", "2", "--noise-multiplier", "1", "--delta", "1e-5")
    with unchecked():
        found = _json(sfumato("audit", *words, *FEW, "--json"))
        same = _json(sfumato("audit", *words, *FEW, "--json"))
    assert found["claimed"] == pytest.approx(6.572, abs=0.01) and found["unit"] == "client" and found["view"] == "world"
    assert set(found["bounds"]) == {"family", "clopper_pearson", "gaussian_fit"} and not found["broken"]
    assert {**found, "seconds": 0} == {**same, "seconds": 0}


def test_records_are_held_to_the_records_guarantee(sfumato: Command, trained: Path) -> None:
    with unchecked():
        found = _json(sfumato("audit", "dp-fedavg", *SMALL, *FEW, "--canary", "record", "--json"))
    summary = json.loads((trained / "run.json").read_text())
    assert (found["unit"], found["relation"]) == ("record", "replace")
    assert found["claimed"] == pytest.approx(summary["guarantees"]["record"]["world"]["epsilon"], rel=1e-3)


def test_where_nothing_is_claimed_it_says_so(sfumato: Command) -> None:
    for words in (("fedavg",), ("dp-fedavg", "--view", "server")):
        found = sfumato("audit", *words, "--rounds", "2", *FEW)
        assert found.status == 0 and "Nothing is claimed" in found.out


def test_the_exit_status_is_1_only_for_what_is_contradicted(sfumato: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores that no sound round gives: as if the noise were missing."""
    real = Measured.errors.fget  # type: ignore[attr-defined]

    def perfect(self: Measured) -> Any:
        return replace(real(self), false_positives=0, false_negatives=0)

    monkeypatch.setattr(Measured, "errors", property(perfect))
    with unchecked():
        found = sfumato("audit", "dp-fedavg", *SMALL, *FEW)
    assert found.status == 1 and "BROKEN" in found.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere"], "neither the folder of a run nor a recipe"),
        (["dp-fedavg", "--attack", "lira"], "needs a run"),
        (["dp-fedavg", "--shadows", "4"], "--attack"),
        (["dp-fedavg", "--runs", "3"], "at least 10"),
        (["dp-fedavg", "--confidence", "1.5"], "below 1"),
        (["dp-fedavg", "--canary", "person"], "not known"),
        (["dp-fedavg", "--others", "opposite", "--runs", "10"], "varies"),
        (["dp-fedavg", "--others", "both"], "not known"),
    ],
)
def test_refusals_are_for_people(sfumato: Command, words: list[str], said: str) -> None:
    found = sfumato("audit", *words)
    assert found.status == 2 and said in found.err


def test_a_run_takes_no_option_of_a_recipe(sfumato: Command, trained: Path) -> None:
    found = sfumato("audit", str(trained), "--rounds", "9")
    assert found.status == 2 and "--rounds" in found.err
    found = sfumato("audit", str(trained), "--attack", "nobody")
    assert found.status == 2 and "there is no attack" in found.err


def test_releases_are_those_of_all_rounds_also_after_a_resume(sfumato: Command, trained: Path) -> None:
    from safetensors.torch import load_file

    kept = read_releases(trained)
    assert len(kept) == 3 and not kept[0].equal(kept[1])
    last = load_file(trained / "params.safetensors")
    assert sum(value.numel() for value in last.values()) == len(kept[-1])
    assert all(
        bool((kept[-1] == one).any()) for one in last["weight" if "weight" in last else next(iter(last))].flatten()[:3]
    )


def test_a_run_that_goes_on_keeps_its_releases(sfumato: Command) -> None:
    sfumato("train", *SMALL, "--seed", "5", "--keep-releases", "--out", "run", "--quiet")
    first = read_releases(Path("run"))
    sfumato("train", "--resume", "run", "--rounds", "4", "--quiet")
    more = read_releases(Path("run"))
    assert len(more) == 4 and all(a.equal(b) for a, b in zip(first, more, strict=False))
    sfumato("train", *SMALL, "--seed", "5", "--out", "without", "--quiet")
    assert read_releases(Path("without")) == ()
