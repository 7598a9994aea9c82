"""Rehearsed failures of what a rank computes or holds: numbers that go wrong while no process does."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from regroup.workers.parallel.mesh import local
from regroup.workers.parallel.parameter_names import Stages
from regroup.workers.state.shard_buffer import ShardBuffer

_FAR_LARGER = 1000.0


def fault_actions(
    modules: Callable[[], Sequence[nn.Module]], newest: Callable[[], ShardBuffer | None]
) -> Mapping[str, Callable[[], None]]:
    """What a fault's `do` does to the rank's modules, or to its newest snapshot. Raises LookupError if it has none."""
    return {
        "nan_loss": lambda: _spoil_next_output(modules()),
        "spike_loss": lambda: _scale_next_output(modules()),
        "spike_gradient": lambda: _scale_next_gradient(modules()),
        "flip_bit": lambda: _flip_parameter(modules()),
        "flip_snapshot": lambda: _flip_snapshot(newest()),
    }


def _spoil_next_output(modules: Sequence[nn.Module]) -> None:
    """The next output of any layer is not a number, and with it the loss and all gradients."""
    _change_next_output([part for module in modules for part in module.modules()], float("nan"))


def _scale_next_output(modules: Sequence[nn.Module]) -> None:
    """The next output of a whole model is far larger, so that its loss stands out: layers that norm would hide one."""
    _change_next_output(_wholes(modules), _FAR_LARGER)


def _scale_next_gradient(modules: Sequence[nn.Module]) -> None:
    """What flows back into a whole model is far larger once: its loss is right, and what it adds to the sum of all
    ranks' gradients is not."""

    def far_larger(gradient: Tensor) -> Tensor:
        return gradient * _FAR_LARGER

    def spoil(output: Tensor) -> None:
        output.register_hook(far_larger)

    _at_next_output(_wholes(modules), spoil, of=lambda output: output.requires_grad)


def _wholes(modules: Sequence[nn.Module]) -> list[nn.Module]:
    """What is called as one: a rank's stages of a pipeline each by itself."""
    return [whole for module in modules for whole in (module if isinstance(module, Stages) else [module])]


def _change_next_output(modules: Sequence[nn.Module], factor: float) -> None:
    _at_next_output(modules, lambda output: output * factor, of=Tensor.is_floating_point)


def _at_next_output(
    modules: Sequence[nn.Module], act: Callable[[Tensor], Tensor | None], of: Callable[[Tensor], bool]
) -> None:
    """Once, with the first output of any of these that is one of those meant; what `act` returns takes its place."""
    handles: list[RemovableHandle] = []

    def once(module: nn.Module, inputs: Any, output: Any) -> Any:
        if not handles or not isinstance(output, Tensor) or not of(output):
            return None
        for handle in handles:
            handle.remove()
        handles.clear()
        return act(output)

    handles += [module.register_forward_hook(once) for module in modules]


def _flip_parameter(modules: Sequence[nn.Module]) -> None:
    """One bit of one value: of a float, in the mantissa, so that nothing but a comparison sees it."""
    parts = [local(parameter) for module in modules for parameter in module.parameters()]
    # The last, because every loss depends on it; of an embedding's rows many are not used. `.data`: autograd must not
    # notice, as it would not notice a bit that flips by itself.
    value = next(part for part in reversed(parts) if part.numel()).data.view(-1)[:1].view(torch.uint8)
    value[max(0, len(value) - 2)] ^= 1


def _flip_snapshot(buffer: ShardBuffer | None) -> None:
    if buffer is None:
        raise LookupError("this rank has no snapshot yet; choose a later step")
    view = next(view for view in buffer.views(buffer.index().tensors) if len(view))
    view[0] ^= 1
