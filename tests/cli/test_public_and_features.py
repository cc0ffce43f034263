"""`--public`, `--test-data` and `--features`: what is trained and tested on, again after a resume, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from sfumato.data.load import load
from sfumato.features import parse_features
from sfumato.run.folder import load as load_run
from sfumato.run.prepare import prepare
from sfumato.run.request import Request
from tests.data.files import play, write_play
from tests.data.test_usps_and_domains import write_libsvm

from .conftest import SMALL, Command


@pytest.fixture
def usps_folder(tmp_path: Path) -> Path:
    """A folder with a small USPS: 23 digits of 16x16."""
    write_libsvm(tmp_path / "usps")
    return tmp_path


def test_a_run_on_features_is_resumed_evaluated_and_loaded(sfumato: Command) -> None:
    options = [*SMALL[2:], "--features", "hog:2,unit-norm", "--seed", "0", "--quiet"]
    assert sfumato("train", *options, "--rounds", "1", "--out", "a").status == 0
    assert sfumato("train", *options, "--rounds", "2", "--out", "b").status == 0
    assert sfumato("train", "--resume", "a", "--rounds", "2", "--quiet").status == 0
    summary = json.loads(Path("a/run.json").read_text())
    assert (summary["features"], summary["input_shape"], summary["public"]) == ("hog:2,unit-norm", [324], None)
    first, second = (load_run(Path(name)) for name in "ab")
    assert all(torch.equal(p, q) for p, q in zip(first.parameters(), second.parameters(), strict=True))
    said = json.loads(sfumato("evaluate", "a", "--json").out)
    assert said["accuracy"] == summary["accuracy"]
    features, digits = parse_features("hog:2,unit-norm"), load("digits").unscaled
    right = first(features(digits.test.records.x)).argmax(1) == digits.test.records.y
    assert said["accuracy"] == pytest.approx(float(right.double().mean()))


def test_another_data_set_is_tested_on_in_its_own_shape(sfumato: Command, usps_folder: Path) -> None:
    options = ["--test-data", "usps", "--data-dir", str(usps_folder), "--quiet", "--out", "a"]
    answer = sfumato("train", *SMALL, *options)
    assert answer.status == 0, answer.err
    summary = json.loads(Path("a/run.json").read_text())
    assert summary["input_shape"] == [1, 16, 16] and summary["counts"] == {"train": 1400, "test": 11}
    said = json.loads(sfumato("evaluate", "a", "--json").out)
    test = load("usps", usps_folder).unscaled.test.records
    right = load_run(Path("a"))(test.x).argmax(1) == test.y
    assert said["accuracy"] == summary["accuracy"] == pytest.approx(float(right.double().mean()))


def test_voters_are_asked_about_a_public_domain_and_tested_on_it(sfumato: Command, usps_folder: Path) -> None:
    options = ["--public", "usps", "--data-dir", str(usps_folder), "--queries", "9", "--quiet", "--out", "a"]
    answer = sfumato("train", "knn-fl", "--clients", "40", "--stddev", "9", *options)
    assert answer.status == 0, answer.err
    summary = json.loads(Path("a/run.json").read_text())
    assert summary["input_shape"] == [1, 16, 16] and summary["counts"] == {"train": 1400, "public": 16, "test": 7}
    assert sfumato("evaluate", "a").status == 0


def test_a_basis_is_learnt_from_public_records_and_again_when_a_run_is_resumed(
    sfumato: Command, usps_folder: Path
) -> None:
    words = "resize:16,scattering,group-norm,pca:9,unit-norm"
    public = ["--public", "usps", "--data-dir", str(usps_folder), "--features", words]
    options = [*SMALL[2:], *public, "--seed", "0", "--quiet"]
    answer = sfumato("train", *options, "--rounds", "1", "--out", "a")
    assert answer.status == 0, answer.err
    assert sfumato("train", "--resume", "a", "--rounds", "2", "--quiet").status == 0
    assert sfumato("train", *options, "--rounds", "2", "--out", "b").status == 0
    summary = json.loads(Path("a/run.json").read_text())
    assert summary["input_shape"] == [9] and summary["counts"] == {"train": 1400, "test": 397, "public": 12}
    assert "the records of usps/train are public: nothing hides them" in summary["guarantee"]
    first, second = (load_run(Path(name)) for name in "ab")
    assert all(torch.equal(p, q) for p, q in zip(first.parameters(), second.parameters(), strict=True))
    assert sfumato("evaluate", "a").status == 0


def test_public_data_reach_the_recipe_with_their_pictures(usps_folder: Path) -> None:
    request = Request(recipe="udp-fl", options={"aggregate": "mode-connectivity", "noise_multiplier": 1.0})
    for key, value in (("public", "usps"), ("folder", str(usps_folder)), ("features", "pixels"), ("clients", 10)):
        request = request.with_value(f"data.{key}", value)
    prepared = prepare(request)
    public = prepared.round.aggregate.public  # type: ignore[attr-defined]
    assert public.name == "usps/public" and public.records.x.shape == (16, 256)
    assert torch.equal(public.pictures.flatten(1), public.records.x)
    assert prepared.test is not None and prepared.test.records.x.shape == (7, 256)
    client = prepared.population.client(3)
    assert client.train.x.shape == (7, 256) and 0.0 <= float(client.train.x.min()) <= float(client.train.x.max()) <= 1.0
    plain = prepare(Request().with_value("data.clients", 10)).population
    assert prepared.population.identity == plain.identity


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--public", "digits", "--public-records", "100"], "exclude each other"),
        (["--public", "mnistt"], "Did you mean 'mnist'"),
        (["--public", "digits"], "hold the same records"),
        (["--features", "hogg"], "Did you mean 'hog'"),
        (["--features", "hog:5"], "have not 2x2 cells"),
        (["--features", "scattering:4"], "8x8 pixels are smaller than 16x16"),
        (["--features", "scattering,group-norm:5"], "81 channels cannot be parted into 5 equal groups"),
        (["--features", "pca:5"], "a basis learnt from clients' records tells of them"),
        (["--features", "pca:65", "--public-records", "100"], "have at most 64 directions"),
        (["--public-records", "100"], "--public-records 100: nothing here has a use for public records"),
        (["--public-records", "100", "--features", "hog:2"], "--public-records 100: nothing here has a use for public"),
        (["--test-data", "digits"], "--test-data digits: digits has a public test split of its own"),
        (["--test-data", "mnistt"], "--test-data mnistt: digits has a public test split of its own"),
        (["--features", "unit-norm:0"], "unit-norm"),
    ],
)
def test_what_cannot_be_is_refused(sfumato: Command, options: list[str], said: str) -> None:
    answer = sfumato("train", *SMALL, *options, "--out", "a")
    assert answer.status != 0 and said in answer.err and not Path("a").exists()


USPS = {
    "--public usps": "--public usps: nothing here has a use for public records. Add pca to --features, e.g. pca:20, or leave it "
    "out; to be tested on usps, give --test-data usps.",
    "--public usps --features hog:2": "--public usps: nothing here has a use for public records.",
    "--public usps --features pca:5": "records of shape (1, 8, 8), and the basis is of usps/train's of shape (1, 16, 16)",
    "--public usps --test-data usps --features resize:8,pca:5": "",
    "--public usps --public-records 20 --features pca:5": "--public usps and --public-records 20 exclude each other",
    "--public-records 20 --test-data usps --features pca:5": "",
    "--test-data usps --outputs 12": "--test-data usps has 10 outputs for classification; digits has 12",
    "--data mine:flat --outputs 10 --test-data usps": "records of shape (3,) cannot be brought to (1, 16, 16)",
    "--data mine:pictures --outputs 10 --test-data usps": "",
    "--data mine:pictures --outputs 10 --public usps --features resize:16,pca:5": "",
    "--data mine:pictures --outputs 10 --public usps --features pca:5": "records of shape (1, 8, 8), and the basis is of usps",
}  # fmt: skip
MINE = """
import torch

def flat(number):
    return torch.ones(2, 3), torch.zeros(2, dtype=torch.int64)

def pictures(number):
    return torch.ones(2, 1, 8, 8), torch.zeros(2, dtype=torch.int64)
"""


@pytest.mark.parametrize("words", USPS)
def test_it_runs_or_is_refused_before_anything_is_spent(words: str, sfumato: Command, usps_folder: Path) -> None:
    Path("mine.py").write_text(MINE)
    answer = sfumato("train", *SMALL, *words.split(), "--data-dir", str(usps_folder), "--quiet", "--out", "a")
    said = USPS[words]
    if said:
        assert answer.status == 2 and said in answer.err and not Path("a").exists()
    else:
        assert answer.status == 0, answer.err


def test_text_gives_no_basis(sfumato: Command, tmp_path: Path) -> None:
    write_play(tmp_path, play())
    answer = sfumato("train", *SMALL, "--public", "shakespeare", "--features", "pca:5", "--data-dir", str(tmp_path))
    assert answer.status == 2 and "--public shakespeare: no basis is learnt from text" in answer.err
