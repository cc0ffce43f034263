"""An ordinary training loop of one's own over the recipe `dp-sgd`: the engine's steps, moved by an optimizer of torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from sfumato import recipes
from sfumato.calibration import calibrate_with_order, noise_and_clip
from sfumato.data.datasets import records_of
from sfumato.data.loaders import loaded
from sfumato.data.population import Population
from sfumato.engine.simulate import simulate
from sfumato.engine.simulation import Progress
from sfumato.errors import BadValue, UnsoundRound
from sfumato.guarantee import Guarantee, default_delta
from sfumato.ledger.spending import price_before
from sfumato.objective import Objective
from sfumato.pieces.context import StepContext
from sfumato.pieces.protocol import State
from sfumato.round import Round
from sfumato.several_inputs import taking
from sfumato.update import Layout

_BEGINNING = (
    "the module and the optimizer began with nothing that was learnt from these records; what an earlier session learnt from them "
    "costs as well, and a ledger that both share adds it up"
)


def private(
    module: nn.Module,
    optimizer: torch.optim.Optimizer,
    data: Any,
    loss: Objective | Callable[[Tensor, Tensor], Tensor],
    *,
    batch_size: int | None = None,
    records: int | None = None,
    epochs: float | None = None,
    steps: int | None = None,
    clip: float = 1.0,
    epsilon: float | None = None,
    delta: float | None = None,
    noise_multiplier: float | None = None,
    micro_batch: int = 0,
    seed: int | None = None,
    name: str | None = None,
    ledger: str | Path | None = None,
    force_ledger: bool = False,
    adaptive: bool = False,
) -> Session:
    """Train your own module with your own optimizer, private for each record: `for step in private(...)`.

    Each step draws records by chance (Poisson), each with probability `batch_size / records`; clips every record's gradient to
    `clip`; adds Gaussian noise of `noise_multiplier * clip` to their sum, whatever was drawn, nothing included; divides by
    `batch_size`, a constant; puts that into every `.grad`, and calls `optimizer.step()`. So `batch_size` is the *expected* size
    of a batch. Give `noise_multiplier`, or `epsilon`, for which the smallest noise is found that proves it at `delta` (default:
    1e-5, or a tenth of one over the declared `records` if that is less); and `steps`, or `epochs`, which are
    `epochs * records / batch_size` steps.

    `data` is `(x, y)`, a torch Dataset of such pairs, or a DataLoader, of which the dataset is taken, and its batch size as the
    expected one; its order is not used. Everything is read into memory at once. Where a record has several inputs, x is a dict
    or a tuple of tensors, or the record a dict of them with its `labels`; the module is called with them, by name or by place,
    and answers with a tensor, or something that has `logits`. `loss(outputs, y)` gives one number per
    record (`reduction="none"`), or is an Objective. `records` is a public number that you declare; without it they are counted,
    and the guarantee says so. The randomness comes from a fresh secret of the system; `seed` replaces it, for simulations only.
    `ledger` is a file that adds this training to others on the same records, which `name` names. All `steps` are accounted for
    from the first one on; an `adaptive` session, or one with a `ledger`, accounts for those that were taken, at one Renyi order.

    States what the recipe `dp-sgd` states, from the same derivation and the same ledger: (epsilon, delta) for each record
    under add/remove, against anyone who sees the released models of all steps, but not which records were drawn; and nothing
    against you, who hold the records. Any optimizer and any schedule is post-processing: it is given what was released, and
    nothing else.

    >>> module = nn.Linear(4, 2)
    >>> data = torch.randn(500, 4), torch.randint(2, (500,))
    >>> loss = nn.CrossEntropyLoss(reduction="none")
    >>> session = private(module, torch.optim.Adam(module.parameters()), data, loss, batch_size=50, records=500, steps=20,
    ...                   epsilon=2.0, delta=1e-4)
    >>> for step in session:
    ...     pass
    >>> session
    Session(step 20 of 20, rate 0.1, noise multiplier 1.206)
    >>> 1.99 < session.epsilon() <= 2.0
    True
    """
    source, batch_size = _batch_size(data, batch_size)
    found = records_of(source, "the data")
    count = found.count if records is None else records
    rate = _rate(batch_size, count)
    steps = _steps(steps, epochs, rate)
    _check_optimizer(module, optimizer)
    _check_budget(noise_multiplier, epsilon)
    delta = default_delta(records) if delta is None else delta
    options: dict[str, Any] = {"batch": f"poisson:{rate!r}", "records": count, "clip": clip, "micro_batch": micro_batch}
    options |= {"optimizer": "sgd", "lr": 1.0}  # the update as it was released: what moves by it is the user's own
    options |= {} if noise_multiplier is None else {"noise_multiplier": noise_multiplier}
    round = recipes.build("dp-sgd", 1, options)
    order = None
    if epsilon is not None:
        by = price_before(None if ledger is None else Path(ledger), adaptive, delta)
        target = {"epsilon": epsilon, "delta": delta}
        round, order = calibrate_with_order(round, by, **target, rounds=steps, population=1)
    population = Population.from_list([found], name or "records", None if name is None else [name])
    counted = () if records is not None else (f"that there are {count} records is public: they were counted",)
    population = replace(population, assumes=(*counted, _BEGINNING))
    objective = loss if isinstance(loss, Objective) else Objective(loss)
    budget = None if epsilon is None else (epsilon, delta)
    kept: dict[str, Any] = {"shared_ledger": ledger, "force_ledger": force_ledger, "seed": seed, "budget": budget}
    kept |= {"adaptive": adaptive, "order": order, "delta": delta}
    return Session(module, optimizer, round, population, objective, steps, delta, kept)


class Session:
    """A private training that is ready to start; `private` makes it. Iterate over it, or call `step`, until its steps are taken.

    Each step gives a `Progress`: released values, and how long it took. The loss of a batch is not among them, since it is a
    function of private records that nothing pays for; measure on public data. A session cannot be copied, nor continue in a process
    that was forked from its own: each would count its own steps alone.
    """

    def __init__(
        self,
        module: nn.Module,
        optimizer: torch.optim.Optimizer,
        round: Round,
        population: Population,
        objective: Objective,
        steps: int,
        delta: float,
        kept: dict[str, Any],
    ) -> None:
        self.module, self.optimizer, self.steps, self.delta = module, optimizer, steps, delta
        self.round, self.taken = round, 0
        self._layout, self._given = Layout.of(module), dict[str, tuple[Tensor, int]]()
        self._check_gradients()
        device = {str(parameter.device) for parameter in module.parameters()}
        if len(device) > 1:
            raise BadValue(
                f"the module lies on several devices: {', '.join(sorted(device))}. Move it to one, with module.to()."
            )
        facts = {**kept, "device": device.pop(), "learn": self._learn}
        inside = taking(module, population.client(0).train.inputs)
        self._run = simulate(round, population, inside, objective, rounds=steps, **facts)
        self._row, self._steps = self._layout.row(module), iter(self._run)

    def __repr__(self) -> str:
        rate = self.round.local.batch.rate  # type: ignore[attr-defined]  # the recipe's local training is DpSgd
        return (
            f"Session(step {self.taken} of {self.steps}, rate {rate:g}, noise multiplier {self.noise_multiplier:.4g})"
        )

    def __reduce__(self) -> NoReturn:
        raise BadValue(
            "a session cannot be copied or pickled: each copy would count its own steps alone. Copy session.module, or begin "
            "another session."
        )

    def __len__(self) -> int:
        """How many steps are left."""
        return self.steps - self.taken

    @property
    def noise_multiplier(self) -> float:
        """The standard deviation of the noise in the sum of a batch, over the clip norm."""
        return noise_and_clip(self.round)[0] or 0.0

    def __iter__(self) -> Iterator[Progress]:
        """The steps that are left; a loop that breaks off can be followed by another."""
        while self.taken < self.steps:
            yield self.step()

    def step(self, *batch: object) -> Progress:
        """Take one step: it is paid for, then computed, then shown."""
        if batch:
            raise BadValue(
                "step() takes no batch: the records of a step are drawn by chance inside it, once, which is what is accounted. "
                "Leave out the loader, and loop over the session."
            )
        if not len(self):
            raise BadValue(f"all {self.steps} steps were taken. Begin another session to go on, which costs more.")
        self._check_parameters()
        self._check_gradients()
        progress = next(self._steps, None)
        if progress is None:
            raise BadValue(
                "a step failed before, and its noise is not drawn again. What it cost is counted. Begin another session."
            )
        self.taken = progress.round
        return progress

    def guarantee(self, delta: float | None = None) -> Guarantee:
        """What was spent so far on each record, and what that proves: from the ledger, as in any run."""
        return self._run.guarantee(self.delta if delta is None else delta)

    def epsilon(self, delta: float | None = None) -> float:
        """The epsilon of `guarantee`."""
        epsilon = self.guarantee(delta).epsilon
        assert epsilon is not None, "the recipe is proven"
        return epsilon

    def _learn(self, params: Tensor, state: State, update: Tensor, context: StepContext) -> tuple[Tensor, State]:
        """Let the user's optimizer move the user's parameters, along what was released."""
        parameters = dict(self.module.named_parameters())
        for name, part in self._layout.split(-update).items():
            parameter = parameters[name]
            gradient = part.to(parameter.device, parameter.dtype, copy=True)
            parameter.grad, self._given[name] = gradient, (gradient, gradient._version)
        self.optimizer.step()
        self._row = self._layout.row(self.module)
        return self._row, state

    def _check_parameters(self) -> None:
        """What is not the last step's may have been learnt from records that nothing paid for."""
        if Layout.of(self.module) != self._layout:
            raise BadValue(
                "other parameters are trainable than when the session began. Freeze what shall not move, and begin another."
            )
        if not torch.equal(self._layout.row(self.module), self._row):
            raise UnsoundRound(
                "the module's parameters are not those of the last step: something else has changed them, and nobody knows what "
                "that cost.",
                "let the session alone move them; to begin elsewhere, begin another session.",
            )

    def _check_gradients(self) -> None:
        for name, parameter in self.module.named_parameters():
            gradient = parameter.grad
            known, version = self._given.get(name, (None, 0))
            if gradient is None or (gradient is known and gradient._version == version) or not gradient.any():
                continue
            raise UnsoundRound(
                f"{name}.grad holds a gradient that the session did not put there: that of a backward pass is neither clipped nor "
                "noised.",
                "leave out loss.backward() and optimizer.step(), which the session does, and call optimizer.zero_grad().",
            )


