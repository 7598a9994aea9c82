"""Digest of each part of a rank's state, to compare the state of two runs of the same step."""

import ctypes
import json
import zlib
from collections.abc import Mapping
from typing import Any, cast

from torch import Tensor

from regroup.workers.parallel.mesh import local
from regroup.workers.state.training_state import CapturedState


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


def _of_tensor(tensor: Tensor) -> str:
    content = local(tensor).cpu().contiguous()
    memory = (ctypes.c_char * content.nbytes).from_address(content.data_ptr()) if content.nbytes else b""
    return f"{tuple(content.shape)} {content.dtype} {zlib.crc32(memory):08x}"


def _of_fact(value: Any) -> str:
    return f"{zlib.crc32(json.dumps(value, sort_keys=True).encode()):08x}"
