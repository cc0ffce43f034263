"""Bad input: exit status 2, one clear sentence that names what is wrong, and no traceback; nothing is left behind."""

from __future__ import annotations

import io
import json
import shutil
import socket
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.cli.conftest import SMALL, Command

MODULE = """
import torch
from sfumato import Population, PublicData

def raises():
    raise RuntimeError("out of ink")

def client(number):
    return torch.ones(2, 3), torch.zeros(2, dtype=torch.int64)

def raises_for_a_client(number):
    raise RuntimeError("no such drawer")

def text():
    return "clients"

def wrong_labels():
    return [(torch.ones(2, 3), torch.full((2,), 9))] * 40

def number(input_shape, outputs):
    return 3

def broken_model(input_shape, outputs):
    return torch.nn.Linear(input_shape[0], outputs, bias="no", device="nowhere")

def with_batchnorm(input_shape, outputs):
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.BatchNorm1d(64), torch.nn.Linear(64, outputs))
"""
OWN = "--clients 40 --outputs 2"

BAD_WORDS = {
    # names, with the near one
    "trian": "'train'",
    "train dp-fedavgg": "'dp-fedavg'",
    "train --data minst": "'mnist'",
    "train --data emnist": "emnist-letters",
    "train --model logistik": "'logistic'",
    "train --epsilom 2": "--epsilom. Did you mean '--epsilon'",
    "train --split idd": "'iid'",
    "train --task clasification": "'classification'",
    "train --server-optimizer adm": "'adam'",
    "train --relation replaced": "replace",
    "train --set round=3": "'rounds'",
    "train --set options.lrr=1": "'lr'",
    "train --set data.client=5": "'clients'",
    "train --set date.clients=5": "'data'",
    "explain fedav": "'fedavg'",
    # numbers
    "train --epsilon abc": "--epsilon abc",
    "train --rounds=1.5": "--rounds=1.5",
    "train --rounds": "--rounds",
    "train --epsilon nan": "epsilon=nan",
    "train --epsilon -1": "epsilon=-1",
    "train --epsilon 0": "epsilon=0",
    "train --epsilon inf": "epsilon=inf",
    "train --delta nan": "delta=nan",
    "train --delta 0": "delta=0",
    "train --delta 1": "delta=1",
    "train --rounds 0": "rounds=0",
    "train --rounds -3": "rounds=-3",
    "train --clients 0": "clients=0",
    "train --clients 100000": "100000 clients",
    "train --records-per-client -5": "records_per_client=-5",
    "train --records-per-client 5000": "5000",
    "train --evaluate-every 0": "evaluate_every=0",
    "train --test-fraction 1": "test_fraction=1",
    "train --test-fraction nan": "test_fraction=nan",
    "train --outputs -1": "-1",
    "train --outputs 3": "outputs=3: digits has 10 classes",
    "train --sample poisson:2": "2.0",
    "train --sample poisson:nan": "nan",
    "train --sample poison:0.1": "poisson:RATE",
    "train --sample fixed:500": "500",
    "train --sample fixed:1.5": "fixed:1.5",
    "train --split dirichlet:-1": "dirichlet:-1",
    "train --split shards:x": "shards:x",
    "train --clip nan": "norm=nan",
    "train --clip -1": "norm=-1",
    "train --clip inf": "norm=inf): the norm must be positive and finite",
    "train --noise-multiplier nan": "noise_multiplier=nan",
    "train --noise-multiplier 0": "fedavg",
    "train --lr nan": "lr=nan",
    "train --lr -1": "lr=-1",
    "train --epochs 0": "epochs=0",
    "train --batch-size 0": "batch_size=0",
    "train --momentum 2": "momentum=2",
    "train --lr-decay nan": "lr_decay=nan",
    "train --proximal -1": "-1.0",
    "train --server-lr nan": "lr=nan",
    "train --weight-cap -1": "cap=-1",
    "train --set rounds=many": "rounds='many': a whole number",
    "train --set data.clients=true": "data.clients=True: a whole number",
    "train --set options.lr=fast": "options.lr='fast': a number",
    "train --set options.lr=[1,2]": "options.lr=[1, 2]: a number",
    "train --set options.epochs=1.5": "options.epochs=1.5: a whole number",
    "train --set options.clip=true": "options.clip=True: a number",
    "train --set options.sample=3": "options.sample=3: a text",
    "train --set rounds": "key=value",
    "train --set data=5": "'data'",
    "train --set noise_multiplier=1": "'options.noise_multiplier'",
    # what does not go together
    "train fedavg --epsilon 2": "hides nothing",
    "train fedavg --clip 2": "no option --clip",
    "train --unproven --epsilon 2": "exclude each other",
    # what is not proven runs if that is requested, and never otherwise
    "train nbafl": "nbafl: its privacy could not be proven",
    "train nbafl --epsilon 2": "--unproven",
    "train dp-fedsam-top-k --mask published": "--unproven",
    "train dp-fedsam-top-k --mask published --noise-multiplier 1": "--unproven",
    "train udp-fl --law staircase-as-published --records 7 --noise-multiplier 1": "--unproven",
    "audit nbafl": "--unproven",
    "tune dp-fedsam-top-k --pay --vary options.mask=dense,published": "--unproven",
    "train --resume somewhere --epsilon 4": "no other option",
    "train --resume somewhere --rounds 4": "--resume somewhere",
    "train --model cnn-cifar": "cnn-cifar",
    "train --task regression": "(2, 10) do not match targets",
    "train --task multi-label": "one column per label",
    "train --epochs 2 --steps 3": "--epochs 2 and --steps 3 exclude each other",
    "train --epochs 2 --set options.steps=3": "--epochs 2 and --steps 3 exclude each other",
    "train --set epsilon=none": "--noise-multiplier",
    "train --split shards:2": "--records-per-client 0",
    "train --split dirichlet-classes:0.5": "--records-per-client 0",
    "train prifedsync": "--records 7 (and a --batch that fits), or more with --records-per-client",
    # what would have no effect
    "train --data-dir here": "--data-dir here: digits come with scikit-learn",
    f"train --data own:client {OWN} --data-dir here": "--data-dir here",
    f"train --data own:client {OWN} --split banana": "--split banana",
    f"train --data own:client {OWN} --split iid": "--split iid",
    f"train --data own:client {OWN} --set data.split=banana": "--split banana",
    f"train --data own:client {OWN} --split-seed 3": "--split-seed 3",
    f"train --data own:client {OWN} --records-per-client 7": "--records-per-client 7",
    f"train --data own:client {OWN} --test-fraction 0.2": "--test-fraction 0.2",
    f"train --data ./nowhere {OWN} --split iid": "--split iid",
    "train --test-data own:client": "--test-data own:client: digits has a public test split",
    f"train --data own:client {OWN} --test-data own:text": "PublicData",
    "train --set pieces=Round()": "pieces='Round()' cannot be read",
    "train --set pieces=print(1)": "pieces='print(1)' cannot be read",
    "train --set pieces=Clip(norm=1)": "is no Round",
    "train dp-fedavg fedavg": "fedavg",
    # devices
    "train --device cuda:99": "cuda:99",
    "train --device gpu": "device='gpu'",
    "train --device mps": "float64, which mps does not have",
    # files and folders
    "train --config nothing.toml": "nothing.toml",
    "train --resume nothing": "--resume nothing",
    "train --out /dev/null/run": "/dev/null",
    "train --out /dev/null": "/dev/null",
    "train --out /proc/nobody": "/proc/nobody cannot be read or written",
    "train --data ./nowhere --outputs 2": "no folder nowhere",
    "evaluate nothing": "nothing",
    "report nothing": "nothing",
    "evaluate": "'RUN'",
    # a user's own code
    f"train --data nomodule:f {OWN}": "nomodule",
    f"train --data own:clients {OWN}": "'client'",
    f"train --data own:raises {OWN}": "the data 'own:raises' failed: RuntimeError",
    f"train --data own:raises_for_a_client {OWN}": "of 'own:raises_for_a_client' could not be loaded: RuntimeError",
    f"train --data own:text {OWN}": "a str",
    f"train --data own:wrong_labels {OWN}": "client",
    f"train --data syntax_error:f {OWN}": "SyntaxError",
    "train --data own:client --outputs 2": "--clients",
    "train --data own:client --clients 40": "--outputs",
    "train --model own:number": "a int",
    "train --model own:broken_model": "own:broken_model",
    "train --model own:nothing": "own:nothing",
    "train --model own:with_batchnorm": "BatchNorm",
}  # fmt: skip