def _batch_size(data: Any, batch_size: int | None) -> tuple[Any, int]:
    source, of_loader = loaded(data)
    size = of_loader if batch_size is None else batch_size
    if size is None:
        raise BadValue("how large is a batch, on average? Give batch_size=, e.g. 256.")
    if of_loader not in (None, size):
        raise BadValue(f"batch_size={batch_size}, but the DataLoader's is {of_loader}. Leave one of them out.")
    return source, size


def _rate(batch_size: int, records: int) -> float:
    whole = all(isinstance(number, int) and not isinstance(number, bool) for number in (batch_size, records))
    if not whole or not 1 <= batch_size <= records:
        raise BadValue(
            f"batch_size={batch_size} of records={records}: whole numbers, and a batch is at least 1 and at most all of them."
        )
    return batch_size / records


def _steps(steps: int | None, epochs: float | None, rate: float) -> int:
    if (steps is None) == (epochs is None):
        raise BadValue(f"steps={steps}, epochs={epochs}: how long shall it train? Give one of them, e.g. epochs=3.")
    if epochs is None:
        assert steps is not None, "one of them is given"
        return steps
    if not (epochs > 0 and math.isfinite(epochs)):
        raise BadValue(f"epochs={epochs}: a positive number of passes over the records, e.g. 3.")
    return max(1, math.ceil(epochs / rate * (1 - 1e-12)))  # 3 epochs of 100 steps are 300, also in floating point


