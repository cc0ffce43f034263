from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sfumato import epsilon
from sfumato.commands.app import app
from sfumato.errors import SfumatoError

ACCOUNT = {
    "--noise gaussian:1.0 --sample poisson:0.05 --rounds 200 --delta 1e-5": (4.766, "add_remove", "client", 1.0),
    "--noise gaussian:2.0 --sample fixed:50/1000 --rounds 200 --delta 1e-5 --curious 0": (
        5.411,
        "replace",
        "client",
        2.0,
    ),
    "--noise gaussian:2.0 --sample fixed:50/1000 --rounds 200 --delta 1e-5": (5.417, "replace", "client", 2.0),
    "--noise gaussian:2.0 --sample fixed:50/1000 --rounds 200 --delta 1e-5 --relation add-remove --curious 0": (
        4.766,
        "add_remove",
        "client",
        2.0,
    ),
    "--unit record --noise gaussian:2.0 --batch fixed:16/600 --steps 38 --sample poisson:0.5 --rounds 194 --delta 1e-5": (
        14.524,
        "replace",
        "record",
        2.0,
    ),
    "--noise laplace:1.0 --sample poisson:0.05 --rounds 200 --delta 1e-5": (2.7933, "add_remove", "client", 1.0),
    "--noise gaussian:1.9 --sample poisson:0.1 --rounds 300 --delta 0.002 --relation replace": (
        6.252,
        "replace",
        "client",
        2.0,
    ),
    "--noise gaussian:1.0 --sample poisson:0.05 --rounds 200 --delta 1e-5 --noise-at client": (
        67.02,
        "replace",
        "client",
        2.0,
    ),
    "--noise gaussian:1.0 --sample poisson:0.05 --rounds 200 --delta 1e-5 --noise-at client --relation zero-out": (
        23.175,
        "zero_out",
        "client",
        1.0,
    ),
    "--noise gaussian:5 --rounds 100 --delta 1e-6": (10.997, "add_remove", "client", 1.0),
}
REFUSED = [
    "--noise gaussian:-1 --sample poisson:0.05 --rounds 200 --delta 1e-5",
    "--noise gaussian:nan --sample poisson:0.05 --rounds 200 --delta 1e-5",
    "--noise gaussian:0 --sample poisson:0.05 --rounds 200 --delta 1e-5",
    "--noise gaussian:x --sample poisson:0.05 --rounds 200 --delta 1e-5",
    "--noise gauss:1 --sample poisson:0.05 --rounds 200 --delta 1e-5",
    "--noise gaussian:1 --sample poisson:1.5 --rounds 200 --delta 1e-5",
    "--noise gaussian:1 --sample poisson:nan --rounds 200 --delta 1e-5",
    "--noise gaussian:1 --sample fixed:50 --rounds 200 --delta 1e-5",
    "--noise gaussian:1 --sample fixed:60/50 --rounds 200 --delta 1e-5",
    "--noise gaussian:1 --sample poisson:0.05 --rounds 0 --delta 1e-5",
    "--noise gaussian:1 --sample poisson:0.05 --rounds 1000000000 --delta 1e-5",
    "--noise gaussian:1 --sample poisson:0.05 --rounds 200 --delta 0",
    "--noise gaussian:1 --sample poisson:0.05 --rounds 200 --delta 1.5",
    "--noise gaussian:1 --sample poisson:0.05 --rounds 200 --delta nan",
    "--noise gaussian:1 --sample poisson:0.05 --rounds 200 --delta 1e-5 --relation sideways",
    "--noise gaussian:1 --sample poisson:0.05 --rounds 200 --delta 1e-5 --unit record",
    "--noise gaussian:1 --sample poisson:0.05 --rounds 200 --delta 1e-5 --accountant pdl",
    "--noise gaussian:1 --sample poisson:0.05 --rounds 200 --delta 1e-5 --accountant gdp",
    "--noise gaussian:0.1 --sample poisson:0.05 --rounds 200 --delta 1e-5 --accountant theorem",
    "--noise laplace:1 --sample poisson:0.05 --rounds 200 --delta 1e-5 --relation replace",
    "--unit record --noise gaussian:2 --batch fixed:16/600 --steps 38 --rounds 93 --delta 1e-5 --noise-at client",
    "--noise gaussian:1 --sample poisson:0.05 --rounds 20 --delta 1e-5 --noise-at client --relation add-remove",
]


def answer(command: str, words: str) -> dict[str, Any]:
    result = CliRunner().invoke(app, [command, *words.split(), "--json"])
    assert result.exit_code == 0, result.output
    return dict(json.loads(result.output))