@pytest.mark.parametrize("words", BAD_WORDS, ids=str)
def test_it_is_refused_in_a_sentence(words: str, sfumato: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("own.py").write_text(MODULE)
    Path("syntax_error.py").write_text("def f(:\n")
    monkeypatch.delitem(sys.modules, "own", raising=False)
    given = words.split()
    if given[0] == "train" and "--resume" not in given and "--rounds" not in words:
        given += ["--rounds", "2"]
    status, out, err = sfumato(*given)
    assert status == 2, (status, out, err)
    assert err.startswith("sfumato: ") and err.endswith("\n")
    assert BAD_WORDS[words] in err
    assert "Traceback" not in err and "did not foresee" not in err
    assert out == ""
    spent = list(Path("runs").rglob("ledger.sqlite"))
    assert not spent or "wrong_labels" in words, "refused before anything is spent"
    assert spent or not Path("runs").exists() or not any(Path("runs").iterdir()), "nothing is left behind"


BROKEN_FILES = {
    "not TOML at all [": "is not TOML",
    "schema = 99": "another version",
    "rounds = 'ten'": "rounds='ten'",
    "rounds = 0": "rounds=0",
    "epsilon = -2": "epsilon",
    "epsilon = nan": "epsilon",
    "round = 3": "'rounds'",
    "[dta]\nname = 'digits'": "'data'",
    "[data]\nname = 3": "data.name=3",
    "[options]\nlr = 'fast'": "options.lr",
    "[options.lr]\nvalue = 1": "options.lr",
    "options = 3": "options",
    "recipe = 'dp-fedavgg'": "'dp-fedavg'",
}


@pytest.mark.parametrize("text", BROKEN_FILES)
def test_a_broken_config_is_refused(text: str, sfumato: Command) -> None:
    Path("run.toml").write_text(text)
    for words in (["--config", "run.toml"], ["--resume", "."]):
        status, out, err = sfumato("train", *words)
        assert (status, out) == (2, "") and BROKEN_FILES[text] in err and "foresee" not in err, err
    Path("run.toml").write_bytes(b"\xff\xfe")
    assert sfumato("train", "--config", "run.toml").status == 2


@pytest.mark.parametrize("name", ["other.txt", "run.toml"])
def test_an_existing_folder_is_never_overwritten(name: str, sfumato: Command) -> None:
    Path("mine").mkdir()
    (Path("mine") / name).write_text("mine")
    status, _, err = sfumato("train", *SMALL, "--out", "mine")
    assert status == 2 and "never overwritten" in err
    assert (Path("mine") / name).read_text() == "mine" and len(list(Path("mine").iterdir())) == 1


def broken_clients() -> dict[str, tuple[dict[str, bytes], str]]:
    """Folders of which one client's file is broken, and what the sentence must say."""

    def file(**parts: object) -> bytes:
        buffer = io.BytesIO()
        np.savez(buffer, **parts)  # type: ignore[arg-type]
        return buffer.getvalue()

    good = file(x=np.ones((2, 3), np.float32), y=np.zeros(2, np.int64))
    many = {f"{n:03}.npz": good for n in range(10)}
    return {
        "empty folder": ({}, "no client"),
        "other files": ({"readme.txt": b"hello"}, "no client"),
        "garbage": ({**many, "000.npz": b"garbage"}, "people/000.npz is damaged"),
        "garbage for torch": ({**dict(list(many.items())[1:]), "000.pt": b"garbage"}, "people/000.pt is damaged"),
        "no y": ({**many, "000.npz": file(x=np.ones((2, 3)))}, "people/000.npz has x, but not y"),
        "more y than x": ({**many, "000.npz": file(x=np.ones((2, 3)), y=np.zeros(3))}, "2 records and y has 3"),
        "another shape": ({**many, "003.npz": file(x=np.ones((2, 4), np.float32), y=np.zeros(2, int))}, "client 3"),
        "pickled": ({**many, "000.npz": file(x=np.array([object()]), y=np.zeros(1))}, "people/000.npz is damaged"),
        "more than declared": ({**many, "010.npz": good}, "has 11"),
    }


@pytest.mark.parametrize("kind", broken_clients())
def test_a_folder_of_broken_files_is_refused(kind: str, sfumato: Command) -> None:
    files, sentence = broken_clients()[kind]
    Path("people").mkdir()
    for name, content in files.items():
        (Path("people") / name).write_bytes(content)
    words = ["--data", "people", "--clients", "10", "--outputs", "2", "--rounds", "2", "--sample", "everyone"]
    status, out, err = sfumato("train", *words)
    assert (status, out) == (2, "") and sentence in err and "foresee" not in err, err
    assert err.count("\n") == 1, "one sentence"


def test_who_is_declared_and_not_there_is_a_client_without_records(sfumato: Command) -> None:
    good, _ = broken_clients()["more than declared"]
    Path("people").mkdir()
    for name, content in {**good, ".011.npz": good["000.npz"]}.items():  # a hidden file is nobody's
        (Path("people") / name).write_bytes(content)
    words = ["--data", "people", "--clients", "13", "--outputs", "2", "--rounds", "2", "--sample", "everyone"]
    status, out, _ = sfumato("train", *words)
    assert status == 0 and "for each client, add/remove" in out


def test_with_json_a_refusal_is_json_too(sfumato: Command) -> None:
    status, out, err = sfumato("train", "--json", "--clip", "nan")
    assert (status, err) == (2, "") and "norm=nan" in json.loads(out)["refused"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_cuda_it_is_said_so(sfumato: Command) -> None:
    status, _, err = sfumato("train", *SMALL, "--device", "cuda")
    assert status == 2 and "no CUDA devices" in err


def test_offline_the_missing_files_are_named(sfumato: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*_: object, **__: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr(socket, "create_connection", offline)
    status, _, err = sfumato("train", "--data", "mnist", "--data-dir", "nowhere", "--clients", "10")
    assert status == 2 and "train-images-idx3-ubyte" in err and "nowhere" in err


def test_what_the_system_forbids_is_one_sentence(
    sfumato: Command, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(path: object, *_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    for name, commands in {
        "sfumato.run.folder.os.open": [["train", *SMALL, "--out", "new"], ["train", "--resume", str(finished)]],
        "pathlib.Path.read_text": [["evaluate", str(finished)], ["report", str(finished)]],
    }.items():
        for words in commands:
            with monkeypatch.context() as patch:
                patch.setattr(name, denied)
                status, out, err = sfumato(*words)
            assert (status, out) == (2, "") and "cannot be read" in err and "ermission denied" in err, err
            assert err.count("\n") == 1 and "foresee" not in err
    with monkeypatch.context() as patch:
        patch.setattr("sfumato.run.folder.os.open", denied)
        status, out, err = sfumato("train", *SMALL, "--json", "--out", "other")
    assert (status, err) == (2, "") and "run.lock cannot be read" in json.loads(out)["refused"]


def test_a_run_json_without_its_keys_is_refused_and_the_page_kept(sfumato: Command, finished: Path) -> None:
    shutil.copytree(finished, "run")
    Path("run/run.json").write_text('{"schema": 2}')
    before = Path("run/report.html").read_bytes()
    for command in ("evaluate", "report"):
        status, out, err = sfumato(command, "run")
        assert (status, out) == (2, "") and "run.json lacks recipe, data" in err
    assert Path("run/report.html").read_bytes() == before


def test_damaged_runs_are_refused(sfumato: Command, finished: Path) -> None:
    damages = {
        "run.json": ("evaluate", b"not json"),
        "params.safetensors": ("evaluate", b"garbage"),
        "ledger.sqlite": ("train --resume", b"garbage" * 1000),
    }
    for name, (command, content) in damages.items():
        shutil.copytree(finished, name)
        (Path(name) / name).write_bytes(content)
        status, _, err = sfumato(*command.split(), name)
        assert status == 2 and name in err and "foresee" not in err, (name, err)


def test_a_full_disk_is_told_and_the_run_goes_on_later(sfumato: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    from sfumato.run.folder import Line

    def full(*given: object, **named: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Line, "append", full)
        status, _, err = sfumato("train", *SMALL, "--out", "runs/a")
    assert status == 2 and "the disk is full: no space left on device. Make room, and go on with --resume" in err
    assert sfumato("train", "--resume", "runs/a")[0] == 0
