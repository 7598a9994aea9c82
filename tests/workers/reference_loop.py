"""The built-in trainer, and training functions with a mutant, for comparisons with the dense reference."""

import importlib
import inspect
import types
from collections import defaultdict

import torch
from torch import nn

from regroup.workers.parallel import loss_scale
from regroup.workers.parallel.parameter_names import parameters_of
from regroup.workers.train import trainer


def trained(context):
    """Run the built-in trainer, and save the last parameters to the file `values`.

    `initial_scale` and `growth_interval` replace the constants of the loss scale.
    """
    args = context.config.args
    loss_scale.INITIAL = args.get("initial_scale", loss_scale.INITIAL)
    loss_scale.GROWTH_INTERVAL = args.get("growth_interval", loss_scale.GROWTH_INTERVAL)
    trainer.train(context)
    (model,) = context.tracked(nn.Module)
    values = {
        name: (value.full_tensor() if hasattr(value, "full_tensor") else value).detach()  # pyright: ignore[reportAttributeAccessIssue]
        for name, value in parameters_of(model)
    }
    if context.rank == 0:
        torch.save(values, args["values"])


def mutated(context):
    """Change the product's source as `mutation` says, only in this process, and call `entry`."""
    parts = defaultdict(list)
    for name, old, new in context.config.args["mutation"]:
        parts[name].append((old, new))
    for name, changes in parts.items():
        mutate(importlib.import_module(name), changes)
    module, _, function = context.config.args["entry"].partition(":")
    getattr(importlib.import_module(module), function)(context)


def mutate(module, changes):
    """Replace parts of a module's source that occur once.

    Functions and methods get their new code in place: other modules have imported them already.
    """
    source = inspect.getsource(module)
    for old, new in changes:
        assert source.count(old) == 1, f"{module.__name__} contains {old!r} {source.count(old)} times: adapt the mutant"
        source = source.replace(old, new)
    codes = {code.co_qualname: code for code in nested(compile(source, module.__file__, "exec"))}
    for function in functions_of(module):
        function.__code__ = codes[function.__qualname__]


def nested(code):
    """Yield the code objects within a code object."""
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield constant
            yield from nested(constant)


def functions_of(module):
    """Yield the functions and methods that the module defines."""
    own = [value for value in vars(module).values() if getattr(value, "__module__", None) == module.__name__]
    for value in own:
        for found in vars(value).values() if inspect.isclass(value) else [value]:
            function = inspect.unwrap(getattr(found, "fget", None) or getattr(found, "__func__", found))
            if isinstance(function, types.FunctionType) and function.__module__ == module.__name__:
                yield function
