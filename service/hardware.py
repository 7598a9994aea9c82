"""What devices can do at best."""

from collections.abc import Mapping

_TERA = 1e12
_GPUS: Mapping[str, Mapping[str, float]] = {
    "B200": {"bf16": 2250, "fp32": 75, "fp64": 37},
    "H200": {"bf16": 989.4, "fp32": 66.9, "fp64": 66.9},
    "H100 PCIe": {"bf16": 756.5, "fp32": 51.2, "fp64": 51.2},
    "H100": {"bf16": 989.4, "fp32": 66.9, "fp64": 66.9},
    "A100": {"bf16": 312, "fp32": 19.5, "fp64": 19.5},
    "L40S": {"bf16": 362.1, "fp32": 91.6},
    "L4": {"bf16": 121, "fp32": 30.3},
}
"""A part of the device's name → TFLOP/s by precision, without sparsity, fp16 as bf16: NVIDIA's datasheets. The first
part that is found counts."""


def peak_flops(precision: str) -> dict[str, float]:
    """A part of a GPU's name → its operations a second in a precision of the spec."""
    kind = "bf16" if precision == "fp16" else precision
    return {name: peaks[kind] * _TERA for name, peaks in _GPUS.items() if kind in peaks}
