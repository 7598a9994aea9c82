"""Run a user's training function, `module:function`, with a Context."""

import importlib
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from regroup.workers.contract.error_classes import InputError
from regroup.workers.contract.messages import Phase
from regroup.workers.rank.context import Context
from regroup.workers.state.rng_state import seed_random


def train(context: Context) -> None:
    """Call the function that the spec names. All ranks start with the same random state, so models start equal."""
    context.phase(Phase.BUILD)
    if context.config.is_deterministic:
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.benchmark = False
    seed_random(context.config.seed, context.device)  # the module may draw while it is imported
    function = load(context.config.function)
    seed_random(context.config.seed, context.device)
    function(context)


def load(name: str) -> Callable[[Context], Any]:
    """Return the function named `module:function`.

    Raises:
        InputError: this node has no such module or function.
    """
    module, _, attribute = name.partition(":")
    try:
        function = getattr(importlib.import_module(module), attribute, None)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # the module exists; one of its imports does not
        raise InputError(
            f"workload.function: no module {module} in {Path.cwd()} or on the path of node {platform.node()}; send the "
            "folder along with code.working_dir"
        ) from error
    if not callable(function):
        raise InputError(f"workload.function: module {module} has no function {attribute!r}")
    return function
