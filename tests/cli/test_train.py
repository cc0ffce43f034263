"""`sfumato train`: what it writes, what it says, and what it keeps to itself."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from sfumato.cli import run
from sfumato.guarantee import PUBLIC
from sfumato.ledger.ledger import Ledger
from sfumato.recipes import find
from tests.cli.conftest import ROUND, SMALL, Command

KEYS = [
    "schema",
    "recipe",
    "data",
    "model",
    "population",
    "rounds",
    "epsilon",
    "epsilon_server",
    "delta",
    "accountant",
    "unit",
    "relation",
    "noise_multiplier",
    "stddev",
    "clip",
    "accuracy",
    "versions",
    "threads",
    "unproven",
]


def summary(folder: Path | str) -> dict[str, Any]:
    return json.loads((Path(folder) / "run.json").read_text())  # type: ignore[no-any-return]


def lines(folder: Path | str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()]


def test_a_run_folder_has_every_file_and_every_key(finished: Path) -> None:
    names = {path.name for path in finished.iterdir()}
    wanted = {"run.toml", "run.json", "metrics.jsonl", "ledger.sqlite", "params.safetensors", "report.html"}
    assert names == wanted | {"run.lock", "diagnostics-not-private"}
    found = summary(finished)
    assert set(KEYS) <= set(found)
    assert found["recipe"] == "dp-fedavg" and found["population"] == 40 and found["rounds"] == 3
    assert found["unit"] == "client" and found["relation"] == "add_remove" and found["noise_multiplier"] == 2.0
    assert found["delta"] == 1e-5 and found["clip"] == 1.0 and found["stddev"] == pytest.approx(0.2)
    assert found["epsilon"] > 0 and found["epsilon_server"] is None
    assert found["counts"] == {"train": 1400, "test": 397}
    assert set(found["versions"]) == {"sfumato", "torch", "python"}
    assert [line["round"] for line in lines(finished)] == [1, 2, 3]
    epsilons = [line["epsilon"] for line in lines(finished)]
    assert epsilons == sorted(epsilons) and epsilons[-1] == found["epsilon"]
    assert lines(finished)[-1]["accuracy"] == found["accuracy"] == found["metrics"]["accuracy"]


def test_the_report_is_self_contained_and_says_the_guarantee(finished: Path) -> None:
    page = (finished / "report.html").read_text()
    assert "<svg" in page and "differential privacy" in page
    assert 'src="http' not in page and "<script" not in page


def test_the_request_and_what_came_of_it(finished: Path) -> None:
    found = tomllib.loads((finished / "run.toml").read_text())
    assert found["rounds"] == 3 and found["data"]["clients"] == 40 and "epsilon" not in found
    assert found["options"] == {"noise_multiplier": 2.0, "epochs": 1, "clip": 1.0, "sample": "poisson:0.25"}
    assert found["resolved"]["divisor"] == 10.0 and found["resolved"]["population"] == 40


def test_diagnostics_stay_in_their_own_folder(finished: Path, sfumato: Command) -> None:
    private = finished / "diagnostics-not-private"
    assert private.stat().st_mode & 0o777 == 0o700
    rounds = [json.loads(line) for line in (private / "rounds.jsonl").read_text().splitlines()]
    assert [line["round"] for line in rounds] == [1, 2, 3] and all(len(r["norms"]) == r["cohort"] for r in rounds)
    for name in ("run.json", "metrics.jsonl", "report.html"):
        content = (finished / name).read_text()
        assert "norms" not in content and '"cohort"' not in content
    assert sfumato("train", *SMALL, "--quiet", "--out", "without").status == 0
    assert not (Path("without") / private.name).exists()


def test_plain_lines_and_a_summary_where_there_is_no_terminal(sfumato: Command) -> None:
    status, out, err = sfumato("train", *SMALL, "--epsilon", "9")
    assert status == 0
    assert err.splitlines()[0].startswith("round 1/3  accuracy 0.") and "epsilon" in err and "\x1b" not in err + out
    assert err.splitlines()[-1].startswith("round 3/3")
    assert "differential privacy" in out and "No proven guarantee for each client, against the server" in out
    assert "report: runs/dp-fedavg-digits-1/report.html" in out
    assert sfumato("train", *SMALL, "--quiet") == (0, "", "")
    assert Path("runs/dp-fedavg-digits-2/report.html").exists()


def test_json_is_one_document_on_stdout(sfumato: Command) -> None:
    status, out, err = sfumato("train", *SMALL, "--json", "--out", "run")
    assert (status, err) == (0, "")
    assert json.loads(out) == summary("run")


def test_config_set_and_resume(sfumato: Command) -> None:
    first = sfumato("train", *SMALL, "--seed", "0", "--quiet", "--out", "runs/first")
    assert first.status == 0
    words = ["--config", "runs/first/run.toml", "--set", "rounds=4", "--set", "options.lr=0.1", "--out", "runs/second"]
    assert sfumato("train", *words, "--quiet").status == 0
    assert summary("runs/second")["rounds"] == 4 and len(lines("runs/second")) == 4
    asked = tomllib.loads(Path("runs/second/run.toml").read_text())
    assert asked["options"]["lr"] == 0.1 and asked["seed"] == 0 and asked["data"]["clients"] == 40
    before = Path("runs/first/params.safetensors").read_bytes()
    again = sfumato("train", "--resume", "runs/first")
    assert again.status == 0 and "simulation: no one knows the seed" in again.out
    assert Path("runs/first/params.safetensors").read_bytes() == before and len(lines("runs/first")) == 3
    assert Ledger(Path("runs/first/ledger.sqlite"), None).count == 3


def test_an_interrupted_epsilon_can_be_taken_out_of_a_config(sfumato: Command) -> None:
    Path("run.toml").write_text("epsilon = 2.0\nrounds = 2\n[data]\nclients = 40\n")
    refused = sfumato("train", "fedavg", "--config", "run.toml")
    assert refused.status == 2 and "--set epsilon=none" in refused.err
    assert sfumato("train", "fedavg", "--config", "run.toml", "--set", "epsilon=none", "--quiet").status == 0


def test_an_epsilon_that_was_taken_away_does_not_come_back(sfumato: Command) -> None:
    Path("run.toml").write_text("epsilon = 2.0\nrounds = 2\n[data]\nclients = 40\n")
    taken = ["--config", "run.toml", "--set", "epsilon=none", "--quiet"]
    for name, words in {"noise": ["--set", "options.noise_multiplier=1.0"], "unproven": ["--unproven"]}.items():
        assert sfumato("train", *taken, *words, "--out", name) == (0, "", "")
        assert "epsilon" not in tomllib.loads((Path(name) / "run.toml").read_text())
    alone = sfumato("train", *taken)
    assert alone.status == 2 and "--noise-multiplier" in alone.err


def test_a_delta_that_promises_nothing_is_cautioned_about(sfumato: Command) -> None:
    caution = "caution: delta 0.0026 is above 0.0025 = 1/(10 n) for n = 40 clients."
    status, out, err = sfumato("train", *SMALL, "--delta", "0.0026")
    assert status == 0 and caution in out and err.startswith(caution)
    assert sfumato("train", *SMALL, "--delta", "0.0026", "--quiet") == (0, "", "")
    assert sfumato("train", *SMALL, "--delta", "0.0026", "--json").err == ""
    _, out, err = sfumato("train", *SMALL, "--delta", "0.0025")
    assert "caution" not in out + err


@pytest.mark.parametrize("more", [[], ["--epsilon", "1.5"], ["--features", "private-pca:4:0.5:9"]])
def test_released_files_have_one_time(sfumato: Command, more: list[str]) -> None:
    """Apart they would say how long a round took, and so how many were drawn."""
    sfumato("train", *SMALL, *more, "--keep-releases", "--diagnostics", "--out", "run")
    private = {"checkpoint.safetensors", "run.lock", "diagnostics-not-private", "basis"}
    shown = [path for path in Path("run").rglob("*") if not private & set(path.parts)]
    assert {"report.html", "metrics.jsonl", "releases", "ledger.sqlite"} <= {path.name for path in shown}
    assert len({path.stat().st_mtime_ns for path in shown}) == 1


def test_the_baseline_has_no_epsilon(sfumato: Command) -> None:
    status, out, _ = sfumato("train", "fedavg", "--rounds", "2", "--epochs", "1", "--out", "run")
    assert status == 0 and f"no proven guarantee for each client, against {PUBLIC}" in out
    found = summary("run")
    assert found["epsilon"] is None and found["unproven"] is None and found["accuracy"] > 0.3
    assert [line["epsilon"] for line in lines("run")] == [None, None]


def test_what_is_unproven_has_no_epsilon(sfumato: Command) -> None:
    status, out, _ = sfumato("train", *SMALL, "--unproven", "--out", "run")
    assert status == 0 and "(e" not in out and "No proven guarantee" in out
    found = summary("run")
    assert found["epsilon"] is None and set(found["unproven"]) == {"claimed_epsilon", "claimed_by", "paper", "step"}
    assert all(line["epsilon"] is None for line in lines("run"))
    assert "no proven guarantee" in (Path("run") / "report.html").read_text().lower()


BUDGET = ["--rounds", "6", *ROUND, "--delta", "0.01"]


def test_a_budget_stops_the_run_with_status_3(sfumato: Command) -> None:
    words = [*BUDGET, "--epsilon", "0.4", "--evaluate-every", "6", "--out", "run"]
    status, out, err = sfumato("train", *words)
    assert status == 3 and "over the budget of 0.4" in err and "accuracy" in out
    found = summary("run")
    assert 0 < found["rounds"] < 6 and 0 < found["epsilon"] <= 0.4 and found["stopped"] in err
    assert found["accuracy"] is not None, "of the final parameters, though no round was due"
    assert len(lines("run")) == found["rounds"] and (Path("run") / "report.html").exists()
    again, shown, complaint = sfumato("train", "--resume", "run", "--json")
    assert again == 3 and json.loads(shown)["rounds"] == found["rounds"] and "budget" in complaint
    assert len(lines("run")) == found["rounds"]


def test_a_run_that_goes_on_has_no_old_summary(sfumato: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sfumato("train", *BUDGET, "--epsilon", "0.4", "--out", "run").status == 3

    def killed(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sfumato.run.run.Run.finish", killed)
    assert sfumato("train", "--resume", "run").status == 130
    assert not (Path("run") / "run.json").exists()


def test_a_budget_too_small_for_one_round(sfumato: Command) -> None:
    status, _, err = sfumato("train", *BUDGET, "--epsilon", "0.01", "--out", "run")
    assert status == 3 and "round 1 would" in err
    assert summary("run")["rounds"] == 0 and summary("run")["epsilon"] == 0
    assert not (Path("run") / "metrics.jsonl").exists() and (Path("run") / "report.html").exists()


def test_evaluate_every(sfumato: Command) -> None:
    words = ["--rounds", "5", *ROUND, "--evaluate-every", "2"]
    assert sfumato("train", *words, "--quiet", "--out", "run").status == 0
    assert [line["accuracy"] is not None for line in lines("run")] == [False, True, False, True, True]
    assert [line["epsilon"] is not None for line in lines("run")] == [False, True, False, True, True]


def test_the_ledger_and_the_metrics_say_the_same(finished: Path) -> None:
    from sfumato.account import accountant
    from sfumato.account.event import Unit

    ledger = Ledger(finished / "ledger.sqlite", None)
    assert [entry.round for entry in ledger.entries()] == [0, 1, 2] and all(e.settled for e in ledger.entries())
    spent = ledger.spent(Unit.CLIENT)
    assert spent is not None
    assert accountant("auto").epsilon(spent.world, summary(finished)["delta"]) == summary(finished)["epsilon"]


def test_evaluate_and_report(finished: Path, sfumato: Command) -> None:
    status, out, _ = sfumato("evaluate", str(finished))
    assert status == 0 and f"accuracy           {summary(finished)['accuracy']:.4f}" in out
    status, out, _ = sfumato("evaluate", str(finished), "--json")
    assert status == 0 and json.loads(out)["accuracy"] == pytest.approx(summary(finished)["accuracy"])
    status, out, _ = sfumato("report", str(finished), "--out", "page.html")
    assert (status, out) == (0, "page.html\n") and "<svg" in Path("page.html").read_text()


def test_recipes_and_explain(sfumato: Command) -> None:
    status, out, _ = sfumato("recipes")
    assert status == 0 and out.startswith("dp-fedavg") and "\nfedavg " in out
    assert set(json.loads(sfumato("recipes", "--json").out)) >= {"dp-fedavg", "fedavg"}
    status, out, _ = sfumato("explain", "dp-fedavg", "--clients", "500")
    assert status == 0 and "AddNoise" in out and "against the server: nothing is proven" in out
    assert re.search(rf"  --clip {find('dp-fedavg').options['clip'].default}  +L2 norm that a whole update", out)


def test_version_and_help(sfumato: Command) -> None:
    from sfumato import __version__

    assert sfumato("--version") == (0, f"sfumato {__version__}\n", "")
    status, out, _ = sfumato("train", "--help")
    assert status == 0 and all(
        f"--{word}" in out for word in ("noise-multiplier", "records-per-client", "set", "resume")
    )
    assert "<bool>" not in out.replace("--help        <bool>", "") and "list[str]" not in out
    assert sfumato("--help").status == 0


def test_numbers_that_json_cannot_say_are_null(sfumato: Command) -> None:
    Path("wild.py").write_text(
        "import torch\nfrom sfumato import PublicData, Records\n"
        "def clients():\n    x, y = torch.ones(2, 3), torch.tensor([0, 1])\n"
        "    return [(x, y)] * 20, PublicData('test', Records(x * float('inf'), y))\n"
    )
    words = ["--data", "wild:clients", "--outputs", "2", "--clients", "20", "--rounds", "1", "--noise-multiplier", "1"]
    status, out, _ = sfumato("train", *words, "--json", "--out", "run")
    assert status == 0
    assert json.loads(out, parse_constant=pytest.fail)["metrics"]["loss"] is None


def test_two_runs_compare_side_by_side(finished: Path, sfumato: Command) -> None:
    assert sfumato("train", "fedavg", "--rounds", "2", "--epochs", "1", "--quiet", "--out", "base").status == 0
    status, out, _ = sfumato("report", str(finished), "base")
    assert (status, out) == (0, "comparison.html\n") and "fedavg" in Path("comparison.html").read_text()


MNIST = (
    "dp-fedavg --data mnist --model logistic --clients 1000 --records-per-client 50 --sample poisson:0.05 --rounds 3 "
    "--lr 0.01 --epochs 5 --batch-size 10 --clip 0.3 --epsilon 6 --delta 5e-4 --seed 0 --out runs/first"
)


@pytest.mark.data
def test_the_three_examples(sfumato: Command) -> None:
    assert sfumato("train", *MNIST.split()).status == 0
    first = summary("runs/first")
    assert first["data"] == "mnist/iid/1000x50" and first["population"] == 1000 and first["delta"] == 5e-4
    assert 5.99 < first["epsilon"] <= 6.0 and first["accuracy"] > 0.1
    words = ["--config", "runs/first/run.toml", "--set", "rounds=4", "--out", "runs/second"]
    assert sfumato("train", *words).status == 0
    assert summary("runs/second")["rounds"] == 4 and 5.99 < summary("runs/second")["epsilon"] <= 6.0
    assert summary("runs/second")["noise_multiplier"] > first["noise_multiplier"], "calibrated again"
    params = load_file("runs/first/params.safetensors")
    assert sfumato("train", "--resume", "runs/first").status == 0
    after = load_file("runs/first/params.safetensors")
    assert all(torch.equal(params[name], after[name]) for name in params)


def test_interrupted_inside_the_process_it_goes_on(sfumato: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    from sfumato.engine.checkpoint import Checkpoint

    write = Checkpoint.write

    def interrupted(self: Checkpoint, *given: Any, **more: Any) -> None:
        write(self, *given, **more)
        if self.round == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(Checkpoint, "write", interrupted)
    status, out, err = sfumato("train", *SMALL, "--out", "run")
    assert (status, out) == (130, "") and "sfumato train --resume run" in err
    assert not (Path("run") / "run.json").exists()
    assert sfumato("evaluate", "run").err == "sfumato: run holds an unfinished run. Finish it first: " + (
        "sfumato train --resume run\n"
    )
    monkeypatch.setattr(Checkpoint, "write", write)
    assert run(["train", "--resume", "run", "--quiet"]) == 0
    assert [line["round"] for line in lines("run")] == [1, 2, 3]
