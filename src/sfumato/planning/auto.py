"""Good settings from public facts alone: `choose(Known(...))` says what, and why. It never sees a record.

What it rests on was measured on data sets that serve as proxies (docs/frontier.md). A linear model on fixed features of a known
norm has a simple law: whatever epsilon, classes, clients or records, training does best when all noise together moves an output
by about `_NOISE` in standard deviation. The noise in the last model depends on learning rate times rounds only, so more
rounds cost nothing but time, and the learning rate grows with epsilon and with the population.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from sfumato.account.calibrate import calibrate_noise
from sfumato.account.event import Event, GaussianEvent, PoissonSampled, Repeated
from sfumato.errors import BadValue

TASKS = ("classification", "next-character")  # whose settings are known
_NOISE = 2.7  # what all noise together may move an output by
_NORM = 3.0  # of the features of a record, beside which the bias counts for a ninth
_MOMENTUM = 0.9
_LOCAL = 18.0  # learning rate of clients, for features of norm 1
_SPEED = 1.5e10  # multiplications a second, about, of one core of today
_SIGNAL = 4.0  # how many times its noise the sum of all rounds should be
_DIMENSIONS = (25, 50, 100, 200, 400)
_EVERYONE = 1000  # clients that are asked in every round; of more, as many are drawn
_ROUNDS = (20, 100)
_STEPS, _EACH = 600, 0.008  # most steps of one holder, and the seconds that each takes besides its records
_LOCAL_STEPS, _BATCH = 4, (30, 150)
_CHARACTERS = 3
_TEXT = (
    "a recurrent model has too many parameters for the noise: a linear one of the last characters learns pairs of them"
)
_NO_PICTURES = (
    "no pictures, so only their norm is known: scale and choose columns yourself if they are of different kinds"
)


@dataclass(frozen=True)
class Known:
    """What is public before training: the declared population, the kind of records, the budget, and the time to spend."""

    central: bool  # one holder has all records, which are hidden; else clients are
    clients: int
    records: int  # of each client, about
    classes: int
    shape: tuple[int, ...]
    task: str
    epsilon: float
    delta: float
    public: str | None = None  # records that anybody may use to learn a basis
    seconds: float = 10.0
    features: str | None = None  # chosen already, with how many numbers they make of a record, and the norm of these
    width: int = 0
    norm: float = _NORM
    rate: float | None = None  # of clients or records in a round; this and what follows, if it was chosen already
    rounds: int | None = None
    clip: float | None = None
    momentum: float = _MOMENTUM

    @property
    def units(self) -> int:
        """How many there are of what is hidden."""
        return self.records if self.central else self.clients


@dataclass(frozen=True)
class Choice:
    """One setting, by its key in run.toml, and the reason for it."""

    key: str
    value: Any
    why: str


def choose(known: Known) -> tuple[Choice, ...]:
    """The settings, in the order in which they were decided.

    >>> letters = Known(False, 500, 120, 26, (1, 28, 28), "classification", 4.0, 0.002, public="mnist")
    >>> [(choice.key, choice.value) for choice in choose(letters)][:2]
    [('data.features', 'scattering,group-norm,pca:400,unit-norm:3'), ('model.name', 'logistic')]
    """
    if not (0 < known.epsilon < math.inf and 0 < known.delta < 1 and 0 < known.seconds < math.inf):
        raise BadValue(
            f"epsilon={known.epsilon}, delta={known.delta}, seconds={known.seconds}: epsilon and seconds are positive and finite, "
            "and delta lies between 0 and 1. Use 2.0, 1e-5 and 10.0, say."
        )
    if known.clip is not None and not 0 < known.clip < math.inf:
        raise BadValue(f"clip norm={known.clip}: it must be positive and finite, e.g. 1.0.")
    if not 0 <= known.momentum < 1:
        raise BadValue(f"momentum={known.momentum}: at least 0 and below 1, e.g. 0.9.")
    if known.task not in TASKS:
        raise BadValue(
            f"--auto: it knows good settings for classes and for text, not for {known.task}. Choose settings yourself, or use tune."
        )
    features, width = _features(known) if known.features is None else (None, known.width)
    model = Choice("model.name", "logistic", "few parameters: noise grows with the root of their number")
    return (*([] if features is None else [features]), model, *(_steps if known.central else _rounds)(known, width))


def _gaussian_mu(known: Known) -> float:
    """What one look at everybody's data may tell at this budget: the inverse of the noise that it needs."""
    return 1.0 / calibrate_noise(GaussianEvent, known.epsilon, known.delta)


def _features(known: Known) -> tuple[Choice, int]:
    """What records are mapped by, and how many numbers it makes of each."""
    if known.task == "next-character":
        steps, width, why = [f"last-characters:{_CHARACTERS}"], 128 * _CHARACTERS, _TEXT
    elif len(known.shape) == 3:
        steps, width, why = _picture(known)
    else:
        steps, width, why = ["pixels"], math.prod(known.shape), _NO_PICTURES
    if known.public is not None and known.task == "classification":
        wanted = (_gaussian_mu(known) * known.units / _SIGNAL) ** 2 / known.classes
        fits = [size for size in _DIMENSIONS if size <= min(width, wanted)] or [min(_DIMENSIONS[0], width)]
        width = fits[-1]
        steps.append(f"pca:{width}")
        why += f"; {width} directions of {known.public}: as many as stand out from the noise, at most {_DIMENSIONS[-1]}"
    steps.append(f"unit-norm:{_NORM:g}")
    return Choice("data.features", ",".join(steps), f"{why}; one norm for all, so that learning rates are known"), width


