"""Runs somebody's training function, `module:function`, with a Context."""

import importlib
from collections.abc import Callable
from typing import Any

import torch

from regroup.workers.contract import Phase
from regroup.workers.rank.context import Context
from regroup.workers.state.randomness import seed_random


def train(context: Context) -> None:
    """Call the function that the spec names, from the same random state on every rank: models are born equal."""
    context.phase(Phase.BUILD)
    if context.config["determinism"] == "strict":
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.benchmark = False
    function = load(context.config["function"])
    seed_random(context.config["seed"], context.device)
    function(context)


def load(name: str) -> Callable[[Context], Any]:
    """The function called `module:function`.

    Raises:
        ImportError: there is no such module or function.
    """
    module, _, attribute = name.partition(":")
    try:
        function = getattr(importlib.import_module(module), attribute)
    except AttributeError as error:
        raise ImportError(f"workload.function: {name} is not there: module {module!r} has no {attribute!r}") from error
    if not callable(function):
        raise ImportError(f"workload.function: {name} is a {type(function).__name__}, not a function")
    return function
