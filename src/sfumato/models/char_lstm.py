"""A recurrent model of text: from a window of characters to the next one."""

from __future__ import annotations

import torch
from torch import nn

from sfumato.errors import BadValue


class CharLstm(nn.Module):
    """An embedding, LSTM layers, and a linear layer on the last state (McMahan et al. 2017).

    Takes numbers of characters [records, positions] and gives [records, characters]. Clients are trained one by one:
    under vmap a recurrent layer is several times slower.
    """

    def __init__(self, characters: int, embedding: int = 8, units: int = 256, layers: int = 2) -> None:
        super().__init__()
        for name, value in (("embedding", embedding), ("units", units), ("layers", layers)):
            if value < 1:
                raise BadValue(f"CharLstm({name}={value}): at least 1.")
        self.embedding = nn.Embedding(characters, embedding)
        self.recurrent = nn.LSTM(embedding, units, layers, batch_first=True)
        self.readout = nn.Linear(units, characters)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        states, _ = self.recurrent(self.embedding(x))
        return torch.as_tensor(self.readout(states[:, -1]))


def char_lstm(name: str, size: str, shape: tuple[int, ...], outputs: int) -> nn.Module:
    """`char-lstm`, or a smaller one by its `size`: `64` for two layers of 64 units, `64x1` for one layer."""
    if len(shape) != 1:
        raise BadValue(
            f"{name} takes windows [positions] of characters; these records have the shape {shape}. Use it with "
            "--data shakespeare, or choose another model."
        )
    if not size:
        return CharLstm(outputs)
    units, _, layers = size.partition("x")
    if not units.isdecimal() or (layers and not layers.isdecimal()) or size.endswith("x"):
        raise BadValue(f"{name}:{size}: give the units, or units and layers, e.g. {name}:64 or {name}:64x1.")
    return CharLstm(outputs, units=int(units), layers=int(layers or 2))
