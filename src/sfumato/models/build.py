"""Small models by name. Their initial weights come from a public key, so everybody can make them again.

| name         | layers                                                             | parameters            |
|--------------|--------------------------------------------------------------------|-----------------------|
| `logistic`   | one linear layer                                                   | 7,850 (28x28, 10)     |
| `mlp`        | two hidden layers of 200, the 2NN of McMahan et al. 2017           | 199,210 (28x28, 10)   |
| `cnn-mnist`  | conv 3x3 16, pool, conv 3x3 32, pool, 128 units                    | 108,618 (28x28, 10)   |
| `cnn-emnist` | conv 5x5 32, pool, conv 5x5 64, pool, both padded, 512 units       | 1,690,046 (28x28, 62) |
| `cnn-cifar`  | conv 3x3 32, pool, conv 3x3 64, pool, conv 3x3 64, 64 units        | 122,570 (3x32x32, 10) |
| `cnn-medical` | four times conv 3x3 (16, 32, 64, 64), padded, pools between them, 128 units | 134,854 (28x28, 6)  |
| `cnn-wind`   | conv 5 16, conv 5 16, conv 1 along the hours                       | 1,889 (7x48, 48)      |
| `resnet-18`  | four stages of two residual blocks, GroupNorm                      | 11,173,962 (3x32x32, 10) |
| `char-lstm`  | embedding 8, two LSTM layers of 256; `char-lstm:64` has two of 64, `char-lstm:64x1` one | 819,920 (80) |
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable

import torch
from torch import nn

from sfumato.errors import BadValue, nearest
from sfumato.imports import import_path, is_import_path
from sfumato.key import Key
from sfumato.models.char_lstm import char_lstm
from sfumato.models.resnet import resnet_18


def build(name: str | nn.Module, input_shape: tuple[int, ...], outputs: int, key: Key) -> nn.Module:
    """The model of that name for records of `input_shape`, with weights that follow from the key alone.

    `module:function` is called with those of `input_shape` and `outputs` that it takes; a module comes back as it is.
    Torch's global generator is left as it was.

    >>> model = build("logistic", (1, 28, 28), 10, Key.from_seed(0))
    >>> sum(p.numel() for p in model.parameters())
    7850
    """
    if isinstance(name, nn.Module):
        return name
    base, _, size = name.partition(":")
    if name in _MODELS or base in _SIZED:
        with key.child("ignored").seeding_torch():  # torch draws weights whether we want them or not
            shape = tuple(input_shape)
            module = _SIZED[base](base, size, shape, outputs) if base in _SIZED else _MODELS[name](shape, outputs)
        return _initialise(module, key.child("weights"))
    if is_import_path(name):
        return _imported(name, tuple(input_shape), outputs, key)
    raise BadValue(f"unknown model {name!r}. {nearest(name, NAMES)} Your own is module:function.")


def _imported(path: str, input_shape: tuple[int, ...], outputs: int, key: Key) -> nn.Module:
    with key.child("import").seeding_torch():
        found = import_path(path)
    if not isinstance(found, nn.Module):
        if not callable(found):
            raise BadValue(f"{path} is a {type(found).__name__}. It must be a function that returns a torch.nn.Module.")
        offered = {"input_shape": input_shape, "outputs": outputs}
        taken = {word: value for word, value in offered.items() if word in inspect.signature(found).parameters}
        with key.child("weights").seeding_torch():
            found = found(**taken)
    if not isinstance(found, nn.Module):
        raise BadValue(f"{path} gives a {type(found).__name__}. It must give a torch.nn.Module.")
    return found


def _initialise(module: nn.Module, key: Key) -> nn.Module:
    """PyTorch's own laws: uniform within one over the root of the inputs of a unit, or of the units of an LSTM; an
    embedding is standard normal, and norms start at 1 and 0.
    """
    with torch.no_grad():
        for name, layer in module.named_modules():
            if isinstance(layer, nn.Linear | nn.Conv1d | nn.Conv2d | nn.LSTM):
                inputs = layer.hidden_size if isinstance(layer, nn.LSTM) else layer.weight[0].numel()
                bound = 1.0 / math.sqrt(inputs)
                for kind, parameter in layer.named_parameters():
                    uniform = torch.from_numpy(key.child(f"{name}.{kind}").uniform(parameter.numel()))
                    parameter.copy_(((2.0 * uniform - 1.0) * bound).reshape(parameter.shape))
            elif isinstance(layer, nn.Embedding):
                layer.weight.copy_(key.child(f"{name}.weight").normal(*layer.weight.shape))
    return module


def _logistic(shape: tuple[int, ...], outputs: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), outputs))


def _mlp(shape: tuple[int, ...], outputs: int) -> nn.Module:
    inputs = math.prod(shape)
    return nn.Sequential(
        nn.Flatten(), nn.Linear(inputs, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, outputs)
    )


def _cnn_mnist(shape: tuple[int, ...], outputs: int) -> nn.Module:
    channels = _channels("cnn-mnist", shape, least=10)
    return _cnn((*_pooled(channels, 16, 3), *_pooled(16, 32, 3)), shape, 128, outputs)


def _cnn_emnist(shape: tuple[int, ...], outputs: int) -> nn.Module:
    channels = _channels("cnn-emnist", shape, least=4)
    return _cnn((*_pooled(channels, 32, 5, padding=2), *_pooled(32, 64, 5, padding=2)), shape, 512, outputs)


def _cnn_cifar(shape: tuple[int, ...], outputs: int) -> nn.Module:
    channels = _channels("cnn-cifar", shape, least=18)
    last = (nn.Conv2d(64, 64, 3), nn.ReLU())
    return _cnn((*_pooled(channels, 32, 3), *_pooled(32, 64, 3), *last), shape, 64, outputs)


def _cnn_medical(shape: tuple[int, ...], outputs: int) -> nn.Module:
    """UDP-FL's "four-layer CNN with additional fully connected layers"; of 64x64 pictures it has 2 MB, as their messages have."""
    channels = _channels("cnn-medical", shape, least=8)
    first, second, third = (_pooled(a, b, 3, padding=1) for a, b in ((channels, 16), (16, 32), (32, 64)))
    return _cnn((*first, *second, *third, nn.Conv2d(64, 64, 3, padding=1), nn.ReLU()), shape, 128, outputs)


