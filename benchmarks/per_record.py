"""Records per second of one private step, beside Opacus and the non-private step.

    python benchmarks/per_record.py --peers DIR

`DIR/pfl/bin/python` is an environment with Opacus (default: the variable PEERS, else `.peers`). The environments take turns;
each round is one process in each, which times its contenders in turn. A number is the median over rounds, a ratio the median of
the rounds' ratios. Every private step includes Gaussian noise from torch's generator, which is also what Opacus uses, and the
update of the parameters; "keyed noise" is our step with noise from the project's cryptographic key instead.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

Step = Callable[[], object]
Clients = list[tuple[torch.Tensor, torch.Tensor]]
RESULTS = Path(__file__).parent / "results"
TARGETS = (
    ("cnn-emnist, ours over Opacus hooks", "emnist ours", "emnist Opacus hooks", 3.0, 4.0),
    ("cnn-emnist, ours over Opacus ghost clipping", "emnist ours", "emnist Opacus ghost", 1.3, 1.8),
    ("cnn-emnist, ours over non-private", "emnist ours", "emnist non-private", 0.5, 0.7),
    (
        "cnn-emnist, ours over non-private, channels last",
        "emnist ours",
        "emnist non-private, channels last",
        None,
        None,
    ),
    ("cnn-emnist, ours over vmap(grad)", "emnist ours", "emnist vmap(grad)", None, None),
    (
        "cnn-emnist, ours with keyed noise over non-private",
        "emnist ours, keyed noise",
        "emnist non-private",
        None,
        None,
    ),
    ("cnn-mnist, 20 clients, ours over vmap(grad)", "mnist ours", "mnist vmap(grad)", 2.0, None),
    ("cnn-mnist, 20 clients, ours over non-private", "mnist ours", "mnist non-private", None, None),
)


def cnn_emnist() -> nn.Module:
    """1,690,046 parameters."""
    first = (nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2))
    second = (nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2))
    return nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, 62))


def cnn_mnist() -> nn.Module:
    """108,618 parameters."""
    first = (nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2))
    second = (nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2))
    return nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(800, 128), nn.ReLU(), nn.Linear(128, 10))


def plain(module: nn.Module, x: torch.Tensor, y: torch.Tensor) -> Step:
    """A step of SGD without privacy."""
    parameters = list(module.parameters())

    def step() -> None:
        gradients = torch.autograd.grad(F.cross_entropy(module(x), y), parameters)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.sub_(gradient, alpha=0.001)

    return step


def private(module: nn.Module, clients: Clients, keyed: bool = False) -> Step:
    """Our step, for each client in turn: clipped sum, noise, update of its own row."""
    from sfumato.gradients import ClippedSum
    from sfumato.key import Key
    from sfumato.objective import classification
    from sfumato.update import Layout

    layout = Layout.of(module)
    clipped = ClippedSum(module, layout, classification(62).loss, 1.0)
    rows = [layout.row(module) for _ in clients]
    generator, key = torch.Generator(), Key.from_seed(0)

    def step() -> None:
        for row, (x, y) in zip(rows, clients, strict=True):
            total = clipped(row, x, y)
            size = layout.dimension
            total.add_(key.normal(size) if keyed else torch.randn(size, generator=generator))
            row.sub_(total, alpha=0.001 / len(x))

    return step


def textbook(module: nn.Module, clients: Clients) -> Step:
    """The same step as tutorials write it, with `vmap(grad)`."""
    models = [{name: p.detach().clone() for name, p in module.named_parameters()} for _ in clients]

    def single(parameters: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(torch.func.functional_call(module, parameters, (x.unsqueeze(0),)), y.unsqueeze(0))

    each = torch.func.vmap(torch.func.grad(single), (None, 0, 0))

    def step() -> None:
        for parameters, (x, y) in zip(models, clients, strict=True):
            gradients = each(parameters, x, y)
            norms = torch.stack([g.flatten(1).norm(dim=1) for g in gradients.values()]).norm(dim=0)
            factors = (1.0 / norms).clamp(max=1.0)
            for name, gradient in gradients.items():
                total = torch.einsum("n,n...->...", factors, gradient)
                parameters[name].sub_(total + torch.randn_like(total), alpha=0.001 / len(x))

    return step


def our_steps() -> dict[str, tuple[Step, int]]:
    """Each contender's step and how many records it takes, in this project's environment."""
    x, y = torch.randn(32, 1, 28, 28), torch.randint(0, 62, (32,))
    last = x.contiguous(memory_format=torch.channels_last)
    clients = [(torch.randn(16, 1, 28, 28), torch.randint(0, 10, (16,))) for _ in range(20)]
    models = [(cnn_mnist(), *client) for client in clients]
    each = [plain(*model) for model in models]
    return {
        "emnist non-private": (plain(cnn_emnist(), x, y), 32),
        "emnist ours": (private(cnn_emnist(), [(x, y)]), 32),
        "emnist non-private, channels last": (plain(cnn_emnist().to(memory_format=torch.channels_last), last, y), 32),
        "emnist ours, keyed noise": (private(cnn_emnist(), [(x, y)], keyed=True), 32),
        "emnist vmap(grad)": (textbook(cnn_emnist(), [(x, y)]), 32),
        "mnist ours": (private(cnn_mnist(), clients), 320),
        "mnist non-private": (lambda: [step() for step in each], 320),
        "mnist vmap(grad)": (textbook(cnn_mnist(), clients), 320),
    }


def opacus_steps() -> dict[str, tuple[Step, int]]:
    """The same for Opacus, which must be importable."""
    from opacus.grad_sample import GradSampleModule
    from opacus.grad_sample.grad_sample_module_fast_gradient_clipping import GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizer
    from opacus.optimizers.optimizer_fast_gradient_clipping import DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    x, y = torch.randn(32, 1, 28, 28), torch.randint(0, 62, (32,))
    options: dict[str, Any] = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "expected_batch_size": 32}
    hooks = GradSampleModule(cnn_emnist())
    hooks_optimizer = DPOptimizer(torch.optim.SGD(hooks.parameters(), 0.001), **options)

    def hooks_step() -> None:
        hooks_optimizer.zero_grad()
        F.cross_entropy(hooks(x), y).backward()
        hooks_optimizer.step()

    ghost = GradSampleModuleFastGradientClipping(cnn_emnist(), max_grad_norm=1.0, use_ghost_clipping=True)
    ghost_optimizer = DPOptimizerFastGradientClipping(torch.optim.SGD(ghost.parameters(), 0.001), **options)
    criterion = DPLossFastGradientClipping(ghost, ghost_optimizer, nn.CrossEntropyLoss())

    def ghost_step() -> None:
        ghost_optimizer.zero_grad()
        criterion(ghost(x), y).backward()
        ghost_optimizer.step()

    return {"emnist Opacus hooks": (hooks_step, 32), "emnist Opacus ghost": (ghost_step, 32)}


def measure(steps: dict[str, tuple[Step, int]], seconds: float, busy: bool, turns: int = 4) -> dict[str, float]:
    """Records per second: the median step over several short turns, so that a slow moment meets every contender."""
    clock = time.process_time if busy else time.perf_counter
    times: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(turns + 1):
        for name, (step, _) in steps.items():
            end = time.perf_counter() + seconds / turns
            while True:
                start = clock()
                step()
                if turn:  # the first turn warms up
                    times[name].append(clock() - start)
                if time.perf_counter() > end or not turn:
                    break
    return {name: steps[name][1] / statistics.median(taken) for name, taken in times.items()}


def rounds(python: dict[str, str], count: int, seconds: float, threads: int, busy: bool) -> list[dict[str, float]]:
    """The measurements, one dictionary for each round."""
    found: list[dict[str, float]] = []
    for number in range(count):
        result: dict[str, float] = {}
        for worker, interpreter in python.items():
            options = ["--worker", worker, "--seconds", str(seconds), "--threads", str(threads), *["--busy"] * busy]
            run = subprocess.run([interpreter, __file__, *options], capture_output=True, text=True, check=True)
            result |= json.loads(run.stdout.splitlines()[-1])
        found.append(result)
        print(f"round {number + 1}: " + ", ".join(f"{name} {value:.0f}" for name, value in result.items()), flush=True)
    return found


def summary(found: list[dict[str, float]], threads: int, busy: bool) -> dict[str, Any]:
    """Medians of the rates and of the ratios within a round."""
    rates = {name: statistics.median(r[name] for r in found) for name in found[0]}
    ratios = []
    for title, one, two, target, goal in TARGETS:
        if one in rates and two in rates:
            values = sorted(r[one] / r[two] for r in found)
            ratios.append(
                {
                    "name": title,
                    "ratio": statistics.median(values),
                    "low": values[0],
                    "high": values[-1],
                    "target": target,
                    "goal": goal,
                }
            )
    setting = {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "threads": threads,
        "rounds": len(found),
        "clock": "processor time" if busy else "wall",
    }
    return {"setting": setting, "records_per_second": rates, "ratios": ratios}


def page(result: dict[str, Any]) -> str:
    """The result as a page of Markdown."""
    setting = ", ".join(f"{name} {value}" for name, value in result["setting"].items())
    command = "python benchmarks/per_record.py" + (" --busy" if result["setting"]["clock"] != "wall" else "")
    lines = [
        "# Per-record clipping",
        "",
        f"From `{command}`; {setting}. cnn-emnist: batch 32; cnn-mnist: batch 16, 20 clients.",
        "Private steps include noise (torch's generator, where not said otherwise) and the update.",
        "",
        "| contender | records per second |",
        "|---|---:|",
        *(f"| {name} | {rate:,.0f} |" for name, rate in result["records_per_second"].items()),
        "",
        "| ratio | median | lowest to highest | target | goal |",
        "|---|---:|---:|---:|---:|",
    ]
    for row in result["ratios"]:
        target, goal = (row[key] if row[key] is not None else "" for key in ("target", "goal"))
        lines.append(
            f"| {row['name']} | {row['ratio']:.2f} | {row['low']:.2f} to {row['high']:.2f} | {target} | {goal} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run the workers in turn, or be one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, default=Path(os.environ.get("PEERS", ".peers")))
    parser.add_argument("--quick", action="store_true", help="two rounds")
    parser.add_argument("--rounds", type=int, help="default 5; quick: 2")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each contender in each round")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--busy", action="store_true", help="one thread and processor time, on a machine with other work"
    )
    parser.add_argument("--worker", choices=("ours", "opacus"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.rounds = options.rounds or (2 if options.quick else 5)
    options.threads = 1 if options.busy else options.threads
    torch.set_num_threads(options.threads)
    if options.worker:
        warnings.simplefilter("ignore")
        steps = our_steps() if options.worker == "ours" else opacus_steps()
        print(json.dumps(measure(steps, options.seconds, options.busy)))
        return
    python = {"ours": sys.executable}
    opacus = options.peers / "pfl" / "bin" / "python"
    if opacus.exists():
        python["opacus"] = str(opacus)
    else:
        print(f"{opacus} does not exist: without Opacus. Give its environment by --peers or PEERS.")
    found = rounds(python, options.rounds, options.seconds, options.threads, options.busy)
    result = summary(found, options.threads, options.busy)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "per_record.json").write_text(json.dumps(result, indent=1) + "\n")
    (RESULTS / "per_record.md").write_text(page(result))
    print(page(result))


if __name__ == "__main__":
    main()
