"""A small network whose first part came with weights and statistics, and the same written out."""

from __future__ import annotations

import torch
from torch import nn

from sfumato.key import Key

IMAGES = Key.from_seed(1).normal(4, 1, 6, 6).float()


class Pretrained(nn.Module):
    """A frozen part with BatchNorm and dropout of its own, and a head that trains behind dropout."""

    def __init__(self, body: nn.Module, head: nn.Linear) -> None:
        super().__init__()
        self.body, self.dropout, self.head = body, nn.Dropout(0.3), head

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.head(self.dropout(self.body(x).flatten(1))))


class Constant(nn.Module):
    """What a BatchNorm in evaluation is, with nothing left that could change."""

    def __init__(self, norm: nn.BatchNorm2d) -> None:
        super().__init__()
        assert norm.running_mean is not None and norm.running_var is not None
        shift, scale = norm.running_mean.clone(), (norm.running_var + norm.eps).sqrt()
        self.shift, self.scale = shift[:, None, None], (norm.weight.detach() / scale)[:, None, None]
        self.bias = norm.bias.detach().clone()[:, None, None]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x - self.shift) * self.scale + self.bias


def pretrained(classes: int = 3) -> Pretrained:
    with Key.from_seed(2).seeding_torch():
        layers = (nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5), nn.MaxPool2d(2))
        body, head = nn.Sequential(*layers), nn.Linear(16, classes)
        body[1].running_mean.uniform_(-1, 1)
        body[1].running_var.uniform_(0.5, 2)
        nn.init.uniform_(body[1].weight, 0.5, 2)
    return Pretrained(body.requires_grad_(False), head)


def written_out(classes: int = 3) -> Pretrained:
    """The slow twin: the norm as constants, no dropout in the frozen part."""
    model = pretrained(classes)
    body = model.body
    assert isinstance(body, nn.Sequential) and isinstance(body[1], nn.BatchNorm2d)
    body[1], body[3] = Constant(body[1]), nn.Identity()
    return model
