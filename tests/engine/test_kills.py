"""A few runs with random kills, copies, and other data and code; `make kills` has hundreds, of every recipe."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.kills import history


@pytest.mark.parametrize(("recipe", "seed"), [("dp-fedavg", 1), ("prifedsync", 7), ("dp-sgd", 6)])
def test_no_two_results_share_noise_whatever_happens(recipe: str, seed: int, tmp_path: Path) -> None:
    found = history(recipe, seed, tmp_path)
    assert found.results >= 5 and found.compared > 0 and found.largest < 7.0


def test_noise_that_is_drawn_again_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a seed the rounds that are begun again draw the same."""
    import tests.engine.kills as kills

    monkeypatch.setitem(kills.RECIPES, "dp-fedavg", [*kills.RECIPES["dp-fedavg"], "--seed", "5"])
    monkeypatch.setattr(kills, "_check_ledger", lambda *_: None)
    found = [history("dp-fedavg", seed, tmp_path / str(seed)) for seed in (1, 4) if not (tmp_path / str(seed)).mkdir()]
    assert max(one.largest for one in found) > 7.0