def _cnn_wind(shape: tuple[int, ...], outputs: int) -> nn.Module:
    if len(shape) != 2 or outputs != shape[1]:
        raise BadValue(
            f"cnn-wind takes series [channels, hours] and gives one number for each hour; these records have the shape {shape}, "
            f"and {outputs} outputs. Use mlp, or a model of your own."
        )
    first, second = nn.Conv1d(shape[0], 16, 5, padding=2), nn.Conv1d(16, 16, 5, padding=2)
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), nn.Conv1d(16, 1, 1), nn.Flatten())


def _resnet_18(shape: tuple[int, ...], outputs: int) -> nn.Module:
    return resnet_18(_channels("resnet-18", shape, least=8), outputs)


def _pooled(inputs: int, outputs: int, kernel: int, padding: int = 0) -> tuple[nn.Module, ...]:
    return nn.Conv2d(inputs, outputs, kernel, padding=padding), nn.ReLU(), nn.MaxPool2d(2)


def _cnn(layers: tuple[nn.Module, ...], shape: tuple[int, ...], units: int, outputs: int) -> nn.Module:
    with torch.no_grad():
        width = nn.Sequential(*layers)(torch.zeros(1, *shape)).numel()
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(width, units), nn.ReLU(), nn.Linear(units, outputs))


def _channels(name: str, shape: tuple[int, ...], least: int) -> int:
    if len(shape) != 3 or min(shape[1:]) < least:
        raise BadValue(
            f"{name} takes images [channels, height, width] of {least} pixels a side or more; these records have the "
            f"shape {shape}. Use mlp, or a model of your own."
        )
    return shape[0]


_MODELS: dict[str, Callable[[tuple[int, ...], int], nn.Module]] = {
    "logistic": _logistic,
    "mlp": _mlp,
    "cnn-mnist": _cnn_mnist,
    "cnn-emnist": _cnn_emnist,
    "cnn-cifar": _cnn_cifar,
    "cnn-medical": _cnn_medical,
    "cnn-wind": _cnn_wind,
    "resnet-18": _resnet_18,
}
# Models of which there are several sizes: `name:size`.
_SIZED: dict[str, Callable[[str, str, tuple[int, ...], int], nn.Module]] = {"char-lstm": char_lstm}
NAMES = (*_MODELS, *_SIZED)
