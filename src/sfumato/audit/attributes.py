"""The attack `attributes`: what a model's inner layer tells of people that nobody asked it (UDP-FL, Table 8).

White box: the attacker reads the penultimate layer, and has an auxiliary set of other people whose attribute it knows. A network
of two layers learns the attribute from that layer. Pictures show a face's gender to anybody, so accuracy alone shows no leak:
the same network on raw pixels, on an untrained model, and on people whom the model has never seen stand beside it.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from scipy import stats
from torch import Tensor, nn

from sfumato.audit.attack import Found, Keep, Subject, Tell, outputs_of
from sfumato.audit.victims import drawn_records
from sfumato.data.load import load, share_records
from sfumato.data.population import Records
from sfumato.errors import BadValue
from sfumato.key import Key

HIDDEN = {"utkface": "utkface-gender", "utkface-gender": "utkface", "utkface-ethnicity": "utkface-gender"}
_UNITS, _PASSES = 64, 60
Inner = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Attributes:
    """Attribute inference on a run: `attribute` is the data set with the same pictures and the hidden targets.

    By default gender for runs on age groups. A third of the public test split is asked about besides `records` of clients; the
    rest is the auxiliary set.
    """

    name: ClassVar[str] = "attributes"
    summary: ClassVar[str] = "a hidden attribute from the penultimate layer by a two-layer network"
    attribute: str = ""
    records: int = 2000

    def __call__(self, subject: Subject, keep: Keep, tell: Tell) -> Found:
        prepared, key = subject.prepared, keep.key.child("attributes")
        hidden = self.hidden_of(subject)
        members = hidden.of(drawn_records(prepared.population, self.records, key.child("victims")))
        order = torch.from_numpy(key.child("auxiliary").permutations(1, hidden.test.count)[0])
        others, auxiliary = (
            Records(hidden.test.x[rows], hidden.test.y[rows]) for rows in order.tensor_split([len(order) // 3])
        )
        groups = {"members": members, "others": others}
        numbers: dict[str, float] = {}
        baselines, bands = majority(auxiliary, groups), {}
        inner = {
            "trained model": penultimate(subject.module),
            "untrained model": penultimate(prepared.module),
            "raw pixels": flat,
        }
        for place, (name, layer) in enumerate(inner.items(), start=1):
            facts = (name, auxiliary, members, others, subject.module, prepared.module)
            found = keep.once(
                f"attributes-{name}".replace(" ", "-"), facts, partial(guessed, layer, auxiliary, groups, key)
            )
            tell(f"{place}/{len(inner)}: {name}")
            for group, records in groups.items():
                scores, band = scored(found[group], records.y)
                into = numbers if place == 1 else baselines
                prefix = group if place == 1 else f"{name}, {group}"
                into |= {f"{prefix}: {word}": value for word, value in scores.items()}
                bands[f"{prefix}: accuracy"] = band
        return Found(self.name, numbers, baselines, _notes(hidden.name, auxiliary.count), bands=bands)

    def hidden_of(self, subject: Subject) -> Hidden:
        data = subject.prepared.request.data
        name = self.attribute or HIDDEN.get(data.name, "")
        if not name or data.name not in HIDDEN or not share_records(name, data.name) or name == data.name:
            raise BadValue(
                f"attribute={name!r}: the records of {data.name!r} have no such hidden attribute. Attack a run on utkface, with "
                "attribute utkface-gender or utkface-ethnicity."
            )
        if data.features or data.test or data.public:
            raise BadValue(
                "attributes are found by pictures as they are stored. Attack a run without features or other test data."
            )
        return Hidden.load(name, data.folder or None)


@dataclass(frozen=True)
class Hidden:
    """Who has which attribute: records are known by their pixels, so it does not matter to whom they were shared out."""

    name: str
    by_pixels: dict[bytes, int]
    test: Records

    @staticmethod
    def load(name: str, folder: str | None) -> Hidden:
        dataset = load(name, folder)
        return Hidden(name, Hidden.by_record(dataset.train), dataset.test.records)

    @staticmethod
    def by_record(records: Records) -> dict[bytes, int]:
        """The target of each record by its pixels."""
        return {_pixels(x): int(y) for x, y in zip(*records, strict=True)}

    def of(self, records: Records) -> Records:
        """The same records with their hidden attribute as the target."""
        found = [self.by_pixels.get(_pixels(x)) for x in records.x]
        if None in found:
            raise BadValue(
                f"a client has a picture that {self.name} does not hold. Give the folder that the run was trained on."
            )
        return Records(records.x, torch.tensor(found))


def _pixels(x: Tensor) -> bytes:
    return hashlib.blake2b(x.contiguous().numpy().tobytes(), digest_size=16).digest()


def flat(x: Tensor) -> Tensor:
    """Pixels in a row."""
    return x.flatten(1)


def penultimate(module: nn.Module) -> Inner:
    """What goes into the last linear layer."""
    layers = [layer for layer in module.modules() if isinstance(layer, nn.Linear)]
    if not layers:
        raise BadValue("the model has no linear layer, so it has no penultimate one. Use another model.")

    def inner(x: Tensor) -> Tensor:
        seen: list[Tensor] = []
        hook = layers[-1].register_forward_pre_hook(lambda _, given: seen.append(given[0].detach()))
        try:
            outputs_of(module, x)
        finally:
            hook.remove()
        return torch.cat(seen).flatten(1)

    return inner


def guessed(inner: Inner, auxiliary: Records, asked: dict[str, Records], key: Key) -> dict[str, Tensor]:
    """The attribute of each record asked about, by a network of two layers that has learnt from the auxiliary set."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPClassifier

    learnt = inner(auxiliary.x)
    shift, scale = learnt.mean(0), learnt.std(0) + 1e-6
    seed = int(key.child("network").integers(1)[0] % 2**31)
    network = MLPClassifier((_UNITS,), max_iter=_PASSES, early_stopping=True, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # it stops early, or after its passes
        network.fit(((learnt - shift) / scale).numpy(), auxiliary.y.numpy())
    return {
        name: torch.from_numpy(network.predict(((inner(records.x) - shift) / scale).numpy()))
        for name, records in asked.items()
    }


def majority(auxiliary: Records, groups: dict[str, Records]) -> dict[str, float]:
    """Always the commonest attribute of the auxiliary set."""
    commonest = int(auxiliary.y.mode().values)
    return {f"commonest, {name}: accuracy": float((one.y == commonest).double().mean()) for name, one in groups.items()}


def scored(guess: Tensor, truth: Tensor) -> tuple[dict[str, float], tuple[float, float]]:
    """Accuracy and F1 (of the second class, or the mean over several), and the exact 95 % interval of the accuracy."""
    from sklearn.metrics import f1_score

    right, count = int((guess == truth).sum()), len(truth)
    average = "binary" if int(truth.max()) <= 1 else "macro"
    found = {
        "accuracy": right / count,
        "f1": float(f1_score(truth.numpy(), guess.numpy(), average=average, zero_division=0.0)),
    }
    low, high = stats.beta.ppf([0.025, 0.975], [right, right + 1], [count - right + 1, count - right])
    return found, (0.0 if right == 0 else float(low), 1.0 if right == count else float(high))


def _notes(name: str, auxiliary: int) -> tuple[str, ...]:
    return (
        f"The attacker has the model, the pictures asked about, and {auxiliary} public pictures of other people with {name}. "
        "`others` are people whom the model has never seen.",
        "Pictures show the attribute themselves: only what the trained model adds to raw pixels, or has for members and not for "
        "others, could be a leak. Bands are exact binomial, 95 % each, over the records asked about; the network's own luck is "
        "not in them.",
    )
