"""Overhead of training steps: single blocks, steps with almost no computation, and steps with some.

A device that computes asynchronously hides most of this overhead. On a CPU it is a large part of a small step.
"""

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regroup.workers.contract.rank_config import OptimizerConfig
from regroup.workers.data.sampler import TrainingData, hash_limbs, samples_hash_of
from regroup.workers.models.transformer import Block, rotary
from regroup.workers.parallel.engine import Engine
from regroup.workers.parallel.mesh import data_place
from regroup.workers.parallel.step_metrics import StepMeter
from regroup.workers.parallel.strategy import Strategy
from regroup.workers.probe.timing import Clock
from regroup.workers.rank.context import Context
from regroup.workers.rank.malloc_tuning import release_freed_memory

SHAPES: Sequence[tuple[int, int, int, int]] = ((1, 8, 32, 2), (16, 32, 64, 4), (1, 512, 64, 4), (2, 128, 256, 4))
"""Blocks: batch, sequence, width and heads. The first is pure overhead. In the others, norms, attention and products
dominate."""
DEPTHS: Sequence[tuple[int, int]] = ((2, 1), (6, 1), (2, 5), (6, 5))
"""Steps: layers, and micro-batches per rank. A pipeline has one more, because it needs as many as stages."""
_CONTROL = 16
"""Approximate number of values in the control all-reduce of a step, without the ones computed here."""
_ADAM = OptimizerConfig("adamw", lr=1e-3)
_BURSTS, _STEP_BURSTS = 9, 7


@dataclass(frozen=True)
class Shape:
    """A transformer without its depth, and its inputs: `batch` samples per micro-batch."""

    batch: int
    sequence: int
    dim: int
    heads: int
    ffn: int
    vocabulary: int


TINY = Shape(batch=1, sequence=8, dim=32, heads=2, ffn=64, vocabulary=32)
"""Almost no computation."""
LOADED, LOADED_DEPTHS = Shape(batch=8, sequence=64, dim=96, heads=6, ffn=256, vocabulary=384), ((4, 1),)
"""At least as much computation as overhead."""


@dataclass(frozen=True)
class TimedBlock:
    """Forward and backward of one transformer block on all ranks at once, in float32."""

    batch: int
    sequence: int
    dim: int
    heads: int
    ffn: int
    seconds: float
    """Time on the slowest rank."""


@dataclass(frozen=True)
class TimedStep:
    """A whole training step."""

    kind: str
    """Parallelism: `ddp`, `fsdp`, or `tp` in pairs or `pp` in two stages, combined with fsdp."""
    layers: int
    micro_batches: int
    seconds: float


