"""Faults that change numbers a rank computes or stores, while all processes stay healthy."""

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
    """Return the action of each numeric fault, by its name in the spec. An action raises LookupError if it does not
    apply yet."""
    return {
        "nan_loss": lambda: _spoil_next_output(modules()),
        "spike_loss": lambda: _scale_next_output(modules()),
        "spike_gradient": lambda: _scale_next_gradient(modules()),
        "flip_bit": lambda: _flip_parameter(modules()),
        "flip_snapshot": lambda: _flip_snapshot(newest()),
    }


def _spoil_next_output(modules: Sequence[nn.Module]) -> None:
    """Replace the next output of any layer with NaN. The loss and all gradients become NaN, too."""
    _change_next_output([part for module in modules for part in module.modules()], float("nan"))


def _scale_next_output(modules: Sequence[nn.Module]) -> None:
    """Scale the next output of a whole model, so that its loss is a spike.

    Layers normalize, so they would hide a scaled layer.
    """
    _change_next_output(_wholes(modules), _FAR_LARGER)


def _scale_next_gradient(modules: Sequence[nn.Module]) -> None:
    """Scale the gradient of the next output of a whole model once.

    The loss stays right, but this rank's gradients do not.
    """

    def far_larger(gradient: Tensor) -> Tensor:
        return gradient * _FAR_LARGER

    def spoil(output: Tensor) -> None:
        output.register_hook(far_larger)

    _at_next_output(_wholes(modules), spoil, of=lambda output: output.requires_grad)


def _wholes(modules: Sequence[nn.Module]) -> list[nn.Module]:
    """Return the modules that are called as one: each pipeline stage of a rank separately."""
    return [whole for module in modules for whole in (module if isinstance(module, Stages) else [module])]


def _change_next_output(modules: Sequence[nn.Module], factor: float) -> None:
    _at_next_output(modules, lambda output: output * factor, of=Tensor.is_floating_point)


def _at_next_output(
    modules: Sequence[nn.Module], act: Callable[[Tensor], Tensor | None], of: Callable[[Tensor], bool]
) -> None:
    """Call `act` once, with the first output that `of` accepts. The result of `act` replaces the output."""
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
    """Flip one mantissa bit of one parameter value, so that only a comparison of replicas can detect it."""
    parts = [local(parameter) for module in modules for parameter in module.parameters()]
    # Use the last parameter: every loss depends on it, while many rows of an embedding are unused. `.data` hides the
    # change from autograd, like a real bit flip.
    value = next(part for part in reversed(parts) if part.numel()).data.view(-1)[:1].view(torch.uint8)
    value[max(0, len(value) - 2)] ^= 1


def _flip_snapshot(buffer: ShardBuffer | None) -> None:
    if buffer is None:
        raise LookupError("this rank has no snapshot yet; choose a later step")
    view = next(view for view in buffer.views(buffer.index().tensors) if len(view))
    view[0] ^= 1
