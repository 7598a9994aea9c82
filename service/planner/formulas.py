"""Formulas of the planner, each with its source. Units are bytes, seconds and operations; no constant is fitted."""

import math
from dataclasses import dataclass
from typing import Literal

Sharding = Literal["ddp", "zero1", "zero2", "fsdp"]
PipelineSchedule = Literal["gpipe", "1f1b", "interleaved_1f1b", "interleaved_zero_bubble", "zbv"]
Checkpointing = Literal["none", "selective", "full"]


def ring_all_reduce_s(size_bytes: float, ranks: int, bandwidth_bytes_s: float, latency_s: float = 0.0) -> float:
    """Return the seconds of a ring all-reduce: 2(n-1) hops of size/n each (Patarasuk and Yuan 2009)."""
    return 2 * ring_half_s(size_bytes, ranks, bandwidth_bytes_s, latency_s)


def ring_half_s(size_bytes: float, ranks: int, bandwidth_bytes_s: float, latency_s: float = 0.0) -> float:
    """Return the seconds of a ring all-gather or reduce-scatter of `size_bytes`: n-1 hops (Thakur et al. 2005)."""
    return (ranks - 1) * latency_s + (ranks - 1) / ranks * size_bytes / bandwidth_bytes_s


def tree_all_reduce_s(size_bytes: float, ranks: int, bandwidth_bytes_s: float, latency_s: float = 0.0) -> float:
    """Return the seconds of a double binary tree all-reduce (Sanders et al. 2009).

    The tree has 2 log2 n hops, and each rank sends twice the size.
    """
    return 2 * math.ceil(math.log2(ranks)) * latency_s + 2 * size_bytes / bandwidth_bytes_s if ranks > 1 else 0.0


def hierarchical_all_reduce_s(
    size_bytes: float, inside: int, outside: int, inner_bytes_s: float, outer_bytes_s: float
) -> float:
    """Return the seconds of a hierarchical all-reduce.

    It is a reduce-scatter inside a node, an all-reduce of size/inside between nodes, and an all-gather inside a node.
    """
    inner = 2 * ring_half_s(size_bytes, inside, inner_bytes_s)
    return inner + ring_all_reduce_s(size_bytes / inside, outside, outer_bytes_s)


def ring_sent_bytes(size_bytes: float, ranks: int) -> float:
    """Return the bytes that a rank sends in a ring all-reduce: 2(n-1)/n of the size."""
    return 2 * (ranks - 1) / ranks * size_bytes


def bubble_overhead(stages: int, micro_batches: int, schedule: PipelineSchedule = "1f1b", virtual: int = 1) -> float:
    """Return the idle time of a pipeline relative to its useful time.

    It is (p-1)/m for GPipe and 1F1B (Huang et al. 2019, Narayanan et al. 2021). Interleaving v stages per rank divides
    it by v (Narayanan et al. 2021). Splitting backward divides it by 3 (ZB-H1, Qi et al. 2024). ZB-V has no idle time.
    """
    plain = (stages - 1) / micro_batches
    if schedule == "zbv":
        return 0.0
    if schedule == "interleaved_zero_bubble":
        return plain / (3 * virtual)
    return plain / virtual if schedule == "interleaved_1f1b" else plain


def bubble_share(stages: int, micro_batches: int, schedule: PipelineSchedule = "1f1b", virtual: int = 1) -> float:
    """Return the idle share of a pipeline's total time: (p-1)/(m+p-1) for GPipe and 1F1B."""
    overhead = bubble_overhead(stages, micro_batches, schedule, virtual)
    return overhead / (1 + overhead)


def in_flight(
    stages: int, stage: int, micro_batches: int, schedule: PipelineSchedule = "1f1b", virtual: int = 1
) -> float:
    """Return the maximum number of micro-batches whose activations the rank of `stage` (from 0) stores at once.

    Fractions count the layers of a rank. GPipe stores all m, 1F1B at most p - stage. Interleaving adds (p-1)/(p·v) of
    p at the first rank (Korthikanti et al. 2022). ZB-V stores p on each rank (Qi et al. 2024).
    """
    if stages == 1:
        return 1.0
    if schedule == "gpipe":
        return float(micro_batches)
    if schedule == "zbv":
        return float(min(stages, micro_batches))
    if schedule in ("interleaved_1f1b", "interleaved_zero_bubble") and virtual > 1:
        chunks = min((virtual - 1) * stages + 2 * (stages - stage - 1) + 1, micro_batches * virtual)
        return chunks / virtual
    return float(min(stages - stage, micro_batches))