def _check_budget(noise_multiplier: float | None, epsilon: float | None) -> None:
    if (noise_multiplier is None) == (epsilon is None):
        raise BadValue(
            f"noise_multiplier={noise_multiplier}, epsilon={epsilon}: how much noise? Give one of them, e.g. epsilon=2.0."
        )


def _check_optimizer(module: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise BadValue(f"the optimizer is a {type(optimizer).__name__}. Give one of torch.optim, or of that kind.")
    if isinstance(optimizer, torch.optim.LBFGS):
        raise BadValue(
            "LBFGS asks for the loss again and again within a step, and one noisy gradient is what a step pays for. Give an "
            "optimizer that steps along a gradient, such as SGD or Adam."
        )
    trained = {parameter: name for name, parameter in module.named_parameters() if parameter.requires_grad}
    moved = {parameter for group in optimizer.param_groups for parameter in group["params"]}
    if left := [name for parameter, name in trained.items() if parameter not in moved]:
        raise BadValue(
            f"the optimizer does not have {', '.join(left)}: its gradient would be clipped and noised with the others', and go "
            "unused. Freeze it (requires_grad_(False)), or give optimizer all of module.parameters()."
        )
    if any(parameter not in trained for parameter in moved if parameter.requires_grad):
        raise BadValue(
            "the optimizer has parameters that are not the module's, which would never get a gradient. Make it of "
            "module.parameters()."
        )