def _picture(known: Known) -> tuple[list[str], int, str]:
    """Wavelets know pictures without any data; the smaller these are, the fewer scales there is room for."""
    channels, height, width = known.shape
    scales = 2 if min(height, width) >= 16 else 1 if min(height, width) >= 8 else 0
    if not scales:
        return ["pixels"], channels * height * width, "too small for wavelets"
    steps, why = [], "wavelets know pictures without any data"
    if channels == 3 and not known.central and known.public is None:
        steps, channels = ["grey"], 1
        why = "colours are worth less here than the noise of three times as many numbers; " + why
    paths, groups = (81, "") if scales == 2 else (9, ":9")
    steps += ["scattering" if scales == 2 else "scattering:1", f"group-norm{groups}"]
    return steps, paths * channels * (height >> scales) * (width >> scales), why


def _rounds(known: Known, width: int) -> tuple[Choice, ...]:
    """Clients train, and each whole update is clipped."""
    rate = known.rate or min(1.0, _EVERYONE / known.clients)
    cohort, records = rate * known.clients, known.records or _LOCAL_STEPS * _BATCH[0]
    batch = min(records, max(_BATCH[0], min(_BATCH[1], math.ceil(records / _LOCAL_STEPS))))
    work = 6.0 * cohort * batch * _LOCAL_STEPS * (width + 1) * known.classes
    rounds = _affordable(known, work)
    noise, clip = _noise(known, rate, rounds), known.clip or 1.0
    lr = _learning_rate(known, cohort, rounds, noise, clip)
    sample = "everyone" if rate == 1.0 else f"poisson:{_rounded(rate)}"
    return (
        Choice("options.sample", sample, "the larger the cohort, the smaller the noise beside it"),
        Choice(
            "rounds", rounds, f"as many as {known.seconds:g} s are about enough for: they cost time, and no accuracy"
        ),
        Choice("options.clip", clip, "about the length of an update; the server's learning rate is fitted to it"),
        Choice(
            "options.steps",
            _LOCAL_STEPS,
            "few local steps say where a client's records pull; the update is clipped anyway",
        ),
        Choice("options.batch_size", batch, "a quarter of a client's records, from 30 to 150, or all that it has"),
        Choice(
            "options.lr",
            _rounded(_LOCAL / known.norm**2),
            f"updates are then long enough, at features of norm {known.norm:g}",
        ),
        *_server("options.server_optimizer", "options.server_lr", lr, noise, rounds, known),
    )


def _steps(known: Known, width: int) -> tuple[Choice, ...]:
    """One holder steps along the mean of clipped gradients of single records."""
    work = 4.0 * known.records * (width + 1) * known.classes
    rounds = known.rounds or max(_ROUNDS[1], min(_STEPS, round(30 * known.seconds)))
    left = max(known.seconds / 2, known.seconds - _EACH * rounds)
    rate = known.rate or min(1.0, left * _SPEED / (work * rounds))
    noise, clip = _noise(known, rate, rounds), known.clip or _rounded(known.norm / 10.0)
    lr = _learning_rate(known, rate * known.records, rounds, noise, clip)
    batch = "everyone" if rate == 1.0 else f"poisson:{_rounded(rate)}"
    return (
        Choice("rounds", rounds, f"many small steps rather than few: about what {known.seconds:g} s are enough for"),
        Choice(
            "options.batch", batch, "as many records as there is time for: the more, the smaller the noise beside them"
        ),
        Choice(
            "options.clip",
            clip,
            f"a tenth of the norm of features, {known.norm:g}, so that most are clipped; the learning rate is fitted to it",
        ),
        *_server("options.optimizer", "options.lr", lr, noise, rounds, known),
    )


def _server(moves: str, rate: str, lr: float, noise: float, rounds: int, known: Known) -> tuple[Choice, ...]:
    why = f"noise of {noise:.3g} in each of {rounds} rounds then moves an output by {_NOISE:g}: it grows with epsilon"
    average = _rounded(max(0.0, 1.0 - 6.0 / rounds))
    return (
        Choice(moves, "momentum", f"of {known.momentum:g}: rounds that agree add up, noise does not"),
        Choice(rate, _rounded(lr), why),
        Choice(
            "options.average", average, "the mean of about the last sixth of the rounds has less noise than the last"
        ),
    )


def _affordable(known: Known, work: float) -> int:
    fewest, most = _ROUNDS
    return known.rounds or max(fewest, min(most, int(known.seconds * _SPEED / work)))


def _noise(known: Known, rate: float, rounds: int) -> float:
    """About the noise that so many rounds need; training finds its own by its derivation."""

    def event(ratio: float) -> Event:
        one = GaussianEvent(ratio)
        return Repeated(one if rate == 1.0 else PoissonSampled(rate, one), rounds)

    return calibrate_noise(event, known.epsilon, known.delta)


def _learning_rate(known: Known, cohort: float, rounds: int, noise: float, clip: float) -> float:
    """Noise adds up over rounds and momentum, and each round's is `noise` clip norms over the cohort."""
    return _NOISE * (1.0 - known.momentum) * cohort / (math.sqrt(rounds) * noise * clip * known.norm)


def _rounded(number: float) -> float:
    return float(f"{number:.3g}")
