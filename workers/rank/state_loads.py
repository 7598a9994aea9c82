"""Notice when a program loads saved state. A program that restarts without doing so starts from its beginning."""

import functools
from collections.abc import Callable
from typing import Any

from torch import nn
from torch.optim import Optimizer

from regroup.workers.torch_internals.checkpoint_files import READERS

_PLACES: tuple[tuple[Any, str], ...] = (
    (nn.Module, "load_state_dict"),
    (Optimizer, "load_state_dict"),
    *READERS,
)
"""Functions through which state is loaded, with their owners: modules, optimizers, and both formats of `torch.load`."""


class StateLoads:
    """Number of times that this process loaded state since the watch began. There is one watch per process."""

    def __init__(self) -> None:
        self.count = 0

    def watch(self) -> None:
        """Count from now on."""
        for owner, name in _PLACES:
            setattr(owner, name, self._counted(getattr(owner, name)))

    def _counted(self, load: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(load)
        def counted(*args: Any, **kwargs: Any) -> Any:
            self.count += 1
            return load(*args, **kwargs)

        return counted
