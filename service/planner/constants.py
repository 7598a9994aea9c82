"""Fitted constants of the planner. Each has one physical meaning. All other numbers are in
`service/domain/hardware.py`."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace

from regroup.service.domain.hardware import Device


@dataclass(frozen=True)
class Constants:
    """Efficiency of software relative to hardware.

    The defaults are estimates from before any fit. `fit` starts from them, and its prior keeps the result near them.
    """

    matmul: float = 0.85
    """Large matrix multiplications: share of the device's peak."""
    tile: float = 1.0
    """Memory traffic of a matrix multiplication, relative to reading and writing each matrix once."""
    misaligned: float = 1.4
    """Relative time of matrix multiplications whose split dimension is not a multiple of 64."""
    misaligned_heads: float = 4.0
    """Relative time of attention whose head width is not a multiple of 8: it cannot use the tensor cores."""
    attention: float = 0.5
    """Attention scores and values: share of the device's peak, without credit for the causal mask."""
    passes: float = 3.0
    """Number of times that each byte stored for backward goes through memory in forward."""
    launch_s: float = 4e-4
    """Minimum time of one layer's forward: the time to launch its kernels."""
    inner_link: float = 0.8
    """Share of a link's bandwidth inside a domain that groups reach in training."""
    outer_link: float = 0.6
    """Share of the bandwidth of a node's ports that groups reach in training."""
    hidden: float = 0.7
    """Share of overlappable communication that compute hides."""
    narrow: float = 0.6
    """Share of the theoretical gain of 8- or 4-bit multiplications that remains after casts and scales."""
    step_s: float = 0.1
    """Fixed time of every step."""
    doubling: float = 0.01
    """Relative time that each doubling of the number of nodes adds: waiting for the slowest."""
    slack: float = 0.05
    """Share of memory lost to fragmentation and buffers."""
    reserved_gb: float = 9.0
    """Memory of the context, libraries and workspaces. The default separates trials that fit from those that did not
    among 736 of Aleph Alpha's (8 to 10 GB). The fit uses no row of these."""

    def on(self, device: Device) -> "Constants":
        """Return the constants with the device's own reserved memory."""
        if device.reserved_bytes is None:
            return self
        return replace(self, reserved_gb=device.reserved_bytes / 1e9)

    def to_json(self) -> str:
        """Return JSON for `from_json`."""
        return json.dumps(asdict(self), indent=1) + "\n"


@dataclass(frozen=True)
class Range:
    """Physical bounds of a constant, and the width of its prior."""

    low: float
    high: float
    spread: float
    """Standard deviation of the logarithm."""
    is_memory: bool = False


RANGES: Mapping[str, Range] = {
    "matmul": Range(0.4, 1.0, 0.15),
    "tile": Range(0.3, 4.0, 0.5),
    "misaligned": Range(1.0, 2.0, 0.1),
    "misaligned_heads": Range(1.0, 16.0, 0.5),
    "attention": Range(0.1, 1.0, 0.4),
    "passes": Range(0.5, 8.0, 0.4),
    "launch_s": Range(5e-5, 5e-3, 0.8),
    "inner_link": Range(0.2, 1.0, 0.3),
    "outer_link": Range(0.1, 1.0, 0.4),
    "hidden": Range(0.05, 0.99, 0.3),
    "narrow": Range(0.1, 1.0, 0.3),
    "step_s": Range(1e-3, 2.0, 1.0),
    "doubling": Range(1e-4, 0.05, 1.0),
    "slack": Range(0.01, 0.5, 0.3, is_memory=True),
    "reserved_gb": Range(0.5, 12.0, 0.1, is_memory=True),
}
"""Bounds and priors of `fit`."""


FITTED = Constants(
    matmul=0.9478,
    tile=1.103,
    misaligned=1.4,
    misaligned_heads=11.43,
    attention=0.595,
    passes=2.434,
    launch_s=0.0003906,
    inner_link=0.9579,
    outer_link=0.9659,
    hidden=0.3267,
    narrow=1,
    step_s=0.07604,
    doubling=0.01148,
    slack=0.05328,
    reserved_gb=9.871,
)
"""Default constants: the result of `fit` on all public rows with full information, to four digits. The benchmark
`benchmarks/planner.py` does not use them."""


def from_json(text: str) -> Constants:
    """Parse constants.

    Raises:
        ValueError: the text is not a JSON object, or has an unknown name or a value that is not positive and finite.
    """
    found = json.loads(text)
    names = {each.name for each in fields(Constants)}
    if not isinstance(found, dict):
        raise ValueError(f"constants must be a JSON object of numbers, got {type(found).__name__}")
    for name, value in found.items():
        if name not in names:
            raise ValueError(f"unknown constant {name!r}; expected one of {', '.join(sorted(names))}")
        if not isinstance(value, int | float) or not (0 < value < math.inf):
            raise ValueError(f"constant {name} must be a positive finite number, got {value!r}")
    return Constants(**found)
