"""The numbers of the planner that are fitted: few, each of one physical meaning. All others are in
`service/domain/hardware.py`."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace

from regroup.service.domain.hardware import Device


@dataclass(frozen=True)
class Constants:
    """How far software stays behind hardware. The defaults are guesses of before any fit, which `fit` starts from and
    is held to; no other place of the planner holds such a number."""

    matmul: float = 0.85
    """Matrix products: share of the device's ceiling that long ones reach."""
    tile: float = 1.0
    """Memory traffic of a product over that of reading and writing each matrix once."""
    misaligned: float = 1.4
    """Time of products whose split dimension is no multiple of 64, over what it would be."""
    odd_heads: float = 4.0
    """Time of attention whose heads are no multiple of 8 wide, and so off the tensor cores, over what it would be."""
    attention: float = 0.5
    """Scores and values: share of the ceiling, all of the sequence counted though masks leave half."""
    passes: float = 3.0
    """Times that each byte kept for backward goes through memory in forward."""
    launch_s: float = 4e-4
    """One layer's forward at the least: the time to launch its kernels."""
    inner_link: float = 0.8
    """Share of a link's bandwidth inside a domain that groups reach in training."""
    outer_link: float = 0.6
    """Share of a node's ports that they reach."""
    hidden: float = 0.7
    """Of communication that can run beside compute, the share that costs nothing."""
    narrow: float = 0.6
    """Of the gain that 8- or 4-bit products have on paper, what is left with casts and scales."""
    step_s: float = 0.1
    """Of every step, whatever its size."""
    doubling: float = 0.01
    """Added by each doubling of the number of nodes: waiting for the slowest."""
    slack: float = 0.05
    """Memory: share lost to fragments and buffers."""
    reserved_gb: float = 9.0
    """Memory: context, libraries, workspaces. The default is what separated trials that fit from those that did not
    among 736 of Aleph Alpha's, 8 to 10 GB: no row of which is fitted here."""

    def on(self, device: Device) -> "Constants":
        """With what is otherwise on that device."""
        if device.reserved_bytes is None:
            return self
        return replace(self, reserved_gb=device.reserved_bytes / 1e9)

    def to_json(self) -> str:
        """Text that `from_json` reads."""
        return json.dumps(asdict(self), indent=1) + "\n"


@dataclass(frozen=True)
class Range:
    """Where a constant can lie at all, and how far from its default it is likely to."""

    low: float
    high: float
    spread: float
    """Of its logarithm."""
    of_memory: bool = False


RANGES: Mapping[str, Range] = {
    "matmul": Range(0.4, 1.0, 0.15),
    "tile": Range(0.3, 4.0, 0.5),
    "misaligned": Range(1.0, 2.0, 0.1),
    "odd_heads": Range(1.0, 16.0, 0.5),
    "attention": Range(0.1, 1.0, 0.4),
    "passes": Range(0.5, 8.0, 0.4),
    "launch_s": Range(5e-5, 5e-3, 0.8),
    "inner_link": Range(0.2, 1.0, 0.3),
    "outer_link": Range(0.1, 1.0, 0.4),
    "hidden": Range(0.05, 0.99, 0.3),
    "narrow": Range(0.1, 1.0, 0.3),
    "step_s": Range(1e-3, 2.0, 1.0),
    "doubling": Range(1e-4, 0.05, 1.0),
    "slack": Range(0.01, 0.5, 0.3, of_memory=True),
    "reserved_gb": Range(0.5, 12.0, 0.1, of_memory=True),
}
"""What `fit` may do."""


FITTED = Constants(
    matmul=0.9478,
    tile=1.103,
    misaligned=1.4,
    odd_heads=11.43,
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
"""What `fit` made of all public rows with full information, to four digits: the only fitted numbers. Where nothing else
is given, these count. No figure of `benchmarks/planner.py` is judged by them."""


def from_json(text: str) -> Constants:
    """Constants out of text.

    Raises:
        ValueError: no JSON object, a name that is no constant, or a value that is no positive finite number.
    """
    found = json.loads(text)
    names = {each.name for each in fields(Constants)}
    if not isinstance(found, dict):
        raise ValueError(f"constants are an object of numbers, not {type(found).__name__}")
    for name, value in found.items():
        if name not in names:
            raise ValueError(f"{name!r} is no constant of the planner; known are {', '.join(sorted(names))}")
        if not isinstance(value, int | float) or not (0 < value < math.inf):
            raise ValueError(f"constant {name} is a positive number, not {value!r}")
    return Constants(**found)
