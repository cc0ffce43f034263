"""Central training from the command line: what a newcomer types, what is refused, and what is never counted."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.conftest import Command

MODULE = """
import torch

def records(many):
    x = torch.randn(many, 3, generator=torch.Generator().manual_seed(0))
    return x, (x.sum(1) > 0).long()

def pair():
    return records(40)

def one_more():
    return records(41)

def clients():
    return [records(20), records(20)]
"""
SHORT = ["--rounds", "4", "--seed", "1", "--quiet"]
OWN = ["--outputs", "2", "--records", "40", "--delta", "1e-3"]


def asked(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "run.toml").read_text())


def found(folder: Path) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads((folder / "run.json").read_text())
    return answer


def test_a_newcomer_trains_and_reads_a_true_guarantee(sfumato: Command) -> None:
    answer = sfumato("train", "dp-sgd", "--rounds", "100", "--out", "run")
    assert answer.status == 0, answer.err
    run = found(Path("run"))
    world, holder = (run["guarantees"]["record"][view] for view in ("world", "server"))
    assert 1.99 < world["epsilon"] <= 2.0 and world["delta"] == 1e-5 and world["headline"] in answer.out
    assert world["observer"].endswith("but not which records were drawn")
    assert holder["view"] == "the holder of the records" and "has them all, and is trusted" in holder["unproven"]
    assert holder["text"] in answer.out
    assert "the server" not in answer.out
    options = asked(Path("run"))
    assert (run["population"], run["unit"], run["relation"]) == (1, "record", "add_remove")
    assert options["options"]["records"] == 1400 and run["delta"] == 1e-5
    assert options["data"]["clients"] == 1 and options["evaluate_every"] == 2
    assert run["accuracy"] > 0.85
    page = Path("run/report.html").read_text()
    assert "Against the holder of the records" in page and "Against the server" not in page


def test_it_goes_on_for_longer_with_the_same_noise(sfumato: Command) -> None:
    assert sfumato("train", "dp-sgd", "--noise-multiplier", "3", *SHORT, "--out", "run").status == 0
    before = found(Path("run"))
    answer = sfumato("train", "--resume", "run", "--rounds", "6", "--quiet")
    assert answer.status == 0, answer.err
    assert found(Path("run"))["epsilon"] > before["epsilon"]
    assert sfumato("train", "dp-sgd", "--noise-multiplier", "3", *SHORT, "--rounds", "6", "--out", "whole").status == 0
    assert Path("run/params.safetensors").read_bytes() == Path("whole/params.safetensors").read_bytes()


def test_the_records_of_data_known_by_name_are_those_that_the_holder_gets(sfumato: Command) -> None:
    for more, records in ((["--records-per-client", "500"], 500), (["--test-fraction", "0.25"], 1050)):
        out = str(records)
        assert sfumato("train", "dp-sgd", *SHORT, *more, "--out", out).status == 0
        assert asked(Path(out))["options"]["records"] == records


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--clients", "5"], "clients=5: in dp-sgd one trusted holder has all the records"),
        (["--split", "dirichlet:0.6"], "split='dirichlet:0.6': in dp-sgd one holder has all the records"),
        (["--data", "hers:pair", "--outputs", "2"], "how many records has it? Declare it with --records"),
        (["--public-records", "100"], "--public-records 100: nothing here has a use for public records"),
        (["--optimizer", "adam", "--momentum", "0.9"], "--momentum 0.9: --optimizer adam has none"),
        (["--optimizer", "adamw"], "there is no such optimizer"),
        (["--batch", "shuffle:64"], "not drawn independently"),
        (["--sample", "poisson:0.5"], "has no option --sample"),
        (["--records", "0"], "records=0: how many records the holder has"),
        (["--micro-batch", "-1"], "micro_batch"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_what_makes_no_sense_is_refused_in_one_sentence(hers: Command, words: list[str], said: str) -> None:
    answer = hers("train", "dp-sgd", *SHORT, *words, "--out", "run")
    assert answer.status == 2 and said in answer.err, answer.err
    assert not Path("run").exists()


def test_budgets_of_clients_are_refused(sfumato: Command) -> None:
    Path("b.toml").write_text("[default]\nepsilon = 1.0\ndelta = 1e-3\n")
    answer = sfumato("train", "dp-sgd", "--budgets", "b.toml", *SHORT, "--out", "run")
    assert answer.status == 2 and "one budget holds for each. Give --epsilon" in answer.err, answer.err


@pytest.mark.parametrize("name", ["pair", "clients"])
def test_own_data_are_one_pair_or_many_clients_whose_records_come_together(hers: Command, name: str) -> None:
    answer = hers("train", "dp-sgd", "--data", f"hers:{name}", *OWN, *SHORT, "--out", "run")
    assert answer.status == 0, answer.err
    assert found(Path("run"))["population"] == 1


def test_a_folder_of_own_data(sfumato: Command) -> None:
    Path("mine").mkdir()
    key = np.random.default_rng(0)
    for part in "ab":
        np.savez(f"mine/{part}.npz", x=key.normal(size=(20, 3)).astype("float32"), y=key.integers(0, 2, 20))
    answer = sfumato("train", "dp-sgd", "--data", "mine", *OWN, *SHORT, "--out", "run")
    assert answer.status == 0, answer.err


def test_nothing_of_own_data_is_counted(hers: Command) -> None:
    """One record more changes the model, and no other number that is written down."""
    for name in ("pair", "one_more"):
        assert hers("train", "dp-sgd", "--data", f"hers:{name}", *OWN, *SHORT, "--out", name).status == 0
    texts = [(Path(name) / "run.toml").read_text().replace(name, "NAME") for name in ("pair", "one_more")]
    assert texts[0] == texts[1]
    runs = [found(Path(name)) | {"data": "NAME", "ledger_head": ""} for name in ("pair", "one_more")]  # has a random id
    assert runs[0] == runs[1]


def test_it_goes_with_features_exact_noise_a_ledger_and_unproven(sfumato: Command) -> None:
    small = ["--batch", "poisson:0.01", *SHORT]
    assert sfumato("train", "dp-sgd", "--features", "hog:4,unit-norm", *small, "--out", "features").status == 0
    assert found(Path("features"))["features"] == "hog:4,unit-norm"
    assert sfumato("train", "dp-sgd", "--secure", *small, "--out", "secure").status == 0
    exact = found(Path("secure"))
    assert exact["epsilon"] == found(Path("features"))["epsilon"]
    assert "exact real-number arithmetic (floating point is not covered)" not in exact["guarantee"]
    plain = [word for word in small if word not in ("--seed", "1")]
    for out in ("first", "second"):
        answer = sfumato("train", "dp-sgd", "--noise-multiplier", "2", "--ledger", "l.sqlite", *plain, "--out", out)
        assert answer.status == 0, answer.err
    said = sfumato("ledger", "l.sqlite", "--delta", "1e-5")
    assert said.status == 0 and "8 rounds" in said.out, said.out
    answer = sfumato("train", "dp-sgd", "--unproven", "--noise-multiplier", "1", *small, "--out", "unproven")
    assert answer.status == 0 and found(Path("unproven"))["epsilon"] is None


def test_a_config_needs_no_number_of_clients(sfumato: Command) -> None:
    Path("c.toml").write_text('schema = 1\nrecipe = "dp-sgd"\nrounds = 2\nepsilon = 1.0\n')
    answer = sfumato("train", "--config", "c.toml", "--quiet", "--out", "run")
    assert answer.status == 0, answer.err
    assert found(Path("run"))["population"] == 1


def test_explain_speaks_of_the_holder(sfumato: Command) -> None:
    answer = sfumato("explain", "dp-sgd")
    assert answer.status == 0, answer.err
    assert "one holder:" in answer.out and "the holder of the records                nothing is proven" in answer.out
    assert sfumato("explain", "dp-sgd", "--clients", "7").status == 2