@pytest.mark.parametrize("words", ACCOUNT)
def test_account(words: str) -> None:
    epsilon, relation, unit, sensitivity = ACCOUNT[words]
    found = answer("account", words)
    assert found["epsilon"] == pytest.approx(epsilon, rel=3e-4)
    assert (found["relation"], found["unit"], found["sensitivity"]) == (relation, unit, sensitivity)
    assert {"delta", "accountant", "noise_multiplier", "seconds", "approximations", "views", "sampling"} <= found.keys()
    for value in found["approximations"].values():
        assert "not a bound" in value["label"]
    trusted = unit == "record" or "noise-at client" in words
    assert (found["views"]["server"]["epsilon"] is not None) == trusted
    said = CliRunner().invoke(app, ["account", *words.split()]).output
    begun = [line.split(" ")[0] for line in said.splitlines()]
    for name in ("unit", "relation", "observer", "sampling", "accountant", "sensitivity", "cohort", "assumptions"):
        assert begun.count(name) == 1
    assert ("No proven guarantee" in begun_with(said)) != trusted
    amplified = ("poisson" in words and "noise-at client" not in words and unit == "client") or "fixed" in words
    assert ("must stay secret" in said) == amplified == any("stays secret" in one for one in found["assumptions"])
    assert found["guarantees"]["world"]["text"].split("\n")[3:] != [] and found["headline"] == said.splitlines()[0]


def begun_with(said: str) -> str:
    """How the paragraphs of a text begin."""
    return " / ".join(part.split(" for ")[0] for part in said.split("\n\n"))


@pytest.mark.parametrize(
    ("words", "delta"),
    [
        ("--noise gaussian:1 --sample poisson:0.05 --rounds 20", 1e-5),
        ("--noise gaussian:1 --sample fixed:50/1000 --rounds 20", 1e-5),
        ("--noise gaussian:1 --sample fixed:50/20000 --rounds 20", 5e-6),
        (
            "--unit record --noise gaussian:2 --batch fixed:16/600 --steps 38 --sample fixed:5/100 --rounds 9",
            1 / 600_000,
        ),
    ],
)
def test_without_a_delta_it_is_far_below_one_over_what_is_declared(words: str, delta: float) -> None:
    assert answer("account", words)["delta"] == delta


def test_a_delta_near_one_over_the_clients_is_cautioned_about() -> None:
    words = ["account", "--noise", "gaussian:1", "--sample", "fixed:50/1000", "--rounds", "20"]
    for delta, warned in (("1e-4", False), ("1.1e-4", True)):
        result = CliRunner().invoke(app, [*words, "--delta", delta])
        assert ("caution: " in result.stdout) == warned and result.stdout.startswith("epsilon = ")


@pytest.mark.parametrize("words", REFUSED)
def test_bad_input_gets_one_sentence(words: str) -> None:
    result = CliRunner().invoke(app, ["account", *words.split(), "--json"])
    assert result.exit_code == 2, result.output
    reason = json.loads(result.output)["refused"]
    assert "\n" not in reason
    assert "Traceback" not in reason
    assert reason[-1] in ".?"
    with pytest.raises(SfumatoError):
        CliRunner().invoke(app, ["account", *words.split()], catch_exceptions=False)


def test_the_theorem_is_looser_than_auto() -> None:
    words = "--noise gaussian:4 --sample fixed:50/1000 --rounds 200 --delta 1e-5"
    theorem = answer("account", words + " --accountant theorem")
    assert "theorem" in theorem["accountant"]
    assert theorem["epsilon"] > answer("account", words)["epsilon"]


@pytest.mark.parametrize(
    ("words", "solved", "key", "value"),
    [
        (
            "--clients 1000 --sample poisson:0.05 --rounds 30 --epsilon 6 --delta 5e-4",
            "noise",
            "noise_multiplier",
            0.5551,
        ),
        (
            "--clients 1000 --sample poisson:0.05 --rounds 30 --noise gaussian:0.5551 --delta 5e-4",
            "epsilon",
            "epsilon",
            6.0,
        ),
        (
            "--clients 1000 --sample poisson:0.05 --epsilon 6.01 --noise gaussian:0.5551 --delta 5e-4",
            "rounds",
            "rounds",
            30,
        ),
        ("--clients 1000 --rounds 30 --epsilon 6.01 --noise gaussian:0.5551 --delta 5e-4", "sample", "cohort", 50),
        (
            "--sample poisson:50 --rounds 30 --epsilon 6.01 --noise gaussian:0.5551 --delta 5e-4",
            "clients",
            "clients",
            1000,
        ),
    ],
)
def test_plan_solves_for_what_is_open(words: str, solved: str, key: str, value: float) -> None:
    found = answer("plan", words + " --no-table")
    assert found["solved"] == solved
    assert found[key] == pytest.approx(value, rel=5e-3)
    if "--epsilon" in words:
        assert found["epsilon"] <= float(words.split("--epsilon ")[1].split()[0])


