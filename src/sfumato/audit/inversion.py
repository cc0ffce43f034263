"""The attack `inversion`: pictures from what a client sends, and from what is released, by gradient inversion."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from sfumato.audit.attack import Found, Keep, Subject, Tell, outputs_of
from sfumato.audit.gallery import Gallery
from sfumato.audit.gradient_match import Known, Search
from sfumato.audit.labels_from_bias import last_bias, recovered, share_right
from sfumato.audit.one_client import SERVER, WORLD, Victim, one_step, steps_of, whole_batches
from sfumato.audit.picture_measures import Pixels, flat, measured, paired, psnr
from sfumato.data.population import Population, Records
from sfumato.errors import BadValue
from sfumato.key import Key
from sfumato.local.sgd import Sgd
from sfumato.pieces.protocol import Noisy
from sfumato.round import Round
from sfumato.run.prepare import Prepared
from sfumato.update import Layout

BARE = "without clip and noise"
_SMOOTH, _SMOOTHER = 1e-2, 1e-1  # without noise, and with
_MOST, _MOST_PUBLIC = 100, 1000


@dataclass(frozen=True)
class Scene:
    """Records that one client holds, and who looks on."""

    name: str
    view: str
    number: int
    records: Records

    @property
    def file(self) -> str:
        return f"inversion-{self.name}-{self.view}-{self.number}".replace(" ", "-")


@dataclass(frozen=True)
class Inversion:
    """Gradient inversion (Geiping et al. 2020) on messages of the run's own round, as it treats clients with these records.

    `pictures` clients hold one record each, and one more holds `batch` of them; 0 leaves it out. They take so many local `steps` on
    all of their records, or with 0 as many as the run has them take. The model is the untrained one, which is public and shows
    most, or the `trained` one.
    """

    name: ClassVar[str] = "inversion"
    summary: ClassVar[str] = "pictures from a client's message by gradient inversion (Geiping et al. 2020)"
    pictures: int = 2
    batch: int = 4
    steps: int = 1
    iterations: int = 1200
    trained: bool = False

    def __post_init__(self) -> None:
        if self.pictures < 1 or not 0 <= self.batch <= _MOST or self.iterations < 1:
            raise BadValue(f"{self}: at least 1 picture and 1 iteration, and batches of up to {_MOST}.")
        if self.steps not in (0, 1):
            raise BadValue(f"steps={self.steps}: 1 local step, or 0 for as many as the run has.")

    def __call__(self, subject: Subject, keep: Keep, tell: Tell) -> Found:
        prepared, layout = subject.prepared, Layout.of(subject.module)
        if prepared.objective.task != "classification" or prepared.test is None:
            raise BadValue("inversion is for runs that classify pictures and have public test data. Attack such a run.")
        pixels = Pixels.of(prepared.test.records.x)
        params = layout.row(subject.module if self.trained else prepared.module)
        single, several = self._records(prepared.population, keep.key.child("victims"))
        scenes = [
            Scene(name, view, number, records)
            for name, group in (("one picture", single), ("batch", several))
            for number, records in enumerate(group)
            for view in (BARE, SERVER, WORLD)
        ]
        guesses: dict[str, Tensor] = {}
        right: dict[str, list[float]] = {}
        for place, scene in enumerate(scenes, start=1):
            round = self.round_of(prepared.round, scene)
            facts = (scene.records, scene.view, params, prepared.module, round, self.iterations)
            found = keep.once(scene.file, facts, lambda: self.search(prepared, round, scene, params, pixels, keep.key))  # noqa: B023
            guesses[scene.file] = found["pictures"]
            right.setdefault(f"{scene.name}, {scene.view}", []).append(share_right(found["labels"], scene.records.y))
            tell(f"{place}/{len(scenes)}: {scene.name}, {scene.view}")
        return self._found(scenes, guesses, right, pixels)

    def _records(self, population: Population, key: Key) -> tuple[list[Records], list[Records]]:
        """Records of clients drawn by a key: single ones of some, and several of another."""
        order = key.permutations(1, population.size)[0].tolist()
        some: list[Records] = []
        several = Records(torch.empty(0), torch.empty(0))
        for client in order:
            records = population.client(client).train
            if records.count and len(some) < self.pictures:
                some.append(Records(records.x[:1], records.y[:1]))
            elif self.batch and records.count > several.count:
                several = Records(records.x[: self.batch], records.y[: self.batch])
            if len(some) == self.pictures and several.count >= self.batch:
                break
        return some, [several] if several.count > 1 else []

    def round_of(self, round: Round, scene: Scene) -> Round:
        """The run's round for this client: one step on all of its records, or as it is."""
        if scene.view == BARE:
            plain = Sgd(lr=0.1, steps=1, batch_size=scene.records.count)
            return replace(round, local=plain, client=(), server=(), personal=None, nonprivate=True, unproven=False)
        count = scene.records.count
        return one_step(round, count) if self.steps else whole_batches(round, count)

    def search(
        self, prepared: Prepared, round: Round, scene: Scene, params: Tensor, pixels: Pixels, key: Key
    ) -> dict[str, Tensor]:
        """Pictures and labels for one client, from nothing but what the view shows and what is public."""
        own = key.child("inversion", scene=scene.file)
        victim = Victim(replace(prepared, round=round), scene.records, params)
        seen = victim.seen(WORLD if scene.view == WORLD else SERVER, own.child("round"))
        module = victim.module()
        assert prepared.test is not None, "it was asked for before"
        said = outputs_of(copy.deepcopy(module), prepared.test.records.x[:_MOST_PUBLIC]).softmax(1).mean(0)
        bias = last_bias(-seen, module, Layout.of(module), prepared.outputs)
        labels = recovered(bias, scene.records.count, said)
        known = Known(module, prepared.objective.loss, pixels, *steps_of(round, scene.records.count))
        search = Search(self.iterations, smooth=_SMOOTHER if noisy(round, scene.view == WORLD) else _SMOOTH)
        return {"pictures": search(known, seen, labels, tuple(scene.records.x.shape[1:]), own), "labels": labels}

    def _found(
        self, scenes: list[Scene], guesses: dict[str, Tensor], right: dict[str, list[float]], pixels: Pixels
    ) -> Found:
        numbers: dict[str, float] = {}
        baselines: dict[str, float] = {}
        rows: dict[str, dict[str, list[Tensor]]] = {}
        for scene in scenes:
            shown = rows.setdefault(scene.name, {"true": []})
            if scene.view == BARE:
                shown["true"].append(scene.records.x)
            shown.setdefault(scene.view, []).append(paired(guesses[scene.file], scene.records.x))
        for name, shown in rows.items():
            truth, *others = (torch.cat(part) for part in shown.values())
            for view, found in zip(list(shown)[1:], others, strict=True):
                numbers |= {f"{name}, {view}: {word}": value for word, value in measured(found, truth, pixels).items()}
                numbers[f"{name}, {view}: labels right"] = float(np.mean(right[f"{name}, {view}"]))
            baselines |= beside(f"{name}: ", truth, pixels)
        pictures: dict[str, Any] = {
            name.replace(" ", "-"): gallery({row: torch.cat(part) for row, part in shown.items()}, pixels).figure
            for name, shown in rows.items()
        }
        return Found(self.name, numbers, baselines, self._notes(), pictures)

    def _notes(self) -> tuple[str, ...]:
        steps = "one local step on all of its records" if self.steps else "as many local steps as the run has"
        return (
            "The attacker knows the model, the loss, the learning rate and how many records and steps there were; not the labels, "
            "which come from the gradient of the last biases.",
            f"A client takes {steps}, at the {'trained' if self.trained else 'untrained'} model. Where batches are drawn at "
            "random, these records are those that were drawn.",
            "`server`: the message as the server of this run sees it, where no secure sum hides it. `everyone`: what is released, "
            f"if the attacker knows all other messages. `{BARE}`: what a plain gradient would show.",
            "MSE and MAE are in the units of the records as they are scaled, PSNR (dB) and SSIM of pixels from 0 to 1. Pictures of "
            "a batch are paired with the true ones as suits the attacker best.",
        )


