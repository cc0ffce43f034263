"""`sfumato audit`: a run and a recipe, what is written where, the exit status, and what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from sfumato.audit.attack import FOLDER, Keep
from sfumato.audit.bounds import Errors
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

    def perfect(absent: Any, present: Any, threshold: float) -> Errors:
        return Errors(0, len(absent), 0, len(present))

    monkeypatch.setattr(Errors, "of", perfect)
    with unchecked():
        found = sfumato("audit", "dp-fedavg", *SMALL, "--runs", "60", *FEW[2:])
    assert found.status == 1 and "BROKEN" in found.out


def test_a_sum_of_shares_that_is_not_proven_is_not_attacked_by_its_messages(sfumato: Command) -> None:
    """With `keep` 1 nothing is dropped, and the claim of the paper is true for whoever sees the sum."""
    words = ["--mask", "published", "--unproven", "--keep", "1.0", "--relation", "zero_out", "--sample", "everyone"]
    found = sfumato("audit", "dp-fedsam-top-k", *words, "--rounds", "1", "--noise-multiplier", "3", *FEW)
    assert found.status == 0 and "noise comes in shares" in found.out.lower() and "refuted" not in found.out


def test_confidence_is_printed_as_it_is(sfumato: Command) -> None:
    found = sfumato("audit", "dp-fedavg", *SMALL, *FEW, "--confidence", "0.9999999")
    assert "at confidence 0.9999999." in found.out and "believed, 99.99999 %" in found.out
    for seconds in ("-3", "nan"):
        assert "a positive number" in sfumato("audit", "dp-fedavg", *SMALL, "--seconds", seconds).err


DPSGD = ["--batch", "poisson:0.5", "--records", "7", "--noise-multiplier", "1", "--rounds", "2"]


@pytest.mark.parametrize(
    "words",
    [
        ["udp-fl", *DPSGD, "--canary", "client"],
        ["dp-fedsam-top-k", "--mask", "published", "--unproven", "--noise-multiplier", "1", "--canary", "record"],
        ["dp-fedsam-top-k", "--mask", "published", "--unproven", "--noise-multiplier", "1", "--view", "server"],
    ],
)
def test_nothing_is_claimed_for_another_unit_or_view(sfumato: Command, words: list[str]) -> None:
    found = sfumato("audit", *words, *FEW)
    assert found.status == 0 and "Nothing is claimed" in found.out


def test_where_no_canary_is_known_it_says_so(sfumato: Command) -> None:
    found = sfumato("audit", "nbafl", "--unproven", "--rounds", "2", *FEW)
    assert found.status == 0 and "No canary was run" in found.out


@pytest.mark.parametrize("words", [["--scaffold"], ["--law", "staircase-as-published", "--unproven"]])
def test_local_training_of_every_kind_has_canary_records(sfumato: Command, words: list[str]) -> None:
    with unchecked():
        found = _json(sfumato("audit", "udp-fl", *DPSGD, *words, "--runs", "10", "--seed", "1", "--json"))
    assert found["runs"] == 10 and not found["broken"]


def test_what_features_cost_is_claimed_too(sfumato: Command) -> None:
    words = ("dp-fedavg", "--epsilon", "2", "--sample", "everyone", "--features", "private-pca:10", "--rounds", "2")
    with unchecked():
        found = _json(sfumato("audit", *words, "--runs", "10", "--seed", "1", "--json"))
        other = _json(sfumato("audit", *words, "--runs", "10", "--seed", "1", "--json", "--view", "server"))
    assert found["claimed"] == pytest.approx(2.0, abs=1e-3) and any("features" in note for note in found["notes"])
    assert other["claimed"] is None


def test_beside_real_clients_nothing_is_published(sfumato: Command, trained: Path, tmp_path: Path) -> None:
    """Their records have a part in every score, and nobody paid for it."""
    folder = tmp_path / "beside"
    shutil.copytree(trained, folder)
    (folder / "audit.json").unlink(missing_ok=True)
    page = (folder / "report.html").read_text()
    with Keep(folder / FOLDER), unchecked():  # so that there is no attack on the artefact, which takes long
        found = sfumato("audit", str(folder), "--others", "real", "--runs", "10", "--seed", "1")
    assert found.status == 0 and "NOT private" in found.out
    assert not (folder / "audit.json").exists() and (folder / "report.html").read_text() == page
    kept = folder / "audit-not-private" / "canaries.json"
    assert kept.stat().st_mode & 0o777 == 0o600 and "do not publish" in kept.read_text()


def test_the_verdict_does_not_hang_on_the_attack(sfumato: Command, trained: Path) -> None:
    """Here another process attacks the run; other runs have no record that was not trained on."""
    with Keep(trained / FOLDER), unchecked():
        found = sfumato("audit", str(trained), "--runs", "10", "--seed", "1")
    assert (
        found.status == 0
        and "Proven of these rounds alone: epsilon" in found.out
        and "No attack was made: another process" in found.out
    )


def test_what_a_run_spent_beside_its_rounds_is_told(sfumato: Command, trained: Path, tmp_path: Path) -> None:
    folder = tmp_path / "more"
    shutil.copytree(trained, folder)
    summary = json.loads((folder / "run.json").read_text())
    summary["guarantees"]["client"]["world"]["epsilon"] = 99.0
    (folder / "run.json").write_text(json.dumps(summary))
    with Keep(folder / FOLDER), unchecked():
        found = sfumato("audit", str(folder), "--runs", "10", "--seed", "1")
    assert "The run's own guarantee is epsilon 99" in found.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere"], "neither the folder of a run nor a recipe"),
        (["dp-fedavg", "--attack", "lira"], "needs a run"),
        (["dp-fedavg", "--shadows", "4"], "--attack"),
        (["dp-fedavg", "--runs", "3"], "at least 10"),
        (["dp-fedavg", "--confidence", "1.5"], "below 1"),
        (["dp-fedavg", "--canary", "person"], "--canary person: not known"),
        (["pate-fl", "--queries", "10", "--canaries", "100", "--runs", "10"], "--canaries: votes"),
        (["udp-fl", *DPSGD, "--others", "opposite"], "--others opposite: canary records"),
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
