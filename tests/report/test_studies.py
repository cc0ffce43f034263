"""Pictures of studies: they are drawn, equal ones have equal bytes, and a band is where it is said to be."""

from __future__ import annotations

import math

import pytest

from sfumato.report.curves import Curve, Plot
from sfumato.report.pictures import png, svg
from sfumato.report.studies import Landscape, Norms, Surfaces

STEPS = (-1.0, 0.0, 1.0)
BOWL = tuple(tuple(a * a + b * b + 0.1 for b in STEPS) for a in STEPS)
PNG = b"\x89PNG"


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("count", [1, 3, 4])
def test_landscapes_of_any_number_of_models_are_drawn(count: int, flat: bool) -> None:
    surfaces = Surfaces("bowl", "Bowls", {f"model {i}": Landscape(STEPS, BOWL) for i in range(count)}, flat)
    first = surfaces.png()
    assert first.startswith(PNG) and first == surfaces.png()


@pytest.mark.parametrize("flat", [False, True])
def test_a_loss_that_overflows_does_not_spoil_the_others(flat: bool) -> None:
    broken = ((math.inf, 0.2, math.nan), *BOWL[1:])
    surfaces = Surfaces("bowl", "Bowls", {"fine": Landscape(STEPS, BOWL), "broken": Landscape(STEPS, broken)}, flat)
    assert surfaces.png().startswith(PNG)


def test_norms_of_several_runs_are_drawn_over_one_clip() -> None:
    picture = Norms("norms", "Norms", ("a", "b"), ((0.0, 1.0, 2.0), (0.0, 0.5, 1.0)), ((3, 1), (0, 4)), clip=0.8)
    assert picture.png().startswith(PNG)


def test_a_band_is_drawn_around_its_curve_and_takes_its_colour() -> None:
    plain = Curve("mean", 0, (1.0, 2.0), (0.5, 0.6))
    banded = Curve("mean", 0, (1.0, 2.0), (0.5, 0.6), low=(0.4, 0.5), high=(0.6, 0.7))
    plots = [Plot("accuracy", "Accuracy", "Round", "Accuracy", (curve,), percent=True) for curve in (plain, banded)]
    assert png(plots[0]) != png(plots[1])
    assert ["opacity: 0.15" in str(svg(plot)) for plot in plots] == [False, True]
    assert "fill: var(--run-0); fill-opacity: 0.15" in str(svg(plots[1]))
