"""Gradient inversion: what is inverted is what the engine sends, and pictures come back unless there is noise."""

from __future__ import annotations

import shutil
import stat
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import torch

from sfumato import AddNoise, Clip, Everyone, Gaussian, Mean, Population, Round, SharedMask
from sfumato.audit.attack import FOLDER, Found
from sfumato.audit.attacks import attack_run, build
from sfumato.audit.gradient_match import Known, Search
from sfumato.audit.inversion import BARE, Inversion, noisy
from sfumato.audit.labels_from_bias import last_bias, recovered, share_right
from sfumato.audit.one_client import SERVER, WORLD, Victim, one_step
from sfumato.audit.picture_measures import Pixels, flat, measured
from sfumato.cli import run
from sfumato.data import build_population, load
from sfumato.data.population import Records
from sfumato.engine.clients import Clients, Start
from sfumato.engine.keys import Keys
from sfumato.engine.plan import Plan
from sfumato.engine.simulate import job_of
from sfumato.errors import BadValue
from sfumato.key import Key
from sfumato.local.sgd import Sgd
from sfumato.models import build as build_model
from sfumato.objective import classification
from sfumato.run.prepare import Prepared
from sfumato.run.request import Request
from sfumato.update import Layout

KEY = Key.from_seed(3)
PLAIN: dict[str, Any] = {"sample": Everyone(), "aggregate": Mean(over=4.0), "nonprivate": True}


@lru_cache
def digits() -> Population:
    return build_population(load("digits"), 200, "iid", Key.from_seed(0), records_per_client=7)


def prepared(round: Round, model: str = "mlp") -> Prepared:
    module = build_model(model, (1, 8, 8), 10, Key.from_seed(0))
    return Prepared(Request(), digits(), load("digits").test, module, classification(10), round, (1, 8, 8), 10, {})


def victim(round: Round, records: int = 7, model: str = "mlp") -> Victim:
    ready, (x, y) = prepared(round, model), digits().client(0).train
    return Victim(ready, Records(x[:records], y[:records]), Layout.of(ready.module).row(ready.module))


def test_what_the_server_sees_is_the_message_of_the_engine() -> None:
    round = Round(local=Sgd(lr=0.3, epochs=2, batch_size=3), client=(Clip(0.05),), **PLAIN)
    one = victim(round)
    job, _ = job_of(round, digits(), one.prepared.module, one.prepared.objective, "cpu")
    keys = Keys.of(KEY)
    start = Start(one.params, job.slots.open(0, keys.opening(0)), keys.clients)
    block = Clients(job, digits(), Plan())((start, [0]))
    assert float(block.total.rows.norm()) == pytest.approx(0.05, rel=1e-4)
    assert torch.allclose(one.seen(SERVER, KEY) * 4.0, block.total.rows, atol=1e-9)


def test_the_server_sees_no_noise_of_its_own_and_everyone_sees_it() -> None:
    round = Round(
        sample=Everyone(), local=Sgd(lr=0.3, steps=1, batch_size=7), client=(Clip(0.5),), aggregate=Mean(over=4.0),
        server=(AddNoise(Gaussian(2.0)),),
    )  # fmt: skip
    one = victim(round)
    noise = (one.seen(WORLD, KEY) - one.seen(SERVER, KEY)) * 4.0
    assert float(noise.std()) == pytest.approx(2.0 * 0.5, rel=0.05)
    assert noisy(round, released=True) and not noisy(round, released=False)
    client = replace(round, client=(Clip(0.5), AddNoise(Gaussian(2.0))), server=(), nonprivate=True)
    assert noisy(client, released=False) and float((victim(client).seen(SERVER, KEY) * 4.0).std()) > 0.9


def test_what_client_pieces_do_to_the_shape_is_undone() -> None:
    masked = Round(local=Sgd(lr=0.3, steps=1, batch_size=7), client=(SharedMask(keep=0.25), Clip(9.0)), **PLAIN)
    whole = victim(replace(masked, client=(Clip(9.0),))).seen(SERVER, KEY)
    found = victim(masked).seen(SERVER, KEY)
    kept = found != 0
    assert found.shape == whole.shape and 0.15 < float(kept.double().mean()) < 0.26
    assert torch.allclose(found[kept], whole[kept], atol=1e-7)


@pytest.mark.parametrize("steps", [1, 3])
def test_the_attackers_update_is_that_of_local_training(steps: int) -> None:
    """All records in every step, so that their order does not matter."""
    round = Round(local=Sgd(lr=0.3, steps=steps, batch_size=7), **PLAIN)
    one = victim(round)
    pixels = Pixels.of(load("digits").test.records.x)
    known = Known(one.module(), one.prepared.objective.loss, pixels, 0.3, steps, 7)
    update = torch.cat([part.detach().flatten() for part in known.update(*one.records)])
    seen = one.seen(SERVER, KEY) * 4.0
    assert torch.allclose(update * (0.3 if steps == 1 else 1.0), seen, atol=1e-6)


@pytest.mark.parametrize("model", ["mlp", "logistic"])
def test_the_label_of_one_record_is_always_found(model: str) -> None:
    round = one_step(Round(local=Sgd(lr=0.3, epochs=5), client=(Clip(0.01),), **PLAIN), 1)
    ready = prepared(round, model)
    layout, row = Layout.of(ready.module), Layout.of(ready.module).row(ready.module)
    for client in range(12):
        x, y = digits().client(client).train
        row = row + 0.05 * KEY.child("moved", client=client).normal(len(row)).float()  # whatever the model is
        one = Victim(ready, Records(x[:1], y[:1]), row)
        assert recovered(last_bias(-one.seen(SERVER, KEY), one.module(), layout, 10), 1).tolist() == y[:1].tolist()


