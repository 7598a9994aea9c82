"""The configuration of a job's ranks: the part of the spec that they read, as typed records. No torch.

The supervisor builds it once (`service/supervisor/job_state/rank_config.py`). It travels in `Join`, and a training
function reads it as `context.config`. It holds no credentials. The spec has already validated it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal


@dataclass(frozen=True)
class OptimizerConfig:
    """The optimizer and its constants: the spec's `training.optimizer`."""

    name: str = "adamw"
    """`adamw` or `sgd`."""
    lr: float = 3e-4
    """Peak learning rate."""
    betas: tuple[float, float] = (0.9, 0.95)
    """Decay rates of the first and second moment. AdamW only."""
    eps: float = 1e-8
    """Added to the root of the second moment. AdamW only."""
    momentum: float = 0.9
    """SGD only."""
    weight_decay: float = 0.1
    clip_norm: float | None = 1.0
    """Largest gradient norm; larger gradients are scaled down to it. None: no clipping."""


@dataclass(frozen=True)
class ScheduleConfig:
    """Learning rate over the steps: the spec's `training.schedule`."""

    name: str = "cosine"
    """`cosine` or `constant`, after the warm-up."""
    warmup_steps: int = 0
    min_lr_ratio: float = 0.1
    """Learning rate of the last step divided by the peak."""


@dataclass(frozen=True)
class TrainingConfig:
    """The computation of a step: the spec's `training`. A script decides this itself and leaves all at its default."""

    steps: int | None = None
    """Optimizer updates of the whole job."""
    global_batch: int | None = None
    """Samples of one step at the target size."""
    micro_batch: int = 1
    """Samples of one forward pass on one rank, at this generation's layout."""
    sequence: int | None = None
    """Tokens per sample; None for models without sequences."""
    batch: str = "fixed"
    """`fixed`, or `follows_world`: the global batch is proportional to the data-parallel degree."""
    dp_target: int = 1
    """Data-parallel degree at which a step has `global_batch` samples."""
    lr_rule: str = "fixed"
    """`fixed`, `linear` or `sqrt`: the learning rate as a function of the global batch, with `follows_world`."""
    lr_ramp_steps: int = 0
    """Steps over which the learning rate moves to its new value after a resize, with `follows_world`."""
    optimizer: OptimizerConfig = OptimizerConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    precision: str = "fp32"
    """`fp64`, `fp32`, `bf16` or `fp16`."""
    reduce: str = "fp32"
    """Data type in which gradients are summed over ranks: `fp32` or `bf16`."""
    compile: str = "off"
    """Mode of `torch.compile` for each block."""
    activation_checkpointing: str | int | float = "none"
    """See `parallel/activation_checkpoint.py`."""
    validate_every: int | None = None
    """Steps between validation losses."""


@dataclass(frozen=True)
class ParallelConfig:
    """Distribution of the model over a layout: the spec's `layout` without the degrees."""

    data_parallel: str = "fsdp"
    """`ddp` replicates. `zero1` shards optimizer states, `zero2` gradients too, `fsdp` parameters too."""
    reshard_after_forward: bool | int = True
    """FSDP only: free gathered parameters after forward; a number reshards them to that many ranks."""
    prefetch: int = 1
    """Number of blocks whose parameters are gathered ahead."""
    offload: bool = False
    """Keep shards, gradients and optimizer states in host memory."""
    bucket_mib: int = 25
    """DDP only: size of a gradient bucket."""
    find_unused_parameters: bool = False
    """DDP only: a forward pass may leave out parts of the model."""
    sequence_parallel: bool = True
    """Shard the activations between tensor-parallel regions along the sequence."""
    schedule: str = "1f1b"
    """Pipeline schedule; see `parallel/pipeline_stages.py`."""


@dataclass(frozen=True)
class SnapshotConfig:
    """Snapshots in host memory: the spec's `snapshot`."""

    every_steps: int | Literal["auto"] = "auto"


@dataclass(frozen=True)
class CheckpointConfig:
    """Checkpoints in durable storage: the spec's `checkpoint`. The last step is always saved."""

    every_steps: int | None = None
    every_s: float | None = None