@dataclass(frozen=True)
class StateBytes:
    """Bytes per parameter: the parameter for compute, its gradient, and the optimizer state with the master copy."""

    parameter: float
    gradient: float
    optimizer: float

    @property
    def total(self) -> float:
        """Sum of the three, in bytes per parameter."""
        return self.parameter + self.gradient + self.optimizer


MIXED_ADAM = StateBytes(2, 2, 12)
"""16-bit parameters and gradients; 32-bit master copy and moments: 16 bytes (Rajbhandari et al. 2020)."""
MEGATRON_ADAM = StateBytes(2, 4, 12)
"""Mixed precision with 32-bit gradients: 18 bytes (Megatron-LM, docs of the distributed optimizer)."""
TORCH_ADAM = StateBytes(4, 4, 8)
"""32-bit parameters that torch casts for compute: 16 bytes. The parameters are the master copy."""


def state_bytes(parameters: float, shards: int, sharding: Sharding, states: StateBytes = MIXED_ADAM) -> float:
    """Return the bytes of parameters, gradients and optimizer on one of `shards` ranks (Rajbhandari et al. 2020)."""
    whole = {"ddp": states.total, "zero1": states.parameter + states.gradient, "zero2": states.parameter, "fsdp": 0.0}[
        sharding
    ]
    return parameters * (whole + (states.total - whole) / shards)


def gradient_traffic(sharding: Sharding, reshard: bool = True) -> float:
    """Return the bytes that a rank sends per step relative to the parameters' bytes: 2, or 3 with a second gather."""
    return 3.0 if sharding == "fsdp" and reshard else 2.0


def layer_activation_bytes(
    tokens: float,
    hidden: int,
    heads: int,
    sequence: int,
    tp: int = 1,
    *,
    sequence_parallel: bool = False,
    flash: bool = False,
    checkpointing: Checkpointing = "none",
) -> float:
    """Return the bytes that one transformer layer stores for backward in 16 bits (Korthikanti et al. 2022, table 2).

    The formula is tokens·h·(10 + 24/t + 5as/(ht)) with `tokens` = sequence · batch. Sequence parallelism divides all
    terms by t. Flash attention and selective checkpointing drop the scores 5as/(ht). Full checkpointing stores the
    input only: 2.
    """
    if checkpointing == "full":
        return 2.0 * tokens * hidden / (tp if sequence_parallel else 1)
    scores = 0.0 if flash or checkpointing == "selective" else 5 * heads * sequence / (hidden * tp)
    rest = 34 / tp if sequence_parallel else 10 + 24 / tp
    return tokens * hidden * (rest + scores)


def gpt_step_flops(batch: int, sequence: int, layers: int, hidden: int, vocabulary: int, *, recompute: bool) -> float:
    """Return the operations per step of a GPT with a 4h feed-forward (Narayanan et al. 2021, eq. 3).

    With recomputation the formula is 96 BsLh²(1+s/6h+V/16Lh). Without recomputation the factor is 72, and the term of
    the logits is V/12Lh.
    """
    per = 96 if recompute else 72
    logits = vocabulary / ((16 if recompute else 12) * layers * hidden)
    return per * batch * sequence * layers * hidden**2 * (1 + sequence / (6 * hidden) + logits)


def failures_goodput(step_s: float, device_mttf_s: float, devices: int, lost_s: float, stall_s: float = 0.0) -> float:
    """Return the share of time in committed steps, with failures at rate devices/MTTF that cost `lost_s` each.

    First order of Young 1974: the lost time is small compared with the time between failures.
    """
    rate = devices / device_mttf_s
    return step_s / (step_s + stall_s) / (1 + rate * lost_s)
