"""State of the random generators that training code may draw from, as plain data."""

import base64
import ctypes
import hashlib
import random
from array import array
from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor

try:
    import numpy as np
except ModuleNotFoundError:  # a job's own Python may have torch and no numpy
    np = None


def random_state(device: torch.device) -> dict[str, Any]:
    """Return the state of every generator that a training function may draw from."""
    version, words, gauss = random.getstate()
    found: dict[str, Any] = {
        "python": [version, base64.b64encode(array("I", words).tobytes()).decode(), gauss],
        "torch": _text(torch.get_rng_state()),
    }
    if np is not None:
        kind, keys, position, has_gauss, cached = cast(tuple[str, Any, int, int, float], np.random.get_state())
        found["numpy"] = [kind, base64.b64encode(keys.tobytes()).decode(), position, has_gauss, cached]
    if device.type == "cuda":
        found["cuda"] = _text(torch.cuda.get_rng_state(device))
    return found


def set_random_state(state: Mapping[str, Any], device: torch.device) -> None:
    """Restore the generators from a `random_state`."""
    version, words, gauss = state["python"]
    random.setstate((version, tuple(array("I", base64.b64decode(words))), gauss))
    if np is not None and "numpy" in state:
        kind, keys, position, has_gauss, cached = state["numpy"]
        np.random.set_state((kind, np.frombuffer(base64.b64decode(keys), np.uint32), position, has_gauss, cached))
    torch.set_rng_state(_words(state["torch"]))
    if "cuda" in state and device.type == "cuda":
        torch.cuda.set_rng_state(_words(state["cuda"]), device)


def seed_of(seed: int, step: int, data_rank: int) -> int:
    """Return the seed for the generators of a rank that has no state to restore."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{step}:{data_rank}".encode()).digest()[:8], "little")


def seed_random(seed: int, device: torch.device) -> None:
    """Seed every generator."""
    random.seed(seed)
    if np is not None:
        np.random.seed(seed % 2**32)
    torch.random.default_generator.manual_seed(seed % 2**63)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed % 2**63)


def _text(words: Tensor) -> str:
    return base64.b64encode(ctypes.string_at(words.data_ptr(), words.nbytes)).decode()


def _words(text: str) -> Tensor:
    return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8)
