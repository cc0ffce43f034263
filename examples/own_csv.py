"""From a CSV (made-up rows of clinics) to a guarantee: what columns may hold is declared, and not learnt from the rows."""

import tempfile
from pathlib import Path

import pandas as pd
import torch

import sfumato as sf

CLINICS = 60


def make_rows(count: int, seed: int) -> pd.DataFrame:
    draw = torch.Generator().manual_seed(seed)
    age = torch.randint(18, 96, (count,), generator=draw)
    sex = torch.randint(0, 2, (count,), generator=draw)
    ill = age / 50 + 0.5 * sex + 0.3 * torch.randn(count, generator=draw) > 1.4
    return pd.DataFrame(
        {
            "clinic": [f"clinic-{one:02}" for one in torch.randint(0, CLINICS, (count,), generator=draw).tolist()],
            "age": age.tolist(),
            "sex": ["fm"[one] for one in sex.tolist()],
            "admitted": [f"202{one % 6}-05-01" for one in age.tolist()],
            "ill": ["yes" if one else "no" for one in ill.tolist()],
        }
    )


def main() -> None:
    columns = sf.Columns(
        client="clinic",
        target="ill",
        classes=["no", "yes"],
        categories={"sex": ["f", "m"]},
        scale={"age": (0, 100), "admitted": ("2020-01-01", "2026-01-01")},
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "clinics.csv"
        make_rows(1500, seed=0).to_csv(path, index=False)
        population = sf.Population.from_table(path, columns, clients=CLINICS)
    test = sf.PublicData.from_dataframe(make_rows(500, seed=1), population.columns)
    round = sf.Round(
        sample=sf.Poisson(rate=0.5),
        local=sf.Sgd(lr=0.5, epochs=2, batch_size=5),
        client=(sf.Clip(norm=1.0),),
        aggregate=sf.Mean(over=CLINICS / 2),
        server=(sf.AddNoise(sf.Gaussian(noise_multiplier=1.5)),),
    )
    objective = sf.classification(2)
    *_, last = sf.simulate(round, population, "logistic", objective, rounds=15)
    accuracy = sf.evaluate(last.module, test.records, objective)["accuracy"]
    print(f"round {last.round}: accuracy {accuracy:.3f}, epsilon {last.epsilon():.3f}")
    print(last.guarantee())


if __name__ == "__main__":
    main()
