"""The page in a real browser, cut off from everything but this machine."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from sfumato.cli import run
from sfumato.run.lock import Lock
from tests.patience import PATIENCE
from tests.report.runs import TOML, lines, summary
from tests.ui.serving import browser_path, browsing, served

WAIT = 1000 * PATIENCE  # milliseconds


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    path = browser_path()
    if path is None:
        if os.environ.get("SFUMATO_REQUIRE_BROWSER"):
            pytest.fail("SFUMATO_REQUIRE_BROWSER is set, but there is no browser: install chromium.")
        pytest.skip("there is no browser: install chromium")
    with browsing(path) as found:
        yield found


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    with served(folder) as found:
        yield found


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    """The page, opened. Nothing may be asked of another place, and nothing may go wrong, by the end of the test."""
    context = browser.new_context(viewport={"width": 1200, "height": 800})
    context.set_default_timeout(WAIT)
    base, wrong = address.partition("/?")[0], []

    def only_here(route: Any) -> None:
        if route.request.url.startswith((f"{base}/", "data:")):
            return route.continue_()
        wrong.append(f"asked for {route.request.url}")
        return route.abort()

    context.route("**/*", only_here)
    found = context.new_page()
    found.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    found.on("pageerror", lambda error: wrong.append(str(error)))
    found.goto(address)
    assert found.url == f"{base}/"  # the token is not kept in the address
    yield found
    context.close()
    assert not wrong


def _answered(page: Any) -> str:
    """The epsilon on the page, once it is the answer to what the controls say."""
    page.wait_for_selector(".answer:not(.waiting)")
    return str(page.locator("#answer-epsilon").inner_text())


def _printed(page: Any, capsys: pytest.CaptureFixture[str]) -> str:
    """The epsilon that the command on the page prints: the first number of its answer."""
    command = page.locator("#commands code").first.inner_text()
    capsys.readouterr()
    assert run(shlex.split(command)[1:]) == 0
    found = re.search(r"epsilon\D*([\d.]*\d)", capsys.readouterr().out)
    assert found
    return found[1]


def test_a_slider_changes_epsilon_to_what_account_prints(page: Any, capsys: pytest.CaptureFixture[str]) -> None:
    before = _answered(page)
    assert before == _printed(page, capsys)
    slider = page.get_by_label("Noise, slider")
    for _ in range(40):
        slider.press("ArrowRight")
    after = _answered(page)
    assert float(after) < float(before) and after == _printed(page, capsys)
    page.get_by_label("Everyone").check()
    page.get_by_label("Rounds", exact=True).fill("77")
    assert _answered(page) == _printed(page, capsys)
    assert "--sample everyone --rounds 77 " in page.locator("#commands code").first.inner_text()
    page.locator("#attack svg .line").wait_for()


def test_epsilon_can_be_given_and_noise_is_found(page: Any, capsys: pytest.CaptureFixture[str]) -> None:
    _answered(page)
    page.get_by_role("spinbutton", name="Epsilon").fill("2")
    assert float(_answered(page)) <= 2.0
    command = page.locator("#commands code").first.inner_text()
    assert run([*shlex.split(command)[1:], "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    shown = float(page.get_by_role("spinbutton", name="Noise").input_value())
    assert told["noise_multiplier"] <= shown <= told["noise_multiplier"] * 1.00001


def test_a_large_delta_and_what_cannot_be_meant_are_said(page: Any) -> None:
    _answered(page)
    page.get_by_role("spinbutton", name="Delta").fill("0.01")
    page.wait_for_selector("#caution:has-text('is above')")
    page.get_by_role("spinbutton", name="Rounds").fill("")
    page.wait_for_selector(".guarantee.refused:has-text('rounds')")
    page.wait_for_selector("#attack:has-text('There is nothing to draw')")
    for name in ("attack-words", "commands", "details", "cohort"):  # nothing is left of the answer before
        assert page.locator(f"#{name}").inner_text() == "", name
    page.get_by_role("spinbutton", name="Rounds").fill("10")
    page.wait_for_selector(".guarantee:not(.refused)")


def test_an_answer_that_comes_late_is_not_shown(page: Any) -> None:
    """The first question is held back until the second has been answered."""
    _answered(page)
    late: list[Any] = []
    page.route("**/api/cost?*rounds=501*", lambda route: late.append(route))
    rounds = page.get_by_role("spinbutton", name="Rounds")
    with page.expect_request("**/api/cost?*rounds=501*"):
        rounds.fill("501")
    rounds.fill("20")
    shown = _answered(page)
    assert "--rounds 20 " in page.locator("#commands code").first.inner_text()
    with suppress(Exception):  # whoever asked has gone
        late[0].continue_()
    page.wait_for_timeout(300)
    assert len(late) == 1 and _answered(page) == shown
    assert "--rounds 20 " in page.locator("#commands code").first.inner_text()


def test_a_run_that_grows_is_seen_to_grow(page: Any, folder: Path) -> None:
    mine, found = folder / "growing", [json.dumps(line) + "\n" for line in lines(40)]
    mine.mkdir()
    held = Lock(mine)
    try:
        (mine / "run.toml").write_text(TOML)
        page.get_by_role("link", name="Runs", exact=True).click()
        page.locator("#runs a", has_text="growing").click()
        page.wait_for_selector("#run-state:has-text('Preparing: 40 rounds left.')")
        for done in (5, 12):
            with (mine / "metrics.jsonl").open("a") as file:
                file.write("".join(found[0 if done == 5 else 5 : done]))
            page.wait_for_selector(f"#run-state:has-text('Training: {40 - done} rounds left.')")
            assert page.locator("#run-numbers").inner_text().split("\n")[-1] == f"{done} of 40"
            assert (
                page.locator("#run-charts .chart").first.locator(".dot").count() == done + 1
            )  # one follows the pointer
        held.release()
        page.wait_for_selector("#run-state:has-text('interrupted or killed')")
        (mine / "run.json").write_text(json.dumps(summary()))
        page.wait_for_selector("#run-state:has-text('Finished.')")
        page.wait_for_selector("#run-guarantee:has-text('(1.988, 0.00295)-differential privacy')")
    finally:
        held.release()
        for path in mine.iterdir():
            path.unlink()
        mine.rmdir()


def test_every_epsilon_in_the_list_has_its_delta(page: Any) -> None:
    page.get_by_role("link", name="Runs", exact=True).click()
    page.locator("#runs tr", has_text="first").locator("td", has_text="1.988").first.wait_for()
    told = page.evaluate("fetch('api/runs').then((answer) => answer.json())")["runs"]
    proven = [one for one in told if re.fullmatch(r"[\d.]+", one.get("epsilon", "")) and one["state"] == "finished"]
    assert proven
    for one in proven:
        row = page.locator("#runs tr", has=page.get_by_role("link", name=one["name"], exact=True))
        assert row.locator("td", has_text=one["epsilon"]).filter(has_text=one["delta"]).count() == 1


def test_runs_are_compared_as_a_report_does(page: Any) -> None:
    page.get_by_role("link", name="Compare").click()
    page.get_by_label("first", exact=True).check()
    page.get_by_label("group/second").check()
    inside = page.frame_locator("#compare-page")
    inside.get_by_role("heading", name="Comparison of 2 runs").wait_for()
    assert "1.988" in inside.locator("table").first.inner_text() and inside.locator("figure svg").count() >= 2
    page.wait_for_function(
        "document.querySelector('#compare-page').clientHeight > 1200"
    )  # it has no scroll bar of its own
    page.reload()
    assert page.get_by_label("first", exact=True).is_checked()


def test_ledger_and_audit_are_read(page: Any, address: str) -> None:
    base = address.partition("?")[0]
    page.goto(f"{base}#ledgers/real")
    page.wait_for_selector("#ledger-page:has-text('3 rounds reserved')")
    assert "differential privacy" in page.locator("#ledger-page").inner_text()
    page.get_by_label("Ledger", exact=True).select_option("shared: people.sqlite")
    page.wait_for_selector("#ledger-page:has-text('say at which delta')")
    page.get_by_label("Read epsilon at delta").fill("0.0001")
    page.wait_for_selector("#ledger-page:has-text('read at delta 0.0001')")
    page.goto(f"{base}#runs/first")
    page.wait_for_selector("#run-audits:has-text('No contradiction')")


@pytest.mark.parametrize("width", [390, 1200])
def test_nothing_is_cut_off_and_every_input_has_a_name(page: Any, address: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    for view in ("plan", "runs", "runs/first", "compare/first", "ledgers/real"):
        page.goto(f"{address.partition('?')[0]}#{view}")
        page.wait_for_selector(
            f"#view-{'run' if '/first' in view and 'runs' in view else view.partition('/')[0]}:visible"
        )
        page.wait_for_load_state("networkidle") if view == "compare/first" else page.wait_for_timeout(150)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, view
    unnamed = (
        "[...document.querySelectorAll('input, select')].filter((one) => !one.labels.length && !one.ariaLabel).length"
    )
    assert page.evaluate(unnamed) == 0


def test_it_can_be_used_by_keyboard(page: Any) -> None:
    _answered(page)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.locator("#attack svg").focus()
    page.keyboard.press("ArrowLeft")
    assert "misses at least" in page.locator("#attack .said").inner_text()
