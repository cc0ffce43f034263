"""What a client learns must all be in its row, which is clipped and noised; state beside it would leave bare."""

from __future__ import annotations

import copy
import functools
import inspect
import pickle
from collections import deque
from collections.abc import Callable, Sequence
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase

from sfumato.digest import digest
from sfumato.errors import BadValue, SfumatoError, UnsoundRound
from sfumato.gradients import KeyedMasks
from sfumato.key import Key
from sfumato.models.mode import training_mode
from sfumato.several_inputs import inputs_of, own_module

_BATCHNORM_FIX = (
    "call sfumato.models.replace_batchnorm(model), which puts GroupNorm there with the same weights; or, if its statistics are "
    "public, freeze it or the whole part that it is in (part.requires_grad_(False)), and they stay as they are"
)
_OTHER_FIX = "use a layer without running state (GroupNorm, LayerNorm, track_running_stats=False), or freeze that state"
_GROUPS = 32
_TORCHS_OWN = vars(nn.Module()).keys()
_OWN_DROPOUT = (nn.RNNBase, nn.MultiheadAttention)  # they draw masks inside, where no key reaches


def check_module(module: nn.Module, example: torch.Tensor) -> None:
    """Refuse a model that keeps state of the data outside its trainable parameters, or draws random numbers of its own.

    Running statistics are known by their layers; those of frozen parts are never in training (`training_mode`), and are public
    constants. Anything else is found by one pass of a copy in training mode, forward and back, on `example` (some records): a
    buffer, an attribute or a parameter that has changed is such state, and a torch generator that has moved gave numbers that no
    key controls. What the example does not provoke is not seen, nor what lies elsewhere.
    """
    if lazy := [name for name, p in module.named_parameters() if nn.parameter.is_lazy(p)]:
        raise BadValue(f"parameter {lazy[0]!r} has no shape yet. Call the model once on a batch before you give it.")
    copied = training_mode(_copy(module))
    kept = [layer for layer in copied.modules() if isinstance(layer, _NormBase) and layer.track_running_stats]
    if norms := [layer for layer in kept if layer.training]:
        batchnorm = all(isinstance(layer, _BatchNorm) for layer in norms)
        raise UnsoundRound(
            "statistics of the clients' records lie outside the row, and nothing clips or noises them: "
            + _listed(copied, norms),
            _BATCHNORM_FIX if batchnorm else f"{_BATCHNORM_FIX}; and {_OTHER_FIX}",
        )
    if changed := _changed_by_forward(copied, example):
        raise UnsoundRound(
            "a training step changes state outside the row, and nothing clips or noises it: " + ", ".join(changed),
            _OTHER_FIX,
        )


def check_loss_keeps_nothing(loss: Callable[..., Any], outputs: torch.Tensor, y: torch.Tensor) -> None:
    """Refuse a loss that remembers records: through it one record reaches the gradients of others, or one client those of others.

    What it holds (attributes, tensors, the variables of its closure) is compared before and after one call. What these examples
    do not provoke is not seen, nor what lies elsewhere.
    """
    before = _held(loss)
    loss(outputs, y)
    if _held(loss) != before:
        raise UnsoundRound(
            "the loss changes something that it keeps with every call, so a record's gradient depends on the records before it, "
            "and clipping it does not bound what one record changes.",
            "give a loss that is a function of outputs and y alone; weights of classes are public numbers, set before.",
        )


def _held(function: Any) -> Any:
    if isinstance(function, functools.partial):
        return [_held(function.func), _snapshot(function.args), _snapshot(function.keywords)]
    if isinstance(function, MethodType):
        return _held(function.__self__)
    if isinstance(function, nn.Module):
        return _state(function)
    if isinstance(function, FunctionType):
        return _snapshot({**inspect.getclosurevars(function).nonlocals, **vars(function)})
    return _snapshot(getattr(function, "__dict__", None))


def replace_batchnorm(module: nn.Module) -> nn.Module:
    """A copy with GroupNorm for every BatchNorm: statistics of one record, none of a batch, and none kept.

    Weights and biases are copied; running statistics are dropped. Images get the largest number of groups up to 32 that
    divides the channels. BatchNorm1d gets one group, since groups of single features would be normalised to zero.

    >>> replace_batchnorm(nn.BatchNorm2d(48)).num_groups
    24
    """
    module = _copy(module)
    if isinstance(module, _BatchNorm):
        return _group_norm(module)
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, _BatchNorm):
                setattr(parent, name, _group_norm(child))
    return module


