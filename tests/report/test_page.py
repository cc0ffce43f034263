from __future__ import annotations

import html
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from sfumato.report import write_report

from .runs import (
    ASSUMPTIONS,
    GUARANTEE,
    RECORD,
    SERVER,
    STEPS,
    WORLD,
    baseline,
    lines,
    proven,
    summary,
    unproven,
    write_run,
)

VOID = {"meta", "br", "link", "img", "input"}


class Page(HTMLParser):
    """What a browser would make of it: visible text, tags, attributes; unbalanced tags are errors."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.source, self.words, self.tags, self.attributes = source, [], [], []
        self.open: list[str] = []
        self.feed(source)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def page(*folders: Path) -> Page:
    out = write_report(folders, folders[0] / "report.html")
    return Page(out.read_text(encoding="utf-8"))


def test_a_proven_run_says_what_it_guarantees_and_why(tmp_path: Path) -> None:
    found = page(proven(tmp_path / "run"))
    assert GUARANTEE in found.text
    assert found.text.index(GUARANTEE) < found.text.index(SERVER) < found.text.index(RECORD)
    rows = " ".join(word for row in WORLD.rows() for word in row)
    assert found.text.index(GUARANTEE) < found.text.index(rows) < found.text.index(ASSUMPTIONS[0])
    assert f"For any change inside one client {RECORD}" in found.text and f"Against the server {SERVER}" in found.text
    for words in (*ASSUMPTIONS, *(word for step in STEPS for word in step), "dp-fedavg on digits", "logistic model"):
        assert words in found.text
    for value in (
        "1.988",
        "0.00295",
        "90.56 %",
        "200",
        "1.84",
        "0.0368",
        "0.02",
        "pld",
        "add/remove",
        "torch 2.13.0",
    ):
        assert value in found.text
    assert "No proven guarantee for each client, against anyone" not in found.text
    assert "warning" not in [value for key, value in found.attributes if key == "class"]
    assert found.tags.count("svg") == 3


def test_a_run_of_an_earlier_version_shows_the_sentence_that_it_has(tmp_path: Path) -> None:
    old = {"client": {"world": {"epsilon": 1.98761, "sentence": "An old sentence."}}}
    found = page(proven(tmp_path / "run", guarantees=old))
    assert "What is guaranteed An old sentence. Assumptions" in found.text and SERVER in found.text


def test_epsilon_is_never_rounded_down(tmp_path: Path) -> None:
    found = page(proven(tmp_path / "run", epsilon=2.00001, guarantee="", guarantees={}))
    assert "2.001" in found.text


@pytest.mark.parametrize(("delta", "shown"), [(1e-5, "1e-05"), (0.001, "0.001"), (1.0001e-5, "1.01e-05")])
def test_a_bound_is_rounded_up_once(tmp_path: Path, delta: float, shown: str) -> None:
    assert f"Delta {shown} " in page(proven(tmp_path / "run", delta=delta)).text


@pytest.mark.parametrize(
    ("relation", "words"), [("zero_out", "zero-out"), ("add_remove", "add/remove"), ("replace", "replace")]
)
def test_a_relation_has_one_word(tmp_path: Path, relation: str, words: str) -> None:
    assert f"Relation {words} " in page(proven(tmp_path / "run", relation=relation, guarantees={})).text


def test_assumptions_are_data_and_not_the_end_of_a_sentence(tmp_path: Path) -> None:
    tricky = "as stated by a piece; which says: Assuming: nothing."
    found = page(proven(tmp_path / "run", assumptions=[tricky], guarantee="a sentence. Assuming: another thing."))
    assert tricky in found.text
    assert "another thing" not in found.text


def test_a_step_that_is_not_proven_says_so(tmp_path: Path) -> None:
    steps = [{"slot": "client", "piece": "TopK()", "states": "which rows is private.", "proven": False}]
    assert "TopK() not proven: which rows is private." in page(unproven(tmp_path / "run", derivation=steps)).text


def test_what_the_command_line_cannot_name_is_made_again_in_python(tmp_path: Path) -> None:
    found = page(proven(tmp_path / "run", unnamed="module"))
    assert "simulate(round, population, module, objective, rounds=40" in found.text
    assert "sfumato train --config" not in found.text


def test_the_page_is_one_file_that_fetches_nothing(tmp_path: Path) -> None:
    found = page(proven(tmp_path / "a"), unproven(tmp_path / "b"))
    assert "://" not in found.source
    assert not {"script", "link", "img", "iframe", "object", "embed", "base"} & set(found.tags)
    assert not re.search(r"@import|url\((?!#)", found.source)
    assert all(value.startswith("#") for key, value in found.attributes if key in ("href", "src") and value)


def test_pictures_have_words_and_ids_of_their_own(tmp_path: Path) -> None:
    found = page(proven(tmp_path / "run"))
    said = [value for key, value in found.attributes if key == "aria-label"]
    assert said[0] == "Epsilon by round. from 0.3143 at round 1 to 1.988 at 40."
    assert said[1] is not None and said[1].startswith("Accuracy by round. from ")
    assert said[2] == "Loss by round, on public test data. from 1 at round 1 to 1 at 40."
    ids = [value for key, value in found.attributes if key == "id"]
    assert len(ids) == len(set(ids))
    assert set(re.findall(r"url\(#([^)]+)\)", found.source)) <= set(ids)
    colours = set(re.findall(r"(?:stroke|fill): (#\w+)", found.source))
    assert not colours, "a fixed colour is not legible in both schemes"


NASTY = "</title><script>alert(1)</script>&\"'\x00\ud800$\\frac{$"


def test_every_name_is_escaped(tmp_path: Path) -> None:
    steps = [{"slot": NASTY, "piece": NASTY, "states": NASTY}, "not a step"]
    values: dict[str, Any] = dict.fromkeys(
        ("recipe", "data", "model", "unit", "relation", "accountant", "stopped"), NASTY
    )
    values |= {"guarantee": NASTY, "guarantee_server": NASTY, "derivation": steps, "assumptions": [NASTY]}
    values |= {"guarantees": {NASTY: {"world": {"sentence": NASTY}}}, "primary": NASTY}
    values |= {"versions": {NASTY: NASTY}, "metrics": {NASTY: 0.5}, "accuracy": 0.5}
    toml = f"name = {NASTY}".replace("\ud800", "")
    one = write_run(tmp_path / "<b>&_a$^", summary(**values), lines(3), toml)
    two = write_run(tmp_path / "_two", summary(**values, unproven={"paper": NASTY, "step": NASTY}), lines(3), toml)
    for found in (page(one), page(one, two)):
        assert "script" not in found.tags
        assert "b" not in found.tags
        assert "<script>alert(1)</script>&\"'" in found.text
        assert "\x00" not in found.source
        assert html.escape("<script>") in found.source


def test_without_test_data_it_says_so(tmp_path: Path) -> None:
    blind = [{**line, "accuracy": None, "metrics": {}} for line in lines(5)]
    found = page(write_run(tmp_path / "run", summary(accuracy=None, metrics={}), blind))
    assert "no public test data" in found.text
    assert "not measured" in found.text
    assert found.tags.count("svg") == 1


def test_rounds_that_were_not_evaluated_are_bridged(tmp_path: Path) -> None:
    sparse = [{key: value for key, value in line.items() if value is not None} for line in lines(41, every=10)]
    found = page(write_run(tmp_path / "run", summary(), sparse))
    assert "from 0.9817 at round 10 to 1.988 at 41." in found.source


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), 1e308, "text", True, [], 10**400])
def test_what_is_no_number_breaks_nothing(tmp_path: Path, bad: object) -> None:
    broken = [{**line, "epsilon": bad, "accuracy": bad} for line in lines(3)]
    kept = [{**line, "round": line["round"] + 3} for line in lines(3)]
    values = summary(accuracy=bad, stddev=bad, clip=bad, population=bad, metrics={"accuracy": bad})
    folder = write_run(tmp_path / "run", values, broken + kept)
    found = page(folder)
    assert GUARANTEE in found.text
    assert found.tags.count("svg") == 3
    assert page(folder, proven(tmp_path / "other")).tags.count("svg") == 3


@pytest.mark.parametrize("epsilon", [None, float("inf"), float("nan")])
def test_no_finite_epsilon_is_no_guarantee(tmp_path: Path, epsilon: float | None) -> None:
    found = page(proven(tmp_path / "run", epsilon=epsilon, guarantee="No proven guarantee: no finite epsilon holds."))
    assert "Warning No proven guarantee No proven guarantee: no finite epsilon holds." in found.text
    assert "What is guaranteed" not in found.text
    assert "none proven" in found.text


def test_an_unproven_run_warns_with_the_claim_and_the_step(tmp_path: Path) -> None:
    found = page(unproven(tmp_path / "run"))
    for words in (
        "Warning No proven guarantee",
        "A claim too far (2021)",
        "epsilon 1.5 at delta 0.00295",
        "TopK comes after",
    ):
        assert words in found.text
    assert "What is guaranteed" not in found.text
    assert "nothing is proven for this run" in found.text


def test_an_unproven_run_shows_no_epsilon_even_if_the_files_hold_one(tmp_path: Path) -> None:
    folder = unproven(tmp_path / "run", epsilon=0.777)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines(5, epsilon=0.777)))
    found = page(folder)
    assert "0.777" not in found.source
    assert found.tags.count("svg") == 2


def test_the_baseline_is_not_private(tmp_path: Path) -> None:
    found = page(baseline(tmp_path / "run"))
    assert "Warning Not private" in found.text
    assert "the non-private baseline" in found.text


def test_a_stopped_run_says_why(tmp_path: Path) -> None:
    assert "Stopped early" not in page(proven(tmp_path / "whole")).text
    assert "Stopped early the next round would" in page(proven(tmp_path / "run", stopped="the next round would")).text


def test_only_released_values_and_no_seed(tmp_path: Path) -> None:
    folder = proven(tmp_path / "run")
    (folder / "diagnostics-not-private").mkdir()
    (folder / "diagnostics-not-private" / "rounds.jsonl").write_text('{"round": 1, "cohort": 424242}\n')
    (folder / "personal-1.safetensors").write_text("535353")
    found = page(folder)
    assert not re.search("424242|535353|918273", found.source)
    assert "split_seed = 0" in found.text
    assert "The seed is left out" in found.text


def test_a_run_without_rounds(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", summary(rounds=0, accuracy=None, metrics={}, derivation=None), [])
    (folder / "metrics.jsonl").unlink()
    found = page(folder)
    assert found.text.count("No round was recorded.") == 2
    assert "svg" not in found.tags


def test_one_round(tmp_path: Path) -> None:
    found = page(write_run(tmp_path / "run", summary(rounds=1), lines(1)))
    assert found.tags.count("svg") == 3
    assert "200 clients, 1 round" in found.text


def test_ten_thousand_rounds_stay_a_small_page(tmp_path: Path) -> None:
    found = page(write_run(tmp_path / "run", summary(rounds=10_000), lines(10_000)))
    assert len(found.source) < 130_000
    assert "at 10,000." in found.source


def test_a_regression_is_not_called_accuracy(tmp_path: Path) -> None:
    values = summary(accuracy=4.25, primary="mse", metrics={"loss": 4.25, "mse": 4.25})
    found = page(write_run(tmp_path / "run", values, [{**line, "accuracy": 4.25} for line in lines(4)]))
    assert "MSE by round" in found.text
    assert "Accuracy" not in found.text
    assert "4.25" in found.text


def test_equal_runs_give_equal_bytes(tmp_path: Path) -> None:
    folder = proven(tmp_path / "run")
    assert page(folder).source == page(folder).source


def _audited(folder: Path, **changed: Any) -> Path:
    told = {
        "rounds": json.loads((folder / "run.json").read_text())["rounds"], "claimed": 2.0001, "proven": True, "confidence": 0.95,
        "runs": 500, "bounds": {"family": 1.4199, "clopper_pearson": 0.5}, "broken": False, "sentence": "No <b>contradiction</b>.",
    }  # fmt: skip
    (folder / "audit.json").write_text(json.dumps({**told, **changed}))
    return folder


def test_what_canaries_showed_stands_on_the_page(tmp_path: Path) -> None:
    folder = _audited(proven(tmp_path / "run"))
    found = page(folder)
    assert "Held against attacks" in found.text and "2.001" in found.text  # an upper bound rounded up
    assert "1.419" in found.text and "1.420" not in found.text  # a lower one down
    assert "<b>contradiction" not in found.source and "Contradicted" not in found.text
    assert "Contradicted" in page(_audited(folder, broken=True)).text


def test_an_audit_of_fewer_rounds_is_not_shown(tmp_path: Path) -> None:
    assert "Held against attacks" not in page(_audited(proven(tmp_path / "run"), rounds=1)).text
