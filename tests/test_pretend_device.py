"""The pretended device refuses what a GPU refuses, and computes what the CPU computes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from tests.pretend_device import Elsewhere, MixedDevices, pretend_device, values

MIXED: dict[str, Callable[[Tensor, Tensor], object]] = {
    "sum": lambda far, near: far + near,
    "sum in place": lambda far, near: near.add_(far),
    "product": lambda far, near: far @ near,
    "addmm_": lambda far, near: near.addmm_(far, far),
    "addmv_": lambda far, near: near[0].addmv_(far, far[0]),
    "joined": lambda far, near: torch.cat([far, near]),
    "stacked": lambda far, near: torch.stack([far, near]),
    "where": lambda far, near: torch.where(near > 0, far, far),
    "selected": lambda far, near: far.index_select(0, torch.tensor([0])),
    "selected here": lambda far, near: near.index_select(0, torch.tensor([0], device=far.device)),
    "indexed here": lambda far, near: near[torch.tensor([0], device=far.device)],
    "put": lambda far, near: far.index_put_((torch.tensor([0]),), near[:1]),
    "copied to places": lambda far, near: far.index_copy_(0, torch.tensor([0]), far[:1]),
    "number on the wrong side": lambda far, near: torch.tensor(1.0).mul_(far),
    "foreach": lambda far, near: torch._foreach_add_([far], [near]),
    "drawn": lambda far, near: torch.rand(3, device=far.device, generator=torch.Generator()),
    "numpy": lambda far, near: far.numpy(),
}


@pytest.mark.parametrize("mix", MIXED.values(), ids=MIXED)
def test_mixed_devices_are_refused(mix: Callable[[Tensor, Tensor], object]) -> None:
    near = torch.ones(3, 3)
    with pytest.raises((RuntimeError, TypeError)), pretend_device() as device:
        mix(near.to(device), near)


def test_what_mixed_is_not_forgotten() -> None:
    def swallowed() -> None:
        near = torch.ones(3)
        with pretend_device() as device, suppress(RuntimeError):
            near + near.to(device)

    with pytest.raises(MixedDevices):
        swallowed()


def test_what_a_gpu_takes_is_taken() -> None:
    near = torch.arange(6.0).reshape(2, 3)
    with pretend_device() as device:
        far = near.to(device)
        assert torch.equal(values(far * torch.tensor(2.0)), near * 2)
        assert torch.equal(values(far[torch.tensor([1])]), near[1:])
        assert torch.equal(values(torch.zeros(2, 3, device=device).copy_(near)), near)
        assert torch.equal(values(torch.tensor([[1.0], [2.0]], device=device)), torch.tensor([[1.0], [2.0]]))
        assert torch.equal(values(far[[1, 0]]), near[[1, 0]]) and torch.equal(
            values(far.new_tensor([3.0])), torch.tensor([3.0])
        )
        put = torch.zeros_like(far)
        put[[1, 0]] = far
        assert torch.equal(values(put), near[[1, 0]])
        assert torch.equal(far.cpu(), near) and not isinstance(far.cpu(), Elsewhere)
        assert far.device.type == device and far.sum().item() == 15.0 and far.tolist() == near.tolist()


def test_gradients_are_those_of_the_cpu() -> None:
    x = torch.arange(12.0).reshape(4, 3)
    module = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))
    before = torch.autograd.grad(module(x).sum(), list(module.parameters()))
    with pretend_device() as device:
        module, x = module.to(device), x.to(device)
        assert all(isinstance(parameter, nn.Parameter) for parameter in module.parameters())
        after = torch.autograd.grad(module(x).sum(), list(module.parameters()))
        assert all(torch.equal(values(one), other) for one, other in zip(after, before, strict=True))
        own = {name: value.detach() for name, value in module.named_parameters()}
        each = vmap(grad(lambda given, one: functional_call(module, given, (one,)).sum()), (None, 0))(own, x)
        torch.testing.assert_close(values(each["0.weight"].sum(0)), before[0])
