"""Audits and attacks: how close lower bounds come to what is proven, what attacks find, and how long each takes.

    python -m benchmarks audit [--quick] [--only WORD]

The bounds come from the command `sfumato audit` itself. `--quick` leaves out 64 convolutional networks. Attacks on pictures need
MNIST and CIFAR-10. Writes results/audit.json and results/audit.md.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from sfumato.audit.attack import Keep
from sfumato.audit.local_world import LocalWorld
from sfumato.audit.membership import Lira, Rmia, Threshold
from sfumato.audit.study import study
from sfumato.data.load import load
from sfumato.data.population import Records
from sfumato.key import Key
from sfumato.local.sgd import Sgd
from sfumato.models import build
from sfumato.objective import classification

RESULTS = Path(__file__).parent / "results"
DELTA = ["--delta", "1e-5", "--json"]
RECORDS = ["--sample", "everyone", "--records", "7", "--steps", "1"]
EVERYONE = ["--rounds", "5", "--noise-multiplier", "2.236"]
POISSON = ["--rounds", "10", "--noise-multiplier", "2"]
BOUNDS = {
    "clients, everyone, 5 rounds": ["dp-fedavg", "--sample", "everyone", *EVERYONE],
    "clients, Poisson 0.5, 10 rounds": ["dp-fedavg", "--sample", "poisson:0.5", *POISSON],
    "records, everyone, 5 rounds": ["prifedsync", *RECORDS, "--batch", "everyone", *EVERYONE],
    "records, Poisson 0.5, 10 rounds": ["prifedsync", *RECORDS, "--batch", "poisson:0.5", *POISSON],
}
Facts = dict[str, Any]


@contextmanager
def timed(found: Facts) -> Iterator[None]:
    """Seconds on the clock, and of work on all cores, in this process and its children."""
    wall, work = time.perf_counter(), _work()
    yield
    found["seconds"], found["work"] = round(time.perf_counter() - wall, 1), round(_work() - work, 1)


def _work() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def sfumato(*words: str) -> str:
    done = subprocess.run([sys.executable, "-m", "sfumato", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def bound(words: list[str], canaries: int) -> Facts:
    """The best of the bounds of an audit, as a share of what is proven, and which one it is."""
    more = ["--runs", "10", "--canaries", str(canaries)] if canaries else ["--runs", "2000"]
    found: Facts = {"command": " ".join(["sfumato audit", *words, *DELTA, *more])}
    with timed(found):
        told = json.loads(sfumato("audit", *words, *DELTA, *more))
    if canaries:
        once = told["one_run"]
        best = max(once["one_run"], once["one_run_f_dp"] or 0.0)
        return {
            **found,
            "proven": once["claimed"],
            "measured": best,
            "share": best / once["claimed"],
            "seconds": once["seconds"],
        }
    shares = {name: value / told["claimed"] for name, value in told["bounds"].items()}
    return {
        **found,
        "proven": told["claimed"],
        "measured": told["bounds"]["family"],
        "share": shares["family"],
        "shares": shares,
    }


def digits(folder: Path) -> Facts:
    """The default audit of a run on scikit-learn's digits."""
    sfumato("train", "--data", "digits", "--epsilon", "4", "--rounds", "30", "--out", str(folder / "run"), "--quiet")
    found: Facts = {"command": "sfumato audit runs/first"}
    with timed(found):
        told = json.loads(sfumato("audit", str(folder / "run"), "--json"))
    return {**found, "proven": told["claimed"], "measured": told["best"], "share": told["best"] / told["claimed"]}


def shadows(model: str, records: int, epochs: int, lr: float, folder: Path) -> Facts:
    """64 shadows of so many records of MNIST each; every attack with each of the first 16 in turn as the target."""
    train = load("mnist").train
    pool = Records(train.x[: 2 * records], train.y[: 2 * records])
    module = build(model, (1, 28, 28), 10, Key.from_seed(0))
    world = LocalWorld(pool, module, Sgd(lr=lr, epochs=epochs, batch_size=32), classification(10))
    found: Facts = {}
    with timed(found), Keep(folder / model, 0) as keep:
        rates, _ = study({Lira(): 16, Lira(online=False): 16, Rmia(): 16, Threshold(): 16}, world, 64, keep, _tell)
    return {**found, "tpr at fpr 0.01": {name: one["tpr at fpr 0.01"][0] for name, one in rates.items()}}


