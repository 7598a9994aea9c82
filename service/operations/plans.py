"""Plan requests of users, and the planner's reports."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from regroup.service.domain.errors import FieldIssue, SpecError
from regroup.service.domain.hardware import DEVICES, find_device
from regroup.service.planner.constants import FITTED
from regroup.service.planner.cpu_calibration import calibrate_constants, calibrated_values, measured_costs
from regroup.service.planner.explain import DEVICE_MTTF_S, RECOVERY_S, Prices, Report, explain
from regroup.service.planner.formulas import MEGATRON_ADAM, MIXED_ADAM, TORCH_ADAM
from regroup.service.planner.model_shape import PRESETS, Model
from regroup.service.planner.search import Limits, search
from regroup.service.planner.types import Cluster, Work
from regroup.service.policy.measurements.hardware_overlay import measured_hardware
from regroup.service.policy.measurements.results import ProbeResult
from regroup.service.spec.types import MAX_RANKS, Flag, Integer, Line, Number, SpecModel

Count = Annotated[Integer, Field(ge=0, le=1_000_000)]
"""A count with an upper bound against typing errors. The planner itself refuses values below 1."""
Positive = Annotated[Number, Field(ge=1e-9, lt=1e18)]
"""Smaller numbers are typing errors, and quotients of them overflow."""


_STATES = {"torch": TORCH_ADAM, "mixed": MIXED_ADAM, "megatron": MEGATRON_ADAM}


class ModelSizes(SpecModel):
    """Sizes of a decoder-only transformer."""

    layers: Annotated[Integer, Field(ge=0, le=2_000)]
    """Number of transformer blocks."""
    hidden: Count
    """Width of the model."""
    heads: Annotated[Integer, Field(ge=0, le=1_024)]
    """Number of attention heads."""
    vocabulary: Count
    """Vocabulary size: rows of the embedding."""
    ffn: Count = 0
    """Width of the feed-forward layers; 0 for four times `hidden`."""
    kv_heads: Annotated[Integer, Field(ge=0, le=1_024)] = 0
    """Number of key/value heads; 0 for the number of `heads`."""
    gated: Flag = False
    """The feed-forward layers have three matrices (SwiGLU)."""
    tied: Flag = False
    """The embedding and the output layer share their weights."""
    experts: Annotated[Integer, Field(ge=1, le=10_000)] = 1
    """Number of experts per layer."""
    active_experts: Annotated[Integer, Field(ge=1, le=10_000)] = 1
    """Number of experts that process each token."""


class PlanRequest(SpecModel):
    """Model, cluster and batch for which the planner finds the fastest layouts."""

    model: Line | ModelSizes
    """Name of a published model, or the sizes of a model."""
    device: Line
    """Device type, for example `A100`, `NVIDIA H100 80GB HBM3` or `cpu`."""
    gpus: Annotated[Integer, Field(ge=0, le=MAX_RANKS)]
    """Number of devices. A plan uses all of them."""
    global_batch: Count
    """Samples per step."""
    sequence: Count
    """Tokens per sample."""
    precision: Literal["fp32", "bf16", "fp16", "fp8", "fp4"] = "bf16"
    """Precision of matrix multiplications."""
    gpus_per_node: Annotated[Integer, Field(ge=0, le=1_024)] | None = None
    """Devices per node, or per fast-interconnect domain. Default: usual for the device."""
    network_gb_s: Positive | None = None
    """Bandwidth of a node to other nodes, one way, in GB/s. Default: usual for the device."""
    memory_gb: Positive | None = None
    """Memory of a device. Default: the value of the hardware table."""
    flash: Flag = True
    """Use flash attention, which stores no attention scores."""
    states: Literal["torch", "mixed", "megatron"] = "torch"
    """Bytes per parameter, gradient and Adam state: `torch`, as in the built-in trainer, 4 + 4 + 8; `mixed` 2 + 2 + 12;
    `megatron` 2 + 4 + 12."""
    max_tp: Annotated[Integer, Field(ge=1, le=1024)] | None = None
    """Maximum tensor-parallel degree. Default: `gpus_per_node`."""
    max_pp: Annotated[Integer, Field(ge=1, le=2_000)] | None = None
    """Maximum pipeline-parallel degree. Default: the number of layers."""
    max_cp: Annotated[Integer, Field(ge=1, le=1024)] = 1
    """Maximum context-parallel degree. Above 1 the report has plans that jobs cannot run yet."""
    price_per_gpu_hour: Positive | None = None
    """Price per device-hour in any currency. Without a price the report has no cost."""
    device_mttf_hours: Positive = DEVICE_MTTF_S / 3600
    """Mean time between failures of one device that stop a job."""
    recovery_s: Positive = RECOVERY_S
    """Time from a failure to the next step."""
    top: Annotated[Integer, Field(ge=1, le=50)] = 5
    """Number of plans in the report, fastest first."""


def plan(request: PlanRequest, probes: Sequence[ProbeResult] = ()) -> Report:
    """Return the fastest plans with their details. Computes for seconds at most.

    Args:
        probes: measurements of the cluster. Values of the request take precedence.

    Raises:
        SpecError: the request is invalid, or no plan fits; the issue names the limit.
    """
    device = find_device(request.device)
    issues: list[FieldIssue] = []
    if device is None:
        names = ", ".join(each.name for each in DEVICES)
        issues.append(FieldIssue("device", f"not in the hardware table; expected one of {names}", request.device))
    model = _model(request.model)
    if model is None:
        names = ", ".join(PRESETS)
        issues.append(
            FieldIssue("model", f"unknown published model; give the model's sizes, or one of {names}", request.model)
        )
    if device is None or model is None:
        raise SpecError(issues)
    hardware = measured_hardware(device, probes)
    device = hardware.device
    if request.memory_gb:
        device = replace(device, memory_bytes=request.memory_gb * 1e9)
    domain = hardware.devices_per_node if request.gpus_per_node is None else request.gpus_per_node
    share = hardware.network_bytes_s
    if request.network_gb_s and domain > 0:
        share = request.network_gb_s * 1e9 / domain
    cluster = Cluster(device, request.gpus, domain, share, hardware.link, measured_costs(hardware.probe))
    constants = calibrate_constants(hardware.probe, FITTED)
    values = (*hardware.measured_values, *calibrated_values(hardware.probe, FITTED))
    work = Work(model, request.global_batch, request.sequence, request.precision, request.flash)
    limits = Limits(
        max_tp=request.max_tp or 0,
        max_pp=request.max_pp or 0,
        max_cp=request.max_cp,
        top=request.top,
        states=_STATES[request.states],
    )
    found = search(work, cluster, constants, limits)
    prices = Prices(request.price_per_gpu_hour, request.device_mttf_hours * 3600, request.recovery_s)
    return replace(explain(work, cluster, found, constants, limits, prices), measured_values=values)


def _model(requested: str | ModelSizes) -> Model | None:
    return PRESETS.get(requested) if isinstance(requested, str) else Model(**requested.model_dump())
