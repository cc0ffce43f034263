"""`train --auto`: settings from public facts, written down as if the user had given them, and what it does not know."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch

from sfumato.engine.checkpoint import Checkpoint
from sfumato.pieces.sampler import parse_sampler
from sfumato.run.folder import load as load_run
from tests.cli.conftest import Command
from tests.data.test_usps_and_domains import write_libsvm

MODULE = """
import torch

def client(number):
    generator = torch.Generator().manual_seed(number)
    x = torch.randn(6, 3, generator=generator)
    return x, (x.sum(1) > 0).long()

def one_more(number):
    x, y = client(number)
    return torch.cat([x, x[:1]]), torch.cat([y, y[:1]])

def pair():
    x = torch.randn(400, 3, generator=torch.Generator().manual_seed(0))
    return x, (x.sum(1) > 0).long()
"""


def asked(folder: str) -> dict[str, Any]:
    return tomllib.loads((Path(folder) / "run.toml").read_text())


def found(folder: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads((Path(folder) / "run.json").read_text())
    return answer


def same(first: str, second: str) -> bool:
    one, two = (load_run(Path(name)).parameters() for name in (first, second))
    return all(torch.equal(p, q) for p, q in zip(one, two, strict=True))


def test_a_newcomer_gets_settings_that_are_written_down_and_can_be_gone_on_with(sfumato: Command) -> None:
    answer = sfumato("train", "--auto", "--epsilon", "4", "--seed", "0", "--rounds", "20", "--out", "auto")
    assert answer.status == 0, answer.err
    said = answer.out.splitlines()[0]
    request = asked("auto")
    assert said.startswith("auto: --features ") and " --model logistic " in said
    assert request["data"]["features"] in said and request["model"]["name"] == "logistic" and "auto" not in request
    assert "--rounds" not in said, "given, so not chosen"
    assert {"sample", "clip", "batch_size", "lr", "server_optimizer", "server_lr"} <= set(request["options"])
    for name, value in request["options"].items():
        assert f"--{name.replace('_', '-')} {value}" in said
    assert found("auto")["epsilon"] <= 4.0 and "(4, 1e-05)-differential privacy" in answer.out
    assert found("auto")["accuracy"] > 0.8

    words = ["--features", request["data"]["features"], "--seed", "0", "--epsilon", "4", "--rounds", "20"]
    for name, value in request["options"].items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    assert sfumato("train", *words, "--quiet", "--out", "typed").status == 0
    typed = asked("typed")
    assert all(typed[table] == request[table] for table in ("rounds", "data", "model", "options")), "as it was said"
    answer = sfumato("train", "--config", "auto/run.toml", "--quiet", "--out", "config")
    assert answer.status == 0 and same("auto", "config"), answer.err
    assert sfumato("evaluate", "auto").status == 0


@pytest.mark.parametrize("recipe", ["dp-fedavg", "dp-sgd", "dp-fedsam"])
def test_it_goes_on_without_auto(sfumato: Command, recipe: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options = [recipe, "--auto", "--rounds", "4", "--epsilon", "4", "--delta", "1e-3", "--seed", "0", "--quiet"]
    assert sfumato("train", *options, "--out", "whole").status == 0
    write = Checkpoint.write

    def interrupted(self: Checkpoint, *given: Any, **more: Any) -> None:
        write(self, *given, **more)
        if self.round == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "write", interrupted)
        assert sfumato("train", *options, "--out", "parts").status == 130
    before = asked("parts")
    assert sfumato("train", "--resume", "parts", "--quiet").status == 0
    assert found("parts")["rounds"] == 4 and same("whole", "parts")
    assert all(before[table] == asked("parts")[table] for table in ("data", "model", "options"))
    answer = sfumato("train", "--resume", "parts", "--rounds", "5", "--quiet")
    assert answer.status == 3 and "budget" in answer.err, "the noise is that of four rounds"


def test_central_training_hides_records_with_the_number_that_anybody_can_count(sfumato: Command) -> None:
    answer = sfumato("train", "dp-sgd", "--auto", "--epsilon", "2", "--out", "run")
    assert answer.status == 0, answer.err
    assert asked("run")["options"]["records"] == 1400 and "for each record, add/remove" in answer.out
    assert "--batch everyone" in answer.out and found("run")["accuracy"] > 0.88


def test_what_is_given_stays_and_the_rest_goes_with_it(sfumato: Command) -> None:
    common = ["--auto", "--epsilon", "2", "--quiet"]
    assert sfumato("train", *common, "--rounds", "20", "--out", "usual").status == 0
    given = ["--rounds", "20", "--clip", "0.5", "--lr", "0.3", "--features", "hog:2,unit-norm:3"]
    assert sfumato("train", *common, *given, "--out", "given").status == 0
    usual, typed = asked("usual"), asked("given")
    assert typed["data"]["features"] == "hog:2,unit-norm:3" and typed["rounds"] == 20
    assert (typed["options"]["clip"], typed["options"]["lr"]) == (0.5, 0.3)
    assert typed["options"]["server_lr"] == pytest.approx(2 * usual["options"]["server_lr"], rel=0.01)
    set_so = ["--set", "rounds=20", "--set", "options.clip=0.5"]
    assert sfumato("train", *common, *set_so, "--out", "set").status == 0
    assert asked("set")["options"]["server_lr"] == typed["options"]["server_lr"]
    steps = sfumato("train", *common, "--rounds", "20", "--steps", "2", "--out", "steps")
    assert steps.status == 0 and asked("steps")["options"]["steps"] == 2 and "epochs" not in asked("steps")["options"]
    epochs = sfumato("train", *common, "--rounds", "20", "--epochs", "2", "--out", "epochs")
    assert (
        epochs.status == 0 and asked("epochs")["options"]["epochs"] == 2 and not asked("epochs")["options"].get("steps")
    )


def test_records_set_aside_or_of_another_set_become_a_basis(sfumato: Command, tmp_path: Path) -> None:
    common = ["--auto", "--epsilon", "4", "--rounds", "2", "--clients", "100"]
    answer = sfumato("train", *common, "--public-records", "300", "--out", "aside")
    assert answer.status == 0 and ",pca:" in answer.out, answer.err
    assert "the records of digits/public are public: nothing hides them" in answer.out
    write_libsvm(tmp_path / "usps")
    usps = ["--public", "usps", "--data-dir", str(tmp_path)]
    answer = sfumato("train", *common, *usps, "--out", "other")
    assert answer.status == 2 and "records of shape (1, 16, 16), is none of records of shape (1, 8, 8)" in answer.err
    answer = sfumato("train", *common, *usps, "--features", "resize:16,pca:5,unit-norm:3", "--out", "other")
    assert answer.status == 0 and "the records of usps/train are public: nothing hides them" in answer.out


@pytest.mark.parametrize("words", ["client --clients 60", "pair --records 400"])
def test_own_data_are_declared_and_never_looked_at(hers: Command, words: str) -> None:
    recipe = "dp-sgd" if "pair" in words else "dp-fedavg"
    options = ["--auto", "--epsilon", "3", "--outputs", "2", "--seed", "0", "--rounds", "9", "--quiet", "--data"]
    answer = hers("train", recipe, *options, *f"hers:{words}".split(), "--out", "run")
    assert answer.status == 0, answer.err
    if "client" in words:
        assert (
            hers(
                "train", recipe, *options, *f"hers:{words}".replace("client ", "one_more ").split(), "--out", "more"
            ).status
            == 0
        )
        first, second = asked("run"), asked("more")
        assert (first["options"], first["rounds"]) == (second["options"], second["rounds"])


REFUSED = {
    "prifedsync": "--auto: prifedsync is none of those that it knows good settings for",
    "knn-fl": "--auto: knn-fl is none of those",
    "fedavg": "--auto: fedavg is none of those",
    "--config there.toml": "--config there.toml holds settings already, which --auto would choose",
    "--resume somewhere": "no other option but --rounds, --ray, --workers, --quiet and --json",
    "--noise-multiplier 1": "--auto chooses for one budget. Give --epsilon",
    "--unproven": "no --noise-multiplier, --budgets or --unproven",
    "--budgets there.toml": "--auto chooses for one budget",
    "--set epsilon=none": "--noise-multiplier",
    "--model mlp": "--model mlp: --auto knows good settings of a linear model on features",
    "--features hog:2": "--features hog:2: --auto knows learning rates for features of one norm only. End them with unit-norm:3",
    "--features unit-norm,hog:2": "End them with unit-norm:3",
    "--features pca:5,unit-norm": "a basis learnt from clients' records tells of them",
    "--seconds 0": "--seconds 0: how long to train, a number above 0",
    "--seconds -1": "--seconds -1: how long to train",
    "--seconds nan": "--seconds nan: how long to train",
    "--seconds inf": "--seconds inf: how long to train",
    "--seconds soon": "--seconds soon",
    "--server-optimizer adam": "--server-optimizer adam: --auto knows learning rates of sgd and momentum. Give --server-lr too",
    "dp-sgd --optimizer adam": "--optimizer adam: --auto knows learning rates of sgd and momentum. Give --lr too",
    "--server-optimizer adm": "Did you mean 'adam'",
    "--sample poison:0.1": "poisson:RATE",
    "--sample fixed:500": "size=500",
    "--clip -1": "clip norm=-1",
    "--clip nan": "clip norm=nan",
    "--set options.clip=wide": "options.clip='wide': a number is needed",
    "dp-sgd --momentum 1": "momentum=1",
    "--delta 1": "delta=1",
    "--epsilon 0": "epsilon=0",
    "--public digits": "hold the same records",
}  # fmt: skip


@pytest.mark.parametrize("words", REFUSED)
def test_it_is_refused_in_a_sentence(words: str, sfumato: Command) -> None:
    Path("there.toml").write_text("[default]\nepsilon = 1.0\ndelta = 1e-3\n" if "budgets" in words else "rounds = 3\n")
    status, out, err = sfumato("train", *words.split(), "--auto")
    assert (status, out) == (2, "") and REFUSED[words] in err, err
    assert err.startswith("sfumato: ") and "foresee" not in err and not Path("runs").exists()


def test_a_time_without_auto_is_refused(sfumato: Command) -> None:
    for seconds in ("5", "0"):
        answer = sfumato("train", "--seconds", seconds)
        assert answer.status == 2 and f"--seconds {seconds}: only --auto plans for a time" in answer.err


@pytest.mark.data
def test_less_time_is_less_work(sfumato: Command) -> None:
    data = ["--data", "mnist", "--auto", "--features", "resize:8,pixels,unit-norm:3", "--epsilon", "2", "--quiet"]
    for seconds in ("0.3", "0.01"):
        answer = sfumato("train", "dp-sgd", *data, "--seconds", seconds, "--out", seconds)
        assert answer.status == 0, answer.err
    long, short = (asked(seconds) for seconds in ("0.3", "0.01"))
    assert long["rounds"] >= short["rounds"]
    work = [one["rounds"] * parse_sampler(one["options"]["batch"]).expected(60_000) for one in (long, short)]
    assert work[0] > 10 * work[1]


def test_explain_tells_what_would_be_chosen_and_why(sfumato: Command) -> None:
    answer = sfumato(
        "explain", "dp-fedavg", "--auto", "--epsilon", "2", "--clients", "200", "--records-per-client", "7"
    )
    assert answer.status == 0, answer.err
    assert (
        "data.features = scattering:1,group-norm:9,unit-norm:3" in answer.out
        and "No record was looked at" in answer.out
    )
    assert "options.server_lr" in answer.out and "it grows with epsilon" in answer.out
    trained = sfumato("train", "--auto", "--epsilon", "2", "--rounds", "2", "--quiet", "--out", "a")
    assert trained.status == 0
    said = sfumato("explain", "dp-fedavg", "--auto", "--epsilon", "2", "--rounds", "2", "--clients", "200")
    lr = next(line.split(" = ")[1].split()[0] for line in said.out.splitlines() if "options.server_lr" in line)
    assert f"server_lr = {lr}\n" in Path("a/run.toml").read_text()


def test_options_of_data_without_auto_are_refused_by_explain(sfumato: Command) -> None:
    answer = sfumato("explain", "dp-fedavg", "--public", "mnist")
    assert answer.status == 2 and "--auto" in answer.err