@pytest.mark.parametrize("clients", [100, 1000, 5000])
@pytest.mark.parametrize("given", ["--epsilon 2", "--noise gaussian:1.3"])
def test_what_plan_prints_is_a_bound_as_it_is_printed(clients: int, given: str) -> None:
    """Epsilon, delta and noise are rounded up: taken as they stand, they are proven."""
    words = f"--clients {clients} --sample poisson:0.1 --rounds 100 --no-table {given}"
    first = CliRunner().invoke(app, ["plan", *words.split()]).output.split("\n")[0]
    found = re.match(r"(noise gaussian:|epsilon )(\S+): epsilon = (\S+) at delta = (\S+) for each client", first)
    assert found is not None, first
    solved, value, told, delta = found[1], *map(float, found.groups()[1:])
    noise = value if solved.startswith("noise") else 1.3
    cost = epsilon(noise_multiplier=noise, delta=delta, steps=100, rate=0.1)
    assert cost <= told and (solved.startswith("noise") or cost <= value)


def test_plan_shows_what_changes_would_buy() -> None:
    found = answer(
        "plan", "--clients 1000 --sample poisson:0.05 --rounds 30 --epsilon 6 --delta 5e-4 --dimension 10000"
    )
    noise = {one["change"]: one["noise"] for one in found["alternatives"]}
    assert noise["half the rounds"] < found["noise_multiplier"] < noise["twice the cohort"]
    assert noise["twice the clients, same cohort"] < found["noise_multiplier"] < noise["the accountant rdp"]
    assert found["signal_to_noise"] == pytest.approx(50 / found["noise_multiplier"] / 100)
    twice = next(one for one in found["alternatives"] if one["change"] == "twice the cohort")
    assert twice["signal"] == pytest.approx(2 * found["noise_multiplier"] / twice["noise"])
    unknown = answer("plan", "--clients 1000 --sample poisson:0.05 --rounds 30 --epsilon 6 --delta 5e-4")
    assert unknown["signal_to_noise"] is None, "without a dimension nothing is known of the noise's length"
    assert [one["signal"] for one in unknown["alternatives"]] == [one["signal"] for one in found["alternatives"]]
    assert found["epsilon"] == pytest.approx(6, rel=1e-3)
    assert (
        "for the same epsilon"
        in CliRunner()
        .invoke(app, ["plan", "--clients", "1000", "--sample", "fixed:50", "--rounds", "5", "--epsilon", "6"])
        .output
    )


@pytest.mark.parametrize(
    "words",
    [
        "--clients 1000 --sample poisson:0.05 --delta 1e-5",
        "--clients 1000 --sample poisson:0.05 --rounds 3 --epsilon 1 --noise gaussian:1 --delta 1e-5",
        "--clients 1000 --sample poisson:0.05 --epsilon 0.001 --noise gaussian:0.3 --delta 1e-9",
        "--clients 1000 --sample fixed:50/900 --rounds 3 --epsilon 1 --delta 1e-5",
        "--clients 1000 --sample poisson:0.05 --rounds 3 --epsilon -1 --delta 1e-5",
    ],
)
def test_plan_refuses_in_one_sentence(words: str) -> None:
    result = CliRunner().invoke(app, ["plan", *words.split(), "--json"])
    assert result.exit_code == 2
    assert json.loads(result.output)["refused"].endswith(".")


def test_curve_draws_and_counts(tmp_path: Path) -> None:
    words = "--noise gaussian:1 --noise gaussian:2 --sample poisson:0.05 --rounds 200 --points 11"
    found = answer("curve", f"{words} --output {tmp_path / 'curve.png'}")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    quiet, loud = (one["false_negative_rate"] for one in found["curves"])
    assert all(a <= b + 1e-6 for a, b in zip(quiet, loud, strict=True))
    shown = CliRunner().invoke(app, ["curve", *words.split()]).output
    assert "false negative rate" in shown
    printed = [float(value) for value in re.findall(r"^  [\d.]+ +([\d.e-]+)$", shown, re.MULTILINE)]
    assert len(printed) == 22  # floors, so none is rounded up
    assert all(0 <= exact - said <= 1e-5 * exact for said, exact in zip(printed, [*quiet, *loud], strict=True))
    refused = CliRunner().invoke(app, ["curve", *words.split(), "--output", str(tmp_path / "curve.txt"), "--json"])
    assert refused.exit_code == 2


def test_no_torch_and_no_dp_accounting_are_loaded() -> None:
    code = (
        "import sys; from typer.testing import CliRunner; from sfumato.commands.app import app;"
        "r = CliRunner().invoke(app, 'account --noise gaussian:1 --sample poisson:0.05 --rounds 20 --delta 1e-5'.split());"
        "assert r.exit_code == 0; print([m for m in ('torch', 'dp_accounting', 'scipy.stats') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