class NonFiniteAction(StrEnum):
    """Reaction to a step whose loss or gradient norm is not finite."""

    FAIL = "fail"
    SKIP = "skip"
    """Skip the step's update."""
    ROLLBACK = "rollback"
    """End the generation; the job restarts from the state before the step."""
    IGNORE = "ignore"
    """The detector is off."""


@dataclass(frozen=True)
class NonFiniteConfig:
    """Handling of non-finite steps: the spec's `recovery.non_finite`."""

    action: NonFiniteAction = NonFiniteAction.FAIL
    max_skips: int = 0
    """Size of the skip budget."""
    refill_steps: int = 100
    """Steps that return one skip to the budget."""


class LossSpikeAction(StrEnum):
    """Reaction to a step whose loss or gradient norm is a spike."""

    OFF = "off"
    """The detector is off."""
    WARN = "warn"
    ROLLBACK = "rollback"


@dataclass(frozen=True)
class RepeatedSpike:
    """A step that is repeated because of a spike."""

    step: int
    metric: str
    """`loss` or `gradient norm`."""
    limit: float
    """Largest value that was not a spike when the step first ran."""


@dataclass(frozen=True)
class LossSpikeConfig:
    """Handling of spikes: the spec's `recovery.loss_spike`."""

    action: LossSpikeAction = LossSpikeAction.OFF
    repeated: tuple[RepeatedSpike, ...] = ()


@dataclass(frozen=True)
class FaultPoint:
    """Place and time of a planned fault. Either `rank` or `node` is set."""

    step: int
    phase: str = "forward"
    rank: int | None = None
    node: int | None = None
    """Index of the node; its first rank injects the fault."""


@dataclass(frozen=True)
class FaultConfig:
    """A planned fault: an entry of the spec's `faults`."""

    at: FaultPoint
    do: str = "sigkill"
    """Kind of fault; see `Fault.do` of the spec."""
    duration_s: float | None = None
    """None: until the rank ends."""
    factor: float | None = None
    """`slow` only: time of a step relative to the undisturbed time."""
    share: float | None = None
    """`lose_traffic` only: fraction of incoming packets that are dropped."""
    steps: int | None = None
    """`slow` only: number of slow steps."""


@dataclass(frozen=True)
class ScriptConfig:
    """A program that runs unmodified: the spec's `workload` for a script or a Ray Train program."""

    kind: str = "script"
    """`script` or `ray_train`."""
    args: tuple[str, ...] = ()
    """Command line after the program's name."""
    cwd: str | None = None
    """Working directory. None: the folder of the program."""
    max_restarts: int = 0
    """Restarts that the budget for errors of user code allows."""
    storage_uri: str = ""
    """Ray Train only: default storage of its runs."""
    role: str = "default"
    """Value of `ROLE_NAME`."""


@dataclass(frozen=True)
class RankConfig:
    """Configuration that is equal on all ranks of a generation.

    Exactly one of `script`, `function` and `model` is set, by the kind of workload. Two fields stay free-form mappings:
    `args`, because it holds a user's own function arguments, and `model`, because each model family has its own fields,
    which the spec validates and `workers/models` reads.
    """

    training: TrainingConfig = TrainingConfig()
    parallel: ParallelConfig = ParallelConfig()
    model: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """`family` and the fields of that model family."""
    function: str = ""
    """`module:function` of a user's training function."""
    args: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The spec's `args`."""
    script: ScriptConfig | None = None
    seed: int = 0
    is_deterministic: bool = False
    """CUDA operations are bitwise repeatable: the spec's `determinism: strict`."""
    snapshot: SnapshotConfig = SnapshotConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    non_finite: NonFiniteConfig = NonFiniteConfig()
    loss_spike: LossSpikeConfig = LossSpikeConfig()
    verify_replicas: bool = False
    """Compare the state that several ranks hold."""
    verifies_restart: bool = False
    """Restart once from memory and compare repeated steps: the spec's `recovery.verify: restart`."""
    faults: tuple[FaultConfig, ...] = ()
    device_flops: Mapping[str, float] = field(default_factory=dict[str, float])
    """Part of a GPU's name → peak operations per second in the precision of the job."""


@dataclass(frozen=True)
class WarmupConfig:
    """Argument of the zygote's warm-up step (`workers/train/warmup.py`)."""

    config: RankConfig
    is_tensor_parallel: bool = False
