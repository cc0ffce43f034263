"""Medical MNIST as folders of pictures, and the farms of GEFCom2012: tiny files in their public layouts, and the real ones."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch

from sfumato import simulate
from sfumato.account.event import Unit
from sfumato.data import Dataset, Population, build_population, load
from sfumato.data.sets import MEDICAL
from sfumato.data.wind import HOURS
from sfumato.errors import DataError
from sfumato.key import Key
from sfumato.objective import evaluate, regression
from sfumato.recipes import build as build_recipe

from .files import hour, write_pictures, write_wind

KEY = Key.from_seed(0)
COUNTS = dict.fromkeys(MEDICAL, 5)


@pytest.mark.parametrize("place", ["medical-mnist", "MedNIST", "."])
@pytest.mark.parametrize(("ending", "mode"), [(".jpeg", "L"), (".png", "L"), (".png", "RGB")])
def test_medical_mnist_is_read_as_jpeg_or_png(tmp_path: Path, place: str, ending: str, mode: str) -> None:
    write_pictures(tmp_path / place, COUNTS, ending, mode=mode)
    found = load("medical-mnist", tmp_path, allow_download=False)
    assert (found.counts, found.classes, found.input_shape) == ({"train": 25, "test": 5}, 6, (1, 8, 8))
    assert torch.equal(found.pool.y, (found.pool.x[:, 0, 0, 0].long() // 10 - 1))
    pixel = float(found.pool.x[0, 0, 3, 4])
    assert float(found.train.x[0, 0, 3, 4]) == pytest.approx((pixel / 255 - 0.3551) / 0.2754, abs=1e-6)


def test_medical_mnist_is_parted_once_and_for_all(tmp_path: Path) -> None:
    write_pictures(tmp_path, COUNTS)
    first, again = (load("medical-mnist", tmp_path, allow_download=False) for _ in range(2))
    assert torch.equal(first.pool.x, again.pool.x) and torch.equal(first.test.records.y, again.test.records.y)
    every = torch.cat([first.train.x, first.test.records.x])[:, 0, 0, 0]
    assert len(every.unique()) == 30


def test_broken_pictures_are_refused_by_name(tmp_path: Path) -> None:
    write_pictures(tmp_path, COUNTS)
    broken = tmp_path / "Hand" / "000003.jpeg"
    whole = broken.read_bytes()
    for data in (b"", b"<html>not found</html>", whole[: len(whole) // 2]):
        broken.write_bytes(data)
        with pytest.raises(DataError, match="000003.jpeg is no picture"):
            load("medical-mnist", tmp_path, allow_download=False)
    write_pictures(tmp_path, {"Hand": 5}, side=9)
    with pytest.raises(DataError, match="several sizes"):
        load("medical-mnist", tmp_path, allow_download=False)
    broken.write_bytes(whole)
    with pytest.raises(DataError, match="9x9 and 8x8 pixels"):
        load("medical-mnist", tmp_path, allow_download=False)
    for file in (tmp_path / "CXR").iterdir():
        file.rename(file.with_suffix(".txt"))
    with pytest.raises(DataError, match="CXR holds no picture"):
        load("medical-mnist", tmp_path, allow_download=False)


@pytest.mark.parametrize("name", ["medical-mnist", "gefcom2012-wind"])
def test_what_people_must_fetch_themselves_says_where(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match=r"https://www.kaggle.com/.* gives it to people only. Put .* into") as caught:
        load(name, tmp_path)
    assert str(tmp_path / name) in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def farms(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    root = tmp_path_factory.mktemp("farms")
    write_wind(root / "gefcom2012-wind", missing=(700, 2401))
    return load("gefcom2012-wind", root, allow_download=False)


def test_a_window_has_its_forecast_and_its_hours_of_power(farms: Dataset) -> None:
    assert (farms.input_shape, farms.classes, farms.task) == ((7, 48), 48, "regression")
    assert farms.own is not None
    stored, y, first = farms.pool.x, farms.pool.y, int(farms.own[2])
    number = int(stored[first + 10, 0, 0])  # of the forecast, the eleventh that is whole
    assert number == 10
    ahead = torch.arange(1, 49)
    assert torch.allclose(y[first + 10], 3 + (12 * number + ahead) / 1e5)
    assert torch.equal(stored[first + 10, 1], ahead.float()) and stored[first + 10, 2].unique().tolist() == [3.0]
    x = farms.scaling(stored[first + 10 : first + 11])[0]
    assert torch.allclose(x[0], torch.tensor(number / 5.0)) and torch.allclose(x[3], torch.tensor(1.0))
    assert torch.allclose(x[4], torch.tensor(0.0), atol=1e-6)
    assert x[5, 0] == 0 and x[5, -1] == 1
    assert torch.allclose(x[6], torch.tensor(3 + 12 * number / 1e5))  # the power when it was issued


def test_windows_without_all_their_power_are_left_out_and_no_test_hour_is_trained_on(farms: Dataset) -> None:
    assert farms.own is not None
    own = farms.pool.x[: int(farms.own[1]), 0, 0].long().tolist()  # the first farm's forecasts, by number
    gone = {
        number
        for number in range(len(own) + 20)
        if any(12 * number <= hole <= 12 * number + 48 for hole in (700, 2401))
    }
    last = max(own)
    assert set(own) == set(range(last + 1)) - gone
    assert hour(12 * last) == "2010093012"
    trained = 12 * last + HOURS
    earliest = float(farms.test.records.x[:, 0, 0].min()) * 5 * 12
    assert hour(int(earliest)) == "2010100300" and earliest > trained


def test_hiding_a_window_hides_no_hour_and_the_guarantee_says_so(farms: Dataset) -> None:
    natural, mixed = (build_population(farms, 7, split, KEY, 4) for split in ("natural", "iid"))
    for population, units in ((natural, [Unit.RECORD]), (mixed, [Unit.RECORD, Unit.CLIENT])):
        said = [unit for unit in Unit if population.caution(unit)]
        assert set(said) == set(units)
    assert "in up to 5 of them" in natural.caution(Unit.RECORD)[0]
    sent: Population = pickle.loads(pickle.dumps(natural))
    assert sent.caution(Unit.RECORD) == natural.caution(Unit.RECORD)
    module, round = (
        torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(336, 48)),
        build_recipe("prifedsync", 7, {"records": 4, "batch": "fixed:2", "steps": 1, "helper_weight": 1.0}),
    )
    run = simulate(round, natural, module, regression(), rounds=1, seed=0)
    list(run)
    for server in (False, True):
        assert natural.caution(Unit.RECORD)[0] in run.guarantee(1e-3, server=server).assumptions
    assert natural.caution(Unit.RECORD)[0] not in run.guarantee(1e-3, unit=Unit.CLIENT).assumptions


def test_other_data_say_nothing_of_windows() -> None:
    digits = build_population(load("digits"), 7, "iid", KEY)
    assert digits.caution(Unit.RECORD) == digits.caution(Unit.CLIENT) == ()


def test_broken_wind_files_are_refused_by_name(tmp_path: Path) -> None:
    write_wind(tmp_path, hours=11_400)
    forecast = tmp_path / "windforecasts_wf3.csv"
    whole = forecast.read_text()
    for text, words in (
        (whole.rsplit("\n", 3)[0], "48 lines of 6"),
        (whole.replace(",90\n", "\n"), "48 lines of 6"),
        (whole.replace(f"{hour(12)},3,", f"{hour(12)},2,"), "48 lines of 6"),
        (whole.replace("90\n", "north\n", 1), "wf3.csv is no table of numbers"),
    ):
        forecast.write_text(text)
        with pytest.raises(DataError, match=words):
            load("gefcom2012-wind", tmp_path, allow_download=False)
    forecast.write_text(whole)
    (tmp_path / "train.csv").write_text("date,wp1\n2009070100,0.5\n")
    with pytest.raises(DataError, match="has 2 columns"):
        load("gefcom2012-wind", tmp_path, allow_download=False)
    write_wind(tmp_path, hours=600)
    with pytest.raises(DataError, match="no forecast with all its 48 hours"):
        load("gefcom2012-wind", tmp_path, allow_download=False)


@pytest.mark.data
def test_the_real_medical_pictures() -> None:
    found = load("medical-mnist", allow_download=False)
    assert found.input_shape[0] == 1 and found.counts["train"] >= 25_000
    assert torch.bincount(found.pool.y, minlength=6).min() > 4_000
    sample = found.scaling(found.pool.x[::50])
    assert abs(float(sample.mean())) < 0.1 and abs(float(sample.std()) - 1) < 0.1


@pytest.mark.data
def test_the_real_farms_and_what_a_forecast_must_beat() -> None:
    """Mean power and the last known power are what the tables put beside their models: numbers of this very split."""
    found = load("gefcom2012-wind", allow_download=False)
    assert found.counts == {"train": 6398, "test": 1239, "clients": 7}
    records, mean = found.test.records, float(found.pool.y.mean())
    assert 0.2 < mean < 0.4 and float(found.pool.y.min()) >= 0 and float(found.pool.y.max()) <= 1
    climatology = evaluate(lambda x: torch.full((len(x), HOURS), mean), records, regression())["mse"]
    persistence = evaluate(lambda x: x[:, 6], records, regression())["mse"]
    assert (climatology, persistence) == (pytest.approx(0.1166, abs=2e-4), pytest.approx(0.1232, abs=2e-4))