def noisy(round: Round, released: bool) -> bool:
    """Whether noise is in what is seen: that of the clients, and of the server where it is a release."""
    pieces: tuple[Noisy, ...] = (round.local, *round.client, *(round.server if released else ()))
    return any((found := piece.noise_and_norm()) is not None and found[0] > 1e-6 for piece in pieces)


def beside(name: str, truth: Tensor, pixels: Pixels) -> dict[str, float]:
    """What guesses that show nothing reach: the picture's own mean colour, and grey, which is 0 in the units of the records."""
    guesses = {"flat mean colour": flat(truth), "grey": torch.zeros_like(truth)}
    return {
        f"{name}{guess}, {word}": value
        for guess, made in guesses.items()
        for word, value in measured(made, truth, pixels).items()
    }


def gallery(rows: dict[str, Tensor], pixels: Pixels) -> Gallery:
    """The true pictures, then the guesses with their PSNR, and each picture's flat mean colour."""
    truth, *others = (pixels.unit(pictures) for pictures in rows.values())
    shown = dict(zip(rows, (truth, *others), strict=True)) | {"flat": flat(truth)}
    captions = {
        name: tuple(f"{value:.1f} dB" for value in psnr(made, truth).tolist())
        for name, made in shown.items()
        if name != next(iter(rows))
    }
    return Gallery(shown, captions)