def inversion(folder: Path) -> Facts:
    """One picture of CIFAR-10 from one message, five times: plain, as the server sees it, and as it is released."""
    run = folder / "cifar"
    words = "--data cifar10 --model cnn-cifar --clients 1000 --rounds 1 --noise-multiplier 0.1"
    sfumato("train", "dp-fedavg", *words.split(), "--out", str(run), "--quiet")
    attack = "--attack inversion --set pictures=5 --set batch=0 --seed 1 --json"
    found: Facts = {"command": f"sfumato train dp-fedavg {words}; sfumato audit RUN {attack}"}
    with timed(found):
        answer = json.loads(sfumato("audit", str(run), *attack.split()))
    numbers, flat = answer["numbers"], answer["baselines"]["one picture: flat mean colour, psnr"]
    plain, noisy = (numbers[f"one picture, {view}: psnr"] for view in ("without clip and noise", "everyone"))
    held = {
        "at least 20 dB without noise": plain >= 20,
        "within 3 dB of a flat colour at noise 0.1": noisy <= flat + 3,
    }
    return {**found, "numbers": numbers, "baselines": answer["baselines"], "held": held}


def _tell(words: str) -> None:
    print(f"  {words}", file=sys.stderr, flush=True)


def cases(folder: Path, quick: bool) -> dict[str, tuple[str, float, float, Callable[[], Facts]]]:
    """By name: what is wanted in words, the least share of what is proven, the most seconds, and what to run."""
    found: dict[str, tuple[str, float, float, Callable[[], Facts]]] = {}
    for name, words in BOUNDS.items():
        found[name] = ("2 x 2,000 runs, family", 0.7, 240.0, lambda words=words: bound(words, 0))
    for name, words in BOUNDS.items():
        if "5 rounds" in name:
            found[f"one run, {name}"] = ("1,000 canaries", 0.2, 60.0, lambda words=words: bound(words, 1000))
    found["default audit of a digits run"] = ("canaries and membership", 0.0, 120.0, lambda: digits(folder))
    logistic = ("64 shadows, 2,000 records, 20 epochs", 0.0, 15.0, lambda: shadows("logistic", 2000, 20, 0.1, folder))
    found["LiRA, logistic"] = logistic
    found["inversion, cnn-cifar"] = ("five pictures, three views each, one step", 0.0, 150.0, lambda: inversion(folder))
    if not quick:
        network = (
            "64 shadows, 10,000 records, 10 epochs",
            0.0,
            900.0,
            lambda: shadows("cnn-mnist", 10_000, 10, 0.05, folder),
        )
        found["LiRA, cnn-mnist"] = network
    return found


def page(results: Facts) -> str:
    lines = [
        "# Audits and attacks",
        "",
        f"`{results['command']}` on {results['cores']} cores, torch {results['torch']}. Seconds on the clock of a machine that "
        "does other work too, and seconds of work on all cores. Bounds hold with 95 % confidence at delta 1e-5.",
        "",
        "| what | how | proven | measured | share | wanted | seconds | work | wanted |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, one in results["cases"].items():
        numbers = [f"{one[key]:.3f}" if key in one else "" for key in ("proven", "measured", "share")]
        wanted = (f"{one['least']:g}" if one["least"] else "", f"{one['seconds']:.1f}", one["work"], f"{one['most']:g}")
        lines.append("| " + " | ".join(map(str, (name, one["how"], *numbers, *wanted))) + " |")
    for name, one in results["cases"].items():
        if "held" in one:
            told = [f"{what}: {'held' if yes else 'missed'}" for what, yes in one["held"].items()]
            lines += ["", f"{name}: {'; '.join(told)}."]
        for key in ("tpr at fpr 0.01", "numbers"):
            if key in one:
                told = [f"{word} {value:.3g}" for word, value in one[key].items()]
                base = [f"{word} {value:.3g}" for word, value in one.get("baselines", {}).items()]
                lines += [
                    "",
                    f"{name}, {key}: {'; '.join(told)}." + (f" Without the attack: {'; '.join(base)}." if base else ""),
                ]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks audit")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="", help="only what has this word in its name; other results stay")
    told = parser.parse_args()
    path = RESULTS / "audit.json"
    before = json.loads(path.read_text())["cases"] if told.only and path.exists() else {}
    results: Facts = {
        "command": "python -m benchmarks audit", "cores": torch.get_num_threads(), "torch": torch.__version__,
        "python": platform.python_version(), "cases": before,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        for name, (how, least, most, run) in cases(Path(folder), told.quick).items():
            if told.only not in name:
                continue
            results["cases"][name] = one = {"how": how, "least": least, "most": most, **run()}
            print(name, {key: value for key, value in one.items() if key != "command"}, flush=True)
            path.write_text(json.dumps(results, indent=2) + "\n")
            path.with_suffix(".md").write_text(page(results))
    return int(any(_missed(one) for one in results["cases"].values()))


def _missed(one: Facts) -> bool:
    slow, loose = one["seconds"] > one["most"], one.get("share", 1.0) < one["least"]
    return slow or loose or not all(one.get("held", {}).values())


if __name__ == "__main__":
    sys.exit(main())
