"""The attack `reconstruction`: a network that turns a model's answers back into pictures (UDP-FL, Appendix E).

It is trained on public records like the clients', with two aims: its picture is close to the true one, and the model gives it the
same answer (the feedback). Then it is shown the answers for records that the model was trained on.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from sfumato.audit.attack import Found, Keep, Subject, Tell, outputs_of
from sfumato.audit.inversion import beside, gallery
from sfumato.audit.picture_measures import Pixels, measured
from sfumato.audit.victims import drawn_records
from sfumato.data.population import Records
from sfumato.errors import BadValue
from sfumato.key import Key
from sfumato.pieces.optimizer import Adam
from sfumato.update import Layout

_WIDTH, _INNER = 64, 256
_BATCH, _STEP = 64, 1e-3


class Decoder(nn.Module):
    """Answers to pictures of a shape: two linear layers, and two that double the sides."""

    shift: Tensor
    scale: Tensor

    def __init__(self, answers: int, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.shape = shape
        self.register_buffer(
            "shift", torch.zeros(answers)
        )  # what public answers are standardised by: those of an untrained
        self.register_buffer("scale", torch.ones(answers))  # model hardly differ, and tell as much
        self.small = tuple(-(-side // 4) for side in shape[1:])
        self.first = nn.Sequential(
            nn.Linear(answers, _INNER), nn.ReLU(), nn.Linear(_INNER, _WIDTH * math.prod(self.small)), nn.ReLU()
        )
        self.last = nn.Sequential(
            nn.ConvTranspose2d(_WIDTH, _WIDTH // 2, 4, 2, 1),
            nn.ReLU(),
            nn.ConvTranspose2d(_WIDTH // 2, shape[0], 4, 2, 1),
        )

    def forward(self, answers: Tensor) -> Tensor:
        """The pictures, cut to their size."""
        pictures: Tensor = self.last(self.first((answers - self.shift) / self.scale).reshape(-1, _WIDTH, *self.small))
        return pictures[..., : self.shape[1], : self.shape[2]]


@dataclass(frozen=True)
class Network:
    """How the network is trained: passes over the public records, and how much the feedback counts."""

    epochs: int = 10
    feedback: float = 0.1

    def trained(self, target: nn.Module, public: Tensor, key: Key) -> Decoder:
        """The decoder for one model's answers."""
        answers = answers_of(target, public)
        with key.child("weights").seeding_torch():
            decoder = Decoder(answers.shape[1], tuple(public.shape[1:]))
        decoder.shift, decoder.scale = answers.mean(0), answers.std(0) + 1e-6
        layout, adam = Layout.of(decoder), Adam(lr=_STEP, epsilon=1e-8)
        row = layout.row(decoder)
        state = adam.start(row)
        for rows in (torch.from_numpy(order) for order in key.child("order").permutations(self.epochs, len(public))):
            for some in torch.split(rows, _BATCH):
                made = decoder(answers[some])
                loss = ((made - public[some]) ** 2).mean()
                if self.feedback:
                    off = (target(made).log_softmax(1) - answers[some]) / decoder.scale
                    loss = loss + self.feedback * (off**2).mean()
                gradients = torch.autograd.grad(loss, list(decoder.parameters()))
                row, state = adam.step(row, state, -torch.cat([gradient.flatten() for gradient in gradients]))
                layout.write(row, decoder)
        return decoder.eval()

    def state(self, target: nn.Module, public: Tensor, key: Key) -> dict[str, Tensor]:
        return self.trained(target, public, key).state_dict()


def answers_of(target: nn.Module, x: Tensor) -> Tensor:
    """The logarithms of what a model gives each class."""
    return outputs_of(target, x).log_softmax(1)


