"""Digest of each part of a rank's state, to compare the state of two runs of the same step."""

import ctypes
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, cast

from torch import Tensor
from torch.optim import Optimizer

from regroup.workers.parallel.mesh import local
from regroup.workers.state.training_state import CapturedState

_MOST_DIGESTS = 256
"""Most digests of parameters of one optimizer."""


def digest_parts(state: CapturedState) -> dict[str, str]:
    """Return name → digest of the local part of every tensor and of every other fact."""
    tensors = {name: _of_tensor(tensor) for name, tensor in state.tensors.items()}
    facts: dict[str, str] = {}
    for name, value in state.facts.items():
        if isinstance(value, dict) and name != "random":
            facts |= {f"{name} {key}": _of_fact(item) for key, item in cast(Mapping[str, Any], value).items()}
        else:
            facts[name] = _of_fact(value)
    return {**tensors, **facts}


def digest_optimizer(optimizer: Optimizer) -> dict[str, str]:
    """Return name → digest of the local part of every parameter of an optimizer, and of each kind of its state.

    The names are those with which the optimizer was made, else numbers. Many parameters share digests, so that the
    result has at most a few hundred entries.
    """
    named = [
        (names[number] if (names := group.get("param_names")) else "", parameter)
        for group in optimizer.param_groups
        for number, parameter in enumerate(group["params"])
    ]
    size = -(-len(named) // _MOST_DIGESTS) or 1
    found: dict[str, str] = {}
    for first in range(0, len(named), size):
        chosen = named[first : first + size]
        begin, end = _label(named, first), _label(named, first + len(chosen) - 1)
        digest = _joined([_of_tensor(parameter.detach()) for _, parameter in chosen])
        found[begin if begin == end else f"{begin} to {end}"] = digest
    states: dict[str, list[str]] = {}
    for _, parameter in named:
        for key, value in sorted(optimizer.state.get(parameter, {}).items(), key=lambda item: str(item[0])):
            plain = str(value) if isinstance(value, int | float | str | None) else ""  # others may contain addresses
            states.setdefault(f"optim.{key}", []).append(_of_tensor(value) if isinstance(value, Tensor) else plain)
    return found | {name: _joined(digests) for name, digests in states.items()}


def _label(named: Sequence[tuple[str, Tensor]], number: int) -> str:
    return named[number][0] or f"parameter {number}"


def _joined(digests: Sequence[str]) -> str:
    return digests[0] if len(digests) == 1 else f"{zlib.crc32(' '.join(digests).encode()):08x}"


def _of_tensor(tensor: Tensor) -> str:
    content = local(tensor).cpu().contiguous()
    memory = (ctypes.c_char * content.nbytes).from_address(content.data_ptr()) if content.nbytes else b""
    return f"{tuple(content.shape)} {content.dtype} {zlib.crc32(memory):08x}"


def _of_fact(value: Any) -> str:
    return f"{zlib.crc32(json.dumps(value, sort_keys=True).encode()):08x}"
