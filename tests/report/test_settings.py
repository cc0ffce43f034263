"""Which settings differ between runs, which are the same, and which runs are one setting with several seeds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sfumato.report.curves import Curve
from sfumato.report.groups import grouped
from sfumato.report.history import accuracy_against_epsilon, accuracy_by_round, loss_by_round
from sfumato.report.read import Record, read_runs
from sfumato.report.settings import rows

from .runs import TOML, lines, summary, write_run
from .test_page import page


def toml(seed: int | None = None, **options: Any) -> str:
    text = TOML.replace("seed = 918273\n", "" if seed is None else f"seed = {seed}\n")
    text = text.replace(
        "[resolved]", "[options]\n" + "".join(f"{key} = {value}\n" for key, value in options.items()) + "\n[resolved]"
    )
    return text


def run(folder: Path, seed: int | None, best: float = 0.9, **options: Any) -> Path:
    return write_run(folder, summary(accuracy=best, seed=seed), lines(10, best=best), toml(seed, **options))


def read(*folders: Path) -> tuple[Record, ...]:
    return read_runs(folders)


def test_every_setting_that_differs_is_shown_and_the_others_once(tmp_path: Path) -> None:
    first, second = run(tmp_path / "first", 41719, lr=0.5), run(tmp_path / "second", 52823, lr=0.1, momentum=0.9)
    found = page(first, second)
    assert "options.lr 0.5 0.1" in found.text
    assert "options.momentum its default 0.9" in found.text
    assert "seed given, not shown given, not shown" in found.text
    assert "41719" not in found.source and "52823" not in found.source
    assert found.text.count("data.split_seed") == 1 and "settings of run.toml are the same for all runs" in found.text
    assert (
        found.text.index("options.lr") < found.text.index("the same for all runs") < found.text.index("data.split_seed")
    )


def test_a_default_that_is_written_down_is_a_value(tmp_path: Path) -> None:
    told = write_run(tmp_path / "told", summary(options={"lr": 0.5, "clip": 1.0}), lines(5), toml(1))
    found = {
        name: row.cells for name, row in rows([[one] for one in read(told, run(tmp_path / "given", 2, lr=0.1))]).items()
    }
    assert found["options.lr"] == ("0.5", "0.1")
    assert (
        "options.clip" not in found and "options.noise_multiplier" not in found
    )  # what was computed from them is shown


def test_values_that_differ_look_different(tmp_path: Path) -> None:
    both = read(run(tmp_path / "a", 1, lr=0.12345678), run(tmp_path / "b", 2, lr=0.12345679))
    assert rows([[one] for one in both])["options.lr"].cells == ("0.12345678", "0.12345679")


def test_runs_that_differ_in_seeds_only_are_one_curve_in_a_band(tmp_path: Path) -> None:
    folders = [run(tmp_path / f"s{seed}", seed, best) for seed, best in ((1, 0.80), (2, 0.84), (3, 0.91))]
    other = run(tmp_path / "other", 1, 0.7, lr=0.1)
    groups = grouped(read(*folders, other))
    assert [[member.name for member in group.runs] for group in groups] == [["s1", "s2", "s3"], ["other"]]
    plot = accuracy_by_round(read(*folders, other))
    assert plot is not None
    mean, single = plot.curves
    ends = [lines(10, best=best)[-1]["accuracy"] for best in (0.80, 0.84, 0.91)]
    assert mean.ys[-1] == sum(ends) / 3 and (mean.low[-1], mean.high[-1]) == (min(ends), max(ends))
    assert single.low == () and single.name == "other"
    found = page(*folders, other)
    assert "s1 and 2 more seeds" in found.text and "bands go from the smallest to the largest" in found.text
    assert "Accuracy 85.00 % 80.00 % to 91.00 %, 3 seeds 70.00 %" in found.text
    assert "seed 3 given, not shown given, not shown" in found.text
    assert "s3 1.988 91.00 % 0.3471" in found.text  # run by run


def test_the_largest_epsilon_of_a_group_is_shown(tmp_path: Path) -> None:
    folders = [write_run(tmp_path / f"{at}", summary(epsilon=1.5 + at), lines(10), toml(at)) for at in range(2)]
    assert "Epsilon 2.5 Accuracy" in page(*folders).text
    plot = accuracy_against_epsilon(read(*folders))
    assert plot is not None and len(plot.curves) == 1


def test_only_rounds_that_every_seed_has_are_averaged(tmp_path: Path) -> None:
    long, short = (write_run(tmp_path / f"{n}", summary(), lines(n), toml(n)) for n in (10, 6))
    plot = loss_by_round(read(long, short))
    assert plot is not None and plot.curves[0].xs == (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)


def test_one_run_twice_is_no_second_seed_and_what_cannot_be_read_stands_alone(tmp_path: Path) -> None:
    assert len(grouped(read(run(tmp_path / "a", 7), run(tmp_path / "b", 7)))) == 2
    assert len(grouped(read(run(tmp_path / "c", None), run(tmp_path / "d", None)))) == 1  # a secret of its own for each
    unknown = [write_run(tmp_path / name, summary(), lines(3), text) for name, text in (("e", ""), ("f", "= no"))]
    assert len(grouped(read(*unknown))) == 2
    assert "Comparison of 2 runs" in page(*unknown).text


def test_a_run_from_python_shows_its_pieces(tmp_path: Path) -> None:
    text = toml(1).replace('recipe = "dp-fedavg"', 'pieces = "Round(sample=Poisson(rate=0.25))"')
    first = write_run(tmp_path / "first", summary(recipe=None), lines(3), text)
    step = [{"slot": "local", "piece": "Sgd(lr=0.123)", "states": ""}]
    second = write_run(tmp_path / "second", summary(recipe=None, derivation=step), lines(3), text)
    assert "local Sgd(lr=0.5, epochs=5, batch_size=10) Sgd(lr=0.123)" in page(first, second).text


def test_values_are_there_where_the_pointer_is_without_a_script(tmp_path: Path) -> None:
    found = page(run(tmp_path / "first", 1, lr=0.5), run(tmp_path / "second", 2, lr=0.1))
    assert "Round 10 first" in found.text and "script" not in found.tags
    assert found.source.count('class="columns"') == found.tags.count("svg") == 3


def test_columns_cover_the_picture_and_hold_each_value(tmp_path: Path) -> None:
    from sfumato.report.curves import Plot
    from sfumato.report.hover import Box, columns

    curve = Curve("one", 0, (0.0, 5.0, 10.0), (1.0, 0.5, 0.25), low=(0.9, 0.4, 0.2), high=(1.1, 0.6, 0.3))
    drawn = columns(
        Plot("loss", "Loss", "Round", "Loss", (curve,)), Box(10, 0, 110, 50), lambda x, y: (10 + 10 * x, 50 - 50 * y)
    )
    widths = [float(part.split('width="')[1].split('"')[0]) for part in drawn.split("<rect")[1:] if "card" not in part]
    assert sum(widths) == 100.0
    assert "Loss 0.5 (0.4 to 0.6)" in drawn and "Round 5" in drawn