@dataclass(frozen=True)
class Reconstruction:
    """Appendix E's attack on the trained model: black box answers, and gradients through the model while the network learns.

    `public` records of the test split train the network; it is asked about `records` of clients, and as many that no client has.
    """

    name: ClassVar[str] = "reconstruction"
    summary: ClassVar[str] = "pictures from a model's answers by a trained network (UDP-FL, Appendix E)"
    records: int = 500
    public: int = 2000
    epochs: int = 10
    feedback: float = 0.1

    def __post_init__(self) -> None:
        if self.records < 1 or self.public < 1 or self.epochs < 1 or not self.feedback >= 0.0:
            raise BadValue(f"{self}: at least 1 record, 1 public record and 1 epoch; feedback is not negative.")

    def __call__(self, subject: Subject, keep: Keep, tell: Tell) -> Found:
        prepared = subject.prepared
        if prepared.objective.task != "classification" or prepared.test is None:
            raise BadValue(
                "reconstruction is for runs that classify pictures and have public test data. Attack such a run."
            )
        pixels, key = Pixels.of(prepared.test.records.x), keep.key.child("reconstruction")
        members = drawn_records(prepared.population, self.records, key.child("victims"))
        public, others = parted(prepared.test.records, self.public, self.records, key.child("public"))
        network, made = Network(self.epochs, self.feedback), {}
        for place, (name, target) in enumerate(
            {"trained": subject.module, "untrained": prepared.module}.items(), start=1
        ):
            frozen, own = copy.deepcopy(target).eval().requires_grad_(False), key.child("network", called=name)
            compute = partial(network.state, frozen, public.x, own)
            state = keep.once(f"reconstruction-{name}", (frozen, public, self.epochs, self.feedback), compute)
            decoder = Decoder(prepared.outputs, tuple(public.x.shape[1:]))
            decoder.load_state_dict(state)
            tell(f"{place}/2: network for the {name} model")
            made[name] = {
                group: pixels.within(outputs_of(decoder, answers_of(frozen, records.x)))
                for group, records in (("members", members), ("others", others))
            }
        return _found(self.name, made, members, others, public, pixels)


def parted(records: Records, public: int, others: int, key: Key) -> tuple[Records, Records]:
    """Public records in two: to learn from, and to be asked about; at most a third is for the second."""
    order = torch.from_numpy(key.permutations(1, records.count)[0])
    asked = min(others, records.count // 3)
    learnt = order[asked : asked + public]
    return Records(records.x[learnt], records.y[learnt]), Records(records.x[order[:asked]], records.y[order[:asked]])


def guesses_without_a_model(public: Records, asked: Records) -> dict[str, Tensor]:
    """What needs no model: the mean public picture, and that of the record's own class."""
    mean = public.x.mean(0, keepdim=True)
    classes = torch.cat(
        [public.x[public.y == y].mean(0, keepdim=True) if (public.y == y).any() else mean for y in asked.y]
    )
    return {"mean picture": mean.expand_as(asked.x), "mean picture of the class": classes}


def _found(
    name: str, made: Mapping[str, dict[str, Tensor]], members: Records, others: Records, public: Records, pixels: Pixels
) -> Found:
    numbers = {
        f"members: {word}": value for word, value in measured(made["trained"]["members"], members.x, pixels).items()
    }
    numbers |= {
        f"others: {word}": value for word, value in measured(made["trained"]["others"], others.x, pixels).items()
    }
    baselines = beside("", members.x, pixels)
    without = guesses_without_a_model(public, members) | {"untrained model": made["untrained"]["members"]}
    for guess, pictures in without.items():
        baselines |= {f"{guess}, {word}": value for word, value in measured(pictures, members.x, pixels).items()}
    shown = slice(0, 8)
    rows: dict[str, Any] = {"true": members.x[shown], "trained": made["trained"]["members"][shown]}
    rows |= {
        "untrained": made["untrained"]["members"][shown],
        "class mean": without["mean picture of the class"][shown],
    }
    notes = (
        "The attacker has the model and its answers for the records asked about, and public records like the clients'. `others` "
        "are public records that neither the model nor the network has seen: only what is better for members is a leak of "
        "training.",
        "MSE and MAE are in the units of the records as they are scaled, in which a grey picture is 0; PSNR (dB) and SSIM are of "
        "pixels from 0 to 1.",
    )
    return Found(name, numbers, baselines, notes, {"reconstruction": gallery(rows, pixels).figure})
