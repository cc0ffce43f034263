"""How many records are in work at once: by shapes alone, and never too many to hold."""

from __future__ import annotations

import torch
from torch import nn

from sfumato.gradients.micro_batch import suited


def picture_model(channels: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, channels, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(channels * 784, 10))


def test_linear_models_take_many_and_large_pictures_few() -> None:
    x = torch.zeros(3, 1, 28, 28)
    few, fewer = (suited(picture_model(channels), x, 1000) for channels in (16, 64))
    assert 1024 > few > 3 * fewer > 0
    assert suited(nn.Linear(400, 10), torch.zeros(3, 400), 4010) == 1024


def test_gradients_that_are_written_out_fit_into_memory() -> None:
    assert suited(nn.Linear(400, 10), torch.zeros(3, 400), 2**24) == 4
    assert suited(nn.Linear(400, 10), torch.zeros(3, 400), 2**40) == 1


def test_values_and_the_number_of_records_decide_nothing_and_the_module_stays() -> None:
    module = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 3)).train()
    numbers = {suited(module, torch.full((many, 6), float(many)), 83) for many in (1, 7)}
    assert len(numbers) == 1 and module.training and not module[0]._forward_hooks


def test_several_outputs_of_a_layer_count() -> None:
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.memory, self.head = (
                nn.Embedding(20, 4),
                nn.LSTM(4, 64, batch_first=True),
                nn.Linear(64, 20),
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.as_tensor(self.head(self.memory(self.words(x))[0]))

    assert suited(Last(), torch.zeros(2, 500, dtype=torch.int64), 19_000) == 2**23 // (500 * (1 + 4 + 64 + 20))
