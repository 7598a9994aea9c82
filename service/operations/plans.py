"""Questions to the planner as people ask them, and their answers."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from regroup.service.domain.errors import FieldIssue, SpecError
from regroup.service.domain.hardware import DEVICES, find_device
from regroup.service.planner.constants import FITTED
from regroup.service.planner.cpu_calibration import constants_of, costs_of, figures_of
from regroup.service.planner.explain import DEVICE_MTTF_S, RECOVERY_S, Prices, Report, explain
from regroup.service.planner.formulas import MEGATRON_ADAM, MIXED_ADAM, TORCH_ADAM
from regroup.service.planner.model_shape import PRESETS, Model
from regroup.service.planner.search import Limits, search
from regroup.service.planner.types import Cluster, Work
from regroup.service.policy.measurements.hardware_overlay import measured_hardware
from regroup.service.policy.measurements.results import ProbeResult
from regroup.service.spec.types import SpecModel

Count = Annotated[int, Field(le=1_000_000)]
"""Larger ones are typing errors; smaller ones than 1 the planner refuses itself, with the others."""
Positive = Annotated[float, Field(gt=0, lt=1e18)]


_STATES = {"torch": TORCH_ADAM, "mixed": MIXED_ADAM, "megatron": MEGATRON_ADAM}


class ModelSizes(SpecModel):
    """A decoder-only transformer by its sizes."""

    layers: Annotated[int, Field(le=2_000)]
    """Blocks."""
    hidden: Count
    """Width."""
    heads: Annotated[int, Field(le=1_024)]
    """Attention heads."""
    vocabulary: Count
    """Rows of the embedding."""
    ffn: Count = 0
    """Width of the feed-forward; 0 for four times `hidden`."""
    kv_heads: Annotated[int, Field(le=1_024)] = 0
    """Heads of keys and values; 0 for as many as `heads`."""
    gated: bool = False
    """The feed-forward has three matrices, as SwiGLU has."""
    tied: bool = False
    """Embedding and output share their rows."""
    experts: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Feed-forwards of a layer."""
    active_experts: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Of which a token passes so many."""


class PlanRequest(SpecModel):
    """A model, a cluster and a step: which layout is fastest?"""

    model: str | ModelSizes
    """A published model's name, or sizes."""
    device: str = Field(max_length=100)
    """As the driver, or a person, calls it: `A100`, `NVIDIA H100 80GB HBM3`, `cpu`."""
    gpus: Count
    """Devices, all of which are used."""
    global_batch: Count
    """Samples of a step."""
    sequence: Count
    """Tokens of a sample."""
    precision: Literal["fp32", "bf16", "fp16", "fp8", "fp4"] = "bf16"
    """Of matrix products."""
    gpus_per_node: Annotated[int, Field(le=1_024)] | None = None
    """Devices that NVLink, or what there is, joins; as usual for the device if absent."""
    network_gb_s: Positive | None = None
    """One way out of a node, in GB/s; as usual for the device if absent."""
    memory_gb: Positive | None = None
    """Of a device; the hardware table's if absent."""
    flash: bool = True
    """Attention keeps no scores."""
    states: Literal["torch", "mixed", "megatron"] = "torch"
    """What is kept of a parameter, its gradient and Adam's state: `torch`, as the built-in trainer, 32-bit parameters
    and gradients, 4 + 4 + 8 bytes; `mixed` 2 + 2 + 12; `megatron` 2 + 4 + 12."""
    max_tp: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Largest tensor-parallel degree; `gpus_per_node` if absent."""
    max_pp: Annotated[int, Field(ge=1, le=2_000)] | None = None
    """Largest pipeline-parallel degree; the layers if absent."""
    max_cp: Annotated[int, Field(ge=1, le=1024)] = 1
    """Largest context-parallel degree. Above 1 plans are shown that jobs cannot run yet."""
    price_per_gpu_hour: Positive | None = None
    """In any currency; cost is left out if absent."""
    device_mttf_hours: Positive = DEVICE_MTTF_S / 3600
    """Between failures of one device that stop a job."""
    recovery_s: Positive = RECOVERY_S
    """From a failure to the next step."""
    keep: Annotated[int, Field(ge=1, le=50)] = 5
    """How many of the best plans are shown."""


def plan(request: PlanRequest, probes: Sequence[ProbeResult] = ()) -> Report:
    """The fastest plans, taken apart; seconds of computing at the most.

    Args:
        probes: what was measured of the cluster; what the request itself says of it counts more.

    Raises:
        SpecError: the question makes no sense, or nothing fits; the issue names what binds.
    """
    device = find_device(request.device)
    issues: list[FieldIssue] = []
    if device is None:
        known = ", ".join(each.name for each in DEVICES)
        issues.append(FieldIssue("device", f"is not in the hardware table; known are {known}", request.device))
    model = _model(request.model)
    if model is None:
        known = ", ".join(PRESETS)
        issues.append(FieldIssue("model", f"is no published model; give its sizes, or one of {known}", request.model))
    if device is None or model is None:
        raise SpecError(issues)
    there = measured_hardware(device, probes)
    device = there.device
    if request.memory_gb:
        device = replace(device, memory_bytes=request.memory_gb * 1e9)
    domain = there.devices_per_node if request.gpus_per_node is None else request.gpus_per_node
    share = there.network_bytes_s
    if request.network_gb_s and domain > 0:
        share = request.network_gb_s * 1e9 / domain
    cluster = Cluster(device, request.gpus, domain, share, there.link, costs_of(there.probe))
    constants, figures = constants_of(there.probe, FITTED), (*there.measured_values, *figures_of(there.probe, FITTED))
    work = Work(model, request.global_batch, request.sequence, request.precision, request.flash)
    limits = Limits(
        most_tp=request.max_tp or 0,
        most_pp=request.max_pp or 0,
        most_cp=request.max_cp,
        keep=request.keep,
        kept=_STATES[request.states],
    )
    found = search(work, cluster, constants, limits)
    prices = Prices(request.price_per_gpu_hour, request.device_mttf_hours * 3600, request.recovery_s)
    return replace(explain(work, cluster, found, constants, limits, prices), figures=figures)


def _model(asked: str | ModelSizes) -> Model | None:
    return PRESETS.get(asked) if isinstance(asked, str) else Model(**asked.model_dump())