def _copy(module: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(module)
    except Exception as error:
        raise BadValue(
            f"the model cannot be copied: {type(error).__name__}: {error}. "
            "Replace hooks such as torch.nn.utils.weight_norm by those of torch.nn.utils.parametrizations."
        ) from error


def _group_norm(layer: _BatchNorm) -> nn.GroupNorm:
    channels = layer.num_features
    flat = isinstance(layer, nn.BatchNorm1d)
    groups = 1 if flat else max(n for n in range(1, min(_GROUPS, channels) + 1) if channels % n == 0)
    norm = nn.GroupNorm(groups, channels, eps=layer.eps, affine=layer.affine).train(layer.training)
    if layer.affine:
        norm.weight, norm.bias = layer.weight, layer.bias
    return norm


def _listed(module: nn.Module, layers: Sequence[nn.Module]) -> str:
    places = ((name or "the model", layer) for name, layer in own_module(module).named_modules() if layer in layers)
    return ", ".join(f"{place} ({type(layer).__name__})" for place, layer in places)


def _changed_by_forward(copied: nn.Module, example: torch.Tensor) -> list[str]:
    try:
        with Key.from_seed(0).child("check").seeding_torch():
            for parameter in copied.parameters():  # state that has settled moves again after a step
                if parameter.requires_grad:
                    parameter.data.add_(torch.randn(parameter.shape).to(parameter), alpha=0.01)
            before = _state(copied)
            generator = _generator(example.device)
            with KeyedMasks(Key.from_seed(0).generator()), torch.enable_grad():
                outputs = copied(example)
                if isinstance(outputs, torch.Tensor) and outputs.requires_grad:  # hooks may keep something too
                    outputs.sum().backward()  # type: ignore[no-untyped-call]
            if not torch.equal(_generator(example.device), generator):
                raise BadValue(_uncontrolled(copied))
    except SfumatoError:
        raise
    except Exception as error:
        kind = str(example.dtype).removeprefix("torch.")
        records = inputs_of(copied) or f"shape {tuple(example.shape[1:])} and type {kind}"
        raise BadValue(
            f"the model cannot take records of {records}: {type(error).__name__}: {error}. {_fix(copied, example)}"
        ) from error
    after = _state(copied)
    return [name for name in sorted(before.keys() | after.keys()) if before.get(name) != after.get(name)]


def _fix(module: nn.Module, example: torch.Tensor) -> str:
    """What to do about a model that cannot take the records."""
    if any(p.dtype != torch.float32 for p in module.parameters()):
        return "Call .float() on the model."
    looks_up = any(isinstance(layer, nn.Embedding | nn.EmbeddingBag) for layer in module.modules())
    if looks_up and example.is_floating_point():
        return (
            "The model looks up whole numbers (an Embedding), as texts are, and these are others. Give a model for pictures "
            "or numbers, e.g. mlp, or whole numbers as records."
        )
    if not looks_up and not example.is_floating_point():
        return (
            "Whole numbers that stand for characters or words need a model that looks them up (an Embedding), e.g. char-lstm; "
            "others are given as x.float()."
        )
    return "Give a model for such records, or reshape the data."


def _state(module: nn.Module) -> dict[str, Any]:
    """Whatever layers and users' own classes hold: a number that a forward pass counts up is state too."""
    found = {}
    for name, layer in own_module(module).named_modules():
        own = [kind for kind in type(layer).__mro__ if not kind.__module__.startswith(("torch.", "builtins"))]
        held = {key: value for kind in reversed(own) for key, value in vars(kind).items() if not key.startswith("__")}
        for key, value in {**held, **vars(layer), **layer._parameters, **layer._buffers}.items():
            if key not in _TORCHS_OWN:
                found[f"{name}.{key}".lstrip(".")] = _snapshot(value)
    return found


def _snapshot(value: Any) -> Any:
    """What can be compared with a later snapshot; None for what cannot be looked into, such as a lambda."""
    if isinstance(value, torch.Tensor):
        return digest(value), value.requires_grad
    if isinstance(value, dict):
        return [(repr(key), _snapshot(item)) for key, item in value.items()]
    if isinstance(value, list | tuple | deque):
        return [_snapshot(item) for item in value]
    try:
        return pickle.dumps(value)
    except Exception:
        return None


def _generator(device: torch.device) -> torch.Tensor:
    if device.type == "cpu":
        return torch.get_rng_state()
    state: torch.Tensor = torch.get_device_module(device).get_rng_state(device)
    return state


def _uncontrolled(module: nn.Module) -> str:
    what = "the model draws random numbers that no key controls, so a round could not be replayed"
    if inside := [layer for layer in module.modules() if isinstance(layer, _OWN_DROPOUT) and layer.dropout > 0]:
        return (
            f"{what}: dropout inside {_listed(module, inside)}. Give it dropout=0, and put nn.Dropout before or after it; between "
            "recurrent layers, use one module per layer with nn.Dropout between them."
        )
    return f"{what}. Use nn.Dropout, or nothing random, in the forward pass."
