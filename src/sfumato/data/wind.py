"""Wind power of the forecasting competition GEFCom2012 (Hong, Pinson and Fan 2014): seven farms, each of them a client.

Every 12 hours a weather forecast was issued for each farm: wind east and north, speed and direction for the next 48 hours. A
record is one forecast and the power at the hour when it was issued; its targets are the power of the 48 hours, from 0 to 1.

| part  | issued                               | records of a farm |
|-------|--------------------------------------|-------------------|
| train | 1 July 2009 to 30 September 2010     | 914               |
| test  | 3 October 2010 to 30 December 2010   | 177               |

After that the competition has holes in the power, two days wide. No hour of the test part is one that a client trains on. But
records overlap: an hour is in up to five of them, so what hides one record does not hide an hour, and guarantees say so.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from sfumato.data.formats import read_numbers
from sfumato.data.population import PublicData, Records
from sfumato.data.record_map import batched
from sfumato.data.sets import Dataset
from sfumato.errors import DataError

FARMS, HOURS, ISSUED_EVERY = 7, 48, 12
TRAIN_UNTIL, TEST_FROM, TEST_UNTIL = (
    np.datetime64(f"{day}T00", "h") for day in ("2010-10-01", "2010-10-03", "2010-12-31")
)
_COLUMNS = 6  # of a forecast: date, hours ahead, east, north, speed, direction


@batched
@dataclass(frozen=True)
class Channels:
    """From what is stored [n, 5, 48] (east, north, speed, direction in degrees, power when issued) to inputs [n, 7, 48].

    Winds are divided by `speed`; the direction becomes its sine and cosine, and how far ahead an hour lies is an input too.
    """

    speed: float

    def __call__(self, stored: torch.Tensor) -> torch.Tensor:
        wind, direction, power = stored[:, :3] / self.speed, torch.deg2rad(stored[:, 3:4]), stored[:, 4:5]
        ahead = torch.linspace(0.0, 1.0, stored.shape[-1]).expand_as(power)
        return torch.cat([wind, direction.sin(), direction.cos(), ahead, power], dim=1)


def wind(name: str, root: Path) -> Dataset:
    """The farms as clients of their first fifteen months; the next three months of all of them are the public test split."""
    folder = next((own for own in (root / name, root) if (own / "train.csv").is_file()), None)
    forecasts = [folder / f"windforecasts_wf{farm}.csv" for farm in range(1, FARMS + 1)] if folder else []
    if folder is None or not all(path.is_file() for path in forecasts):
        raise FileNotFoundError(name)
    power = read_numbers(folder / "train.csv")
    if power.shape[1] != 1 + FARMS:
        raise DataError(
            f"{folder / 'train.csv'} has {power.shape[1]} columns, not a date and {FARMS} farms. Fetch it again."
        )
    hours = _hours(power[:, 0])
    parts = [_windows(path, hours, power[:, 1 + farm]) for farm, path in enumerate(forecasts)]
    channels = Channels(speed=5.0)
    train = [_some(records, issued < TRAIN_UNTIL) for issued, records in parts]
    test = [_some(records, (issued >= TEST_FROM) & (issued < TEST_UNTIL)) for issued, records in parts]
    pool, held = (Records(*map(torch.cat, zip(*some, strict=True))) for some in (train, test))
    if not pool.count or not held.count:
        raise DataError(
            f"{folder} has no forecast with all its {HOURS} hours of power in 2009 and 2010. Fetch it again."
        )
    own = np.cumsum([0, *(records.count for records in train)])
    public = PublicData(f"{name}/test", Records(channels(held.x), held.y))
    counts = {"train": pool.count, "test": held.count, "clients": FARMS}
    people, overlap = tuple(f"farm {farm}" for farm in range(1, FARMS + 1)), HOURS // ISSUED_EVERY
    return Dataset(name, pool, public, HOURS, "regression", counts, channels, own, overlap, people=people)


def _hours(dates: np.ndarray) -> np.ndarray:
    """Hours from dates that are written as numbers, such as 2009070100."""
    whole = dates.astype(np.int64)
    year, month, day, hour = whole // 10**6, whole // 10**4 % 100, whole // 100 % 100, whole % 100
    days = ((year - 1970).astype("M8[Y]") + (month - 1).astype("m8[M]")).astype("M8[D]") + (day - 1).astype("m8[D]")
    found: np.ndarray = days.astype("M8[h]") + hour.astype("m8[h]")
    return found


def _windows(path: Path, hours: np.ndarray, power: np.ndarray) -> tuple[np.ndarray, Records]:
    """When each whole forecast was issued, and its record; one without its power, or the power before it, is left out."""
    table = read_numbers(path)
    ahead = np.arange(1, HOURS + 1)
    whole = table.shape[1] == _COLUMNS and len(table) % HOURS == 0
    forecast = table.reshape(-1, HOURS, _COLUMNS) if whole else np.zeros((0, HOURS, _COLUMNS))
    if not whole or (forecast[..., 0] != forecast[:, :1, 0]).any() or (forecast[..., 1] != ahead).any():
        raise DataError(
            f"{path} has not {HOURS} lines of {_COLUMNS} numbers for each forecast, in order. Fetch it again."
        )
    issued = _hours(forecast[:, 0, 0])
    known = np.full(int((hours.max() - hours.min()).astype(int)) + 1, np.nan)
    known[(hours - hours.min()).astype(int)] = power
    wanted = (issued - hours.min()).astype(int)[:, None] + np.arange(HOURS + 1)  # the hour of issue, and those ahead
    found = np.where((wanted >= 0) & (wanted < len(known)), known[np.clip(wanted, 0, len(known) - 1)], np.nan)
    before = np.repeat(found[:, :1, None], HOURS, axis=2)
    x, y = np.concatenate([forecast[:, :, 2:].transpose(0, 2, 1), before], axis=1), found[:, 1:]
    complete = np.isfinite(x).all((1, 2)) & np.isfinite(y).all(1)
    tensors = (torch.from_numpy(part[complete].astype(np.float32)) for part in (x, y))
    return issued[complete], Records(*tensors)


def _some(records: Records, chosen: np.ndarray) -> Records:
    rows = torch.from_numpy(np.flatnonzero(chosen))
    return Records(records.x[rows], records.y[rows])