def test_labels_of_a_batch_are_counted() -> None:
    truth = torch.tensor([0, 0, 0, 1, 2, 2])
    shares = torch.bincount(truth, minlength=5) / 6
    bias = 37.0 * (torch.full((5,), 0.2) - shares)  # of an untrained model, at any scale
    assert recovered(bias, 6).tolist() == truth.tolist()
    assert share_right(torch.tensor([0, 0, 1, 1, 2, 2]), truth) == pytest.approx(5 / 6)


def test_a_digit_comes_back_from_its_gradient_and_not_from_noise() -> None:
    round = Round(local=Sgd(lr=0.3, steps=1, batch_size=1), client=(Clip(1.0),), **PLAIN)
    one, pixels = victim(round, records=1), Pixels.of(load("digits").test.records.x)
    known = Known(one.module(), one.prepared.objective.loss, pixels)
    flatly = measured(flat(one.records.x), one.records.x, pixels)["psnr"]
    seen = one.seen(SERVER, KEY) * 4.0
    clear = Search(150, smooth=1e-3)(known, seen, one.records.y, (1, 8, 8), KEY)
    assert measured(clear, one.records.x, pixels)["psnr"] > flatly + 6
    noise = KEY.child("noise").normal(len(seen), stddev=0.5).float()
    blurred = Search(50, smooth=1e-1)(known, seen + noise, one.records.y, (1, 8, 8), KEY)
    assert measured(blurred, one.records.x, pixels)["psnr"] < flatly + 3


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "run"
    words = "train dp-fedavg --model mlp --sample everyone --rounds 1 --noise-multiplier 0.1 --seed 0 --quiet"
    assert run([*words.split(), "--out", str(folder)]) == 0
    return folder


def attacked(folder: Path, **options: Any) -> Found:
    return attack_run(folder, build("inversion", {"pictures": 1, "batch": 3, "iterations": 25, **options}), str, seed=0)


def test_an_attack_that_was_stopped_goes_on_to_the_same_result(finished: Path) -> None:
    told: list[str] = []

    def stop(line: str) -> None:
        told.append(line)
        if len(told) == 3:
            raise KeyboardInterrupt

    attack, other = build("inversion", {"pictures": 1, "batch": 3, "iterations": 25}), finished.parent / "other"
    shutil.copytree(finished, other)
    with pytest.raises(KeyboardInterrupt):
        attack_run(finished, attack, stop, seed=0)
    kept = sorted((finished / FOLDER / "kept").iterdir())
    before = {path.name: path.stat().st_mtime_ns for path in kept}
    assert len(kept) == 3 and {stat.S_IMODE(path.stat().st_mode) for path in kept} == {0o600}
    found = attack_run(finished, attack, str, seed=0)
    assert {name: (finished / FOLDER / "kept" / name).stat().st_mtime_ns for name in before} == before
    assert attack_run(other, attack, str, seed=0).numbers == found.numbers


def test_what_was_found_has_baselines_and_stays_out_of_the_report(finished: Path) -> None:
    before = {name: (finished / name).read_bytes() for name in ("report.html", "run.json")}
    found = attacked(finished)
    scenes = {f"{scene}, {view}: psnr" for scene in ("one picture", "batch") for view in (BARE, SERVER, WORLD)}
    assert scenes <= set(found.numbers) and "one picture: flat mean colour, psnr" in found.baselines
    assert found.numbers[f"one picture, {SERVER}: labels right"] == 1.0
    assert {name: (finished / name).read_bytes() for name in before} == before
    for draw in found.pictures.values():
        assert callable(draw) and len(draw().axes) in (1 * 5, 3 * 5)  # true, three views, flat
    assert attacked(finished, trained=True).numbers != found.numbers
    as_it_is = attacked(finished, steps=0, batch=0)
    assert as_it_is.numbers[f"one picture, {BARE}: psnr"] == found.numbers[f"one picture, {BARE}: psnr"]


def test_what_cannot_be_asked_is_refused() -> None:
    with pytest.raises(BadValue, match="batches of up to 100"):
        Inversion(batch=101)
    with pytest.raises(BadValue, match="1 local step, or 0"):
        Inversion(steps=2)


@pytest.mark.data
def test_a_real_picture_comes_back_at_20_decibel_and_not_under_noise() -> None:
    x, y = load("cifar10", allow_download=False).test.records
    x, y = x[3:203], y[3:203]
    module, pixels = build_model("cnn-cifar", (3, 32, 32), 10, Key.from_seed(0)), Pixels.of(x)
    known, layout = Known(module, classification(10).loss, pixels), Layout.of(module)
    seen = torch.cat([part.detach().flatten() for part in known.update(x[:1], y[:1])])
    seen = seen / seen.norm()
    found = Search(350)(known, seen, recovered(last_bias(-seen, module, layout, 10), 1), (3, 32, 32), KEY)
    assert measured(found, x[:1], pixels)["psnr"] >= 20.0
    seen = seen + KEY.child("noise").normal(len(seen), stddev=0.1).float()
    found = Search(50, smooth=0.1)(known, seen, recovered(last_bias(-seen, module, layout, 10), 1), (3, 32, 32), KEY)
    assert measured(found, x[:1], pixels)["psnr"] <= measured(flat(x[:1]), x[:1], pixels)["psnr"] + 3.0