def blocks(clock: Clock, device: torch.device) -> list[TimedBlock]:
    """Measure the built-in transformer's block, in several shapes."""
    found: list[TimedBlock] = []
    for batch, sequence, dim, heads in SHAPES:
        ffn = 3 * dim
        block = Block(dim, heads, heads, ffn, 1e-5).to(device)
        rotation = rotary(sequence, dim // heads, 10000.0, device)
        x = torch.randn(batch, sequence, dim, device=device, requires_grad=True)

        def run(block: Block = block, x: torch.Tensor = x, rotation: torch.Tensor = rotation) -> None:
            block(x, rotation).sum().backward()

        found.append(TimedBlock(batch, sequence, dim, heads, ffn, clock.slowest([clock.own_s(run, _BURSTS)])[0]))
    return found


def alone_flops(clock: Clock, device: torch.device, rank: int) -> float:
    """Return the operations per second of a matrix product on rank 0 while all other ranks wait. Equal on all ranks.

    This is more than `matmuls` finds where ranks share a processor.
    """
    side = 512
    left, right, out = (torch.ones(side, side, device=device) for _ in range(3))
    own_s = clock.own_s(lambda: torch.mm(left, right, out=out) if rank == 0 else None, _BURSTS)
    return 2 * side**3 / clock.slowest([own_s if rank == 0 else 0.0])[0]


def steps(run: Context, clock: Clock, shape: Shape, depths: Sequence[tuple[int, int]]) -> list[TimedStep]:
    """Measure steps of a transformer at each of `depths`, with every parallelism that this number of ranks allows."""
    found: list[TimedStep] = []
    for kind, layout, data_parallel in _spread(run.world_size):
        for layers, fewer in depths:
            count = fewer + 1 if kind == "pp" else fewer
            own_s = clock.own_s(_step(run, shape, layout, data_parallel, layers, count), _STEP_BURSTS)
            found.append(TimedStep(kind, layers, count, clock.slowest([own_s])[0]))
    return found


def rank_bytes(run: Context, clock: Clock) -> float:
    """Return the largest memory of a rank after it has trained and freed a model, in bytes.

    Call this before other measurements: they would leave process groups and a fragmented heap.
    """
    step = _step(run, TINY, {"dp_replicate": run.world_size}, "ddp", *DEPTHS[0])
    step()
    step()
    del step
    gc.collect()
    release_freed_memory()
    meter = StepMeter(run.device, torch.float32, run.rank, run.world_size)
    meter.begin()
    return clock.slowest([meter.own()[f"peak {run.rank}"]])[0]


def _spread(ranks: int) -> list[tuple[str, dict[str, int], str]]:
    kinds: list[tuple[str, dict[str, int], str]] = [
        ("ddp", {"dp_replicate": ranks}, "ddp"),
        ("fsdp", {"dp_shard": ranks}, "fsdp"),
    ]
    if ranks % 2 == 0:
        kinds += [
            ("tp", {"dp_shard": ranks // 2, "tp": 2}, "fsdp"),
            ("pp", {"dp_shard": ranks // 2, "pp": 2}, "fsdp"),
        ]
    return kinds


class _Sequences:
    """A dataset of zeros, large enough for any number of steps."""

    fingerprint = ""

    def __init__(self, length: int) -> None:
        self._length = length

    def __len__(self) -> int:
        return 1 << 20

    def rows(self, numbers: Sequence[int]) -> tuple[Tensor, Tensor]:
        return self.blank(len(numbers))

    def blank(self, count: int) -> tuple[Tensor, Tensor]:
        inputs = torch.zeros((count, self._length), dtype=torch.int64)
        return inputs, torch.zeros_like(inputs)


def _step(
    run: Context, shape: Shape, layout: dict[str, int], data_parallel: str, layers: int, count: int
) -> Callable[[], None]:
    """Return a function that does what the trainer does in a step, except its row and its snapshot."""
    model = {
        "family": "transformer", "dim": shape.dim, "layers": layers, "heads": shape.heads, "kv_heads": None,
        "ffn_dim": shape.ffn, "vocab_size": shape.vocabulary, "rope_theta": 10000.0, "norm_eps": 1e-5,
        "tie_embeddings": False,
    }  # fmt: skip
    place, samples = data_place(layout, run.rank), _Sequences(shape.sequence)
    batch = count * place.degree * shape.batch
    data = TrainingData(samples, global_batch=batch, micro_batch=shape.batch, seed=0)
    meter = StepMeter(run.device, torch.float32, run.rank, run.world_size)
    engine = Engine(
        model, shape.vocabulary, layout, run.device, Strategy(data_parallel, "fp32", "none"), _ADAM,
        micro_batches=count, example=samples.blank(shape.batch)[0].to("meta"), loss_scale=1.0, phase=run.phase,
    )  # fmt: skip
    engine.initialise(0)

    def step() -> None:
        batches = data.deal(place.index, place.degree)
        meter.begin()
        engine.gradients(batches)
        meter.end()
        hashed = hash_limbs(samples_hash_of([sample for batch in batches for sample in batch.ids]))
        run.sum([*hashed, engine.squared_norm(), *engine.times().values(), *meter.own().values(), *[0.0] * _CONTROL])
        engine.update(1e-3, 1.0, 1.0)

    return step
