"""Settings of the compiler. Its imports take a second, so each function imports what it needs."""

import importlib


def use_one_thread() -> None:
    """Compile in this process: worker processes would outlive a killed rank."""
    from torch._inductor import config

    config.compile_threads = 1


def limit_kept_activations(share: float) -> None:
    """Let the compiler keep at most this share of a block's activations for the backward pass."""
    from torch._functorch import config

    config.activation_memory_budget = share


def import_dynamo() -> None:
    """Import what the first sharded forward imports. That takes a second."""
    importlib.import_module("torch._dynamo")
