"""Rules that a legal layout satisfies, as data. Spec validation, documentation and tests read this one table."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ModelSizes:
    """Model sizes that layout rules use. A size is None if the model does not have it or the tokenizer determines
    it."""

    layers: int
    heads: int | None = None
    kv_heads: int | None = None
    ffn_dim: int | None = None
    vocab_size: int | None = None
    classes: int | None = None
    tie_embeddings: bool = False
    has_sequence: bool = True
    norm_over: str | None = None
    """Batch over which the model normalizes, if it uses batch normalization."""


NO_MODEL = ModelSizes(layers=1)
"""Sizes of a function workload, whose model is unknown."""


@dataclass(frozen=True)
class LayoutCandidate:
    """A layout at one data-parallel degree, with all fields that rules use."""

    dp: int
    tp: int
    cp: int
    pp: int
    data_parallel: str
    dp_shard: int | None
    reshard_after_forward: bool | int
    prefetch: int
    offload: bool
    bucket_mib: int
    find_unused_parameters: bool
    sequence_parallel: bool
    async_tp: bool
    schedule: str
    stages: int
    """Number of stages of the whole pipeline."""
    activation_checkpointing: str | int | float
    precision: str
    reduce: str
    compile: str
    sequence: int
    micro_batches: int
    """Number of micro-batches per step, over all ranks."""
    model: ModelSizes

    @property
    def is_sharded(self) -> bool:
        """True if parameters are sharded between steps."""
        return self.data_parallel in ("fsdp", "zero2")

    @property
    def micro_batches_per_rank(self) -> int:
        """Number of micro-batches of a rank per step, including padding."""
        return -(-self.micro_batches // self.dp)


@dataclass(frozen=True)
class LayoutRule:
    """One rule of a legal layout."""

    field: str
    """Spec field to change first."""
    requirement: str
    """The requirement, for people."""
    reason: str
    """Reason for the requirement."""
    is_satisfied: Callable[[LayoutCandidate], bool]
    """Function that returns True if a candidate satisfies the rule."""
    values: Callable[[LayoutCandidate], Mapping[str, Any]]
    """Function that returns the values to show in the message of a violation."""

    def message(self, choice: LayoutCandidate) -> str:
        """Return a message with the requirement, the values and the reason."""
        values = ", ".join(f"{name}={value}" for name, value in self.values(choice).items())
        return f"{self.field}: {self.requirement}: {values}; {self.reason}"


def find_violations(choice: LayoutCandidate) -> list[str]:
    """Return a message for each rule that the candidate violates."""
    return [rule.message(choice) for rule in RULES if not rule.is_satisfied(choice)]


def render_rules() -> str:
    """Render the rules as a Markdown table."""
    lines = ["| field | requirement | reason |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| `{rule.field}` | {rule.requirement} | {rule.reason} |" for rule in RULES)])


def _divides_model_size(
    size: str, reason: str = "each rank of a tensor-parallel group computes an equal part"
) -> LayoutRule:
    def is_satisfied(choice: LayoutCandidate) -> bool:
        value = getattr(choice.model, size)
        return value is None or value % choice.tp == 0

    return LayoutRule(
        "layout.tp",
        f"must divide the model's {size}",
        reason,
        is_satisfied,
        lambda choice: {"tp": choice.tp, size: getattr(choice.model, size)},
    )


def _rounds(choice: LayoutCandidate) -> int:
    return max(1, choice.micro_batches_per_rank // choice.pp)


RULES: tuple[LayoutRule, ...] = (
    LayoutRule(
        "layout.dp",
        "must not exceed the number of micro-batches per step",
        "a data rank computes whole micro-batches (training.global_batch / training.micro_batch)",
        lambda choice: choice.dp <= choice.micro_batches,
        lambda choice: {"dp": choice.dp, "micro-batches": choice.micro_batches},
    ),
    LayoutRule(
        "layout.dp_shard",
        "must divide layout.dp",
        "each copy of the parameters is sharded over a group of the same size",
        lambda choice: choice.dp_shard is None or choice.dp % choice.dp_shard == 0,
        lambda choice: {"dp": choice.dp, "dp_shard": choice.dp_shard},
    ),
    LayoutRule(
        "layout.dp_shard",
        "needs data_parallel fsdp or zero2",
        "with ddp and zero1 each data rank has a whole copy of the parameters",
        lambda choice: choice.dp_shard is None or choice.is_sharded,
        lambda choice: {"data_parallel": choice.data_parallel, "dp_shard": choice.dp_shard},
    ),
    LayoutRule(
        "layout.data_parallel",
        "zero1 needs tp 1 and pp 1",
        "zero1 shards the optimizer state over ranks that hold all parameters; fsdp supports tp and pp",
        lambda choice: choice.data_parallel != "zero1" or choice.tp == choice.pp == 1,
        lambda choice: {"data_parallel": choice.data_parallel, "tp": choice.tp, "pp": choice.pp},
    ),
    LayoutRule(
        "layout.reshard_after_forward",
        "must be true, except with data_parallel fsdp and pp 1",
        "zero2 never reshards between forward and backward; a pipeline would gather again for every micro-batch",
        lambda choice: choice.reshard_after_forward is True or (choice.data_parallel == "fsdp" and choice.pp == 1),
        lambda choice: {"reshard_after_forward": choice.reshard_after_forward, "data_parallel": choice.data_parallel,
                        "pp": choice.pp},
    ),
    LayoutRule(
        "layout.reshard_after_forward",
        "an integer must divide the number of ranks that share one copy, and be above 1 and below that number",
        "parameters stay sharded over that many neighbouring ranks until backward",
        lambda choice: isinstance(choice.reshard_after_forward, bool)
        or (1 < choice.reshard_after_forward < (choice.dp_shard or choice.dp)
            and (choice.dp_shard or choice.dp) % choice.reshard_after_forward == 0),
        lambda choice: {"reshard_after_forward": choice.reshard_after_forward, "ranks": choice.dp_shard or choice.dp},
    ),
    LayoutRule(
        "layout.prefetch",
        "a value other than 1, and offload, need data_parallel fsdp or zero2",
        "with ddp and zero1 all parameters are on the device and none are gathered",
        lambda choice: choice.is_sharded or (choice.prefetch == 1 and not choice.offload),
        lambda choice: {"prefetch": choice.prefetch, "offload": choice.offload, "data_parallel": choice.data_parallel},
    ),
    LayoutRule(
        "layout.bucket_mib",
        "a value other than 25 needs data_parallel ddp or zero1, tp 1 and pp 1",
        "all other layouts reduce gradients block by block",
        lambda choice: choice.bucket_mib == 25 or (not choice.is_sharded and choice.tp == choice.pp == 1),
        lambda choice: {"bucket_mib": choice.bucket_mib, "data_parallel": choice.data_parallel, "tp": choice.tp,
                        "pp": choice.pp},
    ),
    LayoutRule(
        "layout.find_unused_parameters",
        "true needs data_parallel ddp or zero1, tp 1 and pp 1",
        "all other layouts reduce gradients block by block, and all ranks use each block",
        lambda choice: not choice.find_unused_parameters or (not choice.is_sharded and choice.tp == choice.pp == 1),
        lambda choice: {"find_unused_parameters": choice.find_unused_parameters,
                        "data_parallel": choice.data_parallel, "tp": choice.tp, "pp": choice.pp},
    ),
    _divides_model_size("heads"),
    _divides_model_size("kv_heads"),
    _divides_model_size("ffn_dim"),
    _divides_model_size("vocab_size", "each rank holds an equal part of its rows: set model.vocab_size to a multiple"),
    _divides_model_size(
        "classes", "each rank computes the logits of an equal part of the classes: set model.classes to a multiple"
    ),
    LayoutRule(
        "layout.sequence_parallel",
        "must be false with tp above 1 if samples have no sequence",
        "images are not split between ranks: a convolution reads across the edges of a part",
        lambda choice: choice.model.has_sequence or choice.tp == 1 or not choice.sequence_parallel,
        lambda choice: {"tp": choice.tp, "sequence_parallel": choice.sequence_parallel},
    ),
    LayoutRule(
        "layout.dp",
        "must divide the number of micro-batches per step if the model has batch normalization",
        "ranks with fewer micro-batches run empty ones, which would change the batch statistics",
        lambda choice: choice.model.norm_over is None or choice.micro_batches % choice.dp == 0,
        lambda choice: {"dp": choice.dp, "micro-batches": choice.micro_batches},
    ),
    LayoutRule(
        "layout.dp",
        "must equal the number of micro-batches per step, with tp 1, if model.norm_over is global_batch",
        "statistics over all samples of a step need one micro-batch per rank; channels that are split between ranks "
        "are not supported yet",
        lambda choice: choice.model.norm_over != "global_batch"
        or (choice.micro_batches == choice.dp and choice.tp == 1),
        lambda choice: {"dp": choice.dp, "micro-batches": choice.micro_batches, "tp": choice.tp},
    ),
    LayoutRule(
        "layout.tp",
        "must divide training.sequence if sequence_parallel is on",
        "each rank of the group holds an equal part of the sequence between tensor-parallel layers",
        lambda choice: not (choice.sequence_parallel and choice.model.has_sequence)
        or choice.sequence % choice.tp == 0,
        lambda choice: {"tp": choice.tp, "sequence": choice.sequence},
    ),
    LayoutRule(
        "layout.cp",
        "must be 1",
        "context parallelism has no CPU kernel and is not verified on a GPU yet",
        lambda choice: choice.cp == 1,
        lambda choice: {"cp": choice.cp},
    ),
    LayoutRule(
        "layout.async_tp",
        "must be false",
        "async_tp needs symmetric memory of GPUs with NVLink and is not verified on one yet",
        lambda choice: not choice.async_tp,
        lambda choice: {"async_tp": choice.async_tp},
    ),
    LayoutRule(
        "training.precision",
        "must not be float8",
        "float8 matrix multiplications need an Ada or newer GPU and are not verified on one yet",
        lambda choice: choice.precision != "float8",
        lambda choice: {"precision": choice.precision},
    ),
    LayoutRule(
        "layout.pp",
        "needs at least one block per stage",
        "interleaved and zero-bubble schedules have two stages per rank",
        lambda choice: choice.stages <= choice.model.layers,
        lambda choice: {"stages": choice.stages, "layers": choice.model.layers},
    ),
    LayoutRule(
        "layout.pp",
        "must be 1 with tie_embeddings",
        "the first and the last stage would hold the same parameter",
        lambda choice: choice.pp == 1 or not choice.model.tie_embeddings,
        lambda choice: {"pp": choice.pp, "tie_embeddings": choice.model.tie_embeddings},
    ),
    LayoutRule(
        "layout.schedule",
        "except for gpipe, needs at least pp micro-batches per rank",
        "the schedule is not defined for fewer",
        lambda choice: choice.pp == 1 or choice.schedule == "gpipe" or choice.micro_batches_per_rank >= choice.pp,
        lambda choice: {"schedule": choice.schedule, "pp": choice.pp,
                        "micro-batches per rank": choice.micro_batches_per_rank},
    ),
    LayoutRule(
        "layout.schedule",
        "interleaved schedules need a whole number of rounds of micro-batches per rank",
        "a rank switches to its next stage after each round of pp micro-batches",
        lambda choice: choice.pp == 1
        or not choice.schedule.startswith("interleaved")
        or choice.micro_batches_per_rank % _rounds(choice) == 0,
        lambda choice: {"schedule": choice.schedule, "pp": choice.pp,
                        "micro-batches per rank": choice.micro_batches_per_rank},
    ),
    LayoutRule(
        "training.reduce",
        "must not be bf16 with precision fp64",
        "fp64 is for reference runs, and rounded sums would reduce their accuracy",
        lambda choice: choice.reduce == "fp32" or choice.precision != "fp64",
        lambda choice: {"reduce": choice.reduce, "precision": choice.precision},
    ),
    LayoutRule(
        "training.compile",
        "must be off with tp above 1",
        "compiled blocks with tensor-parallel parameters gave wrong gradients (torch 2.13)",
        lambda choice: choice.compile == "off" or choice.tp == 1,
        lambda choice: {"compile": choice.compile, "tp": choice.tp},
    ),
    LayoutRule(
        "training.compile",
        "must be off with zero-bubble schedules",
        "these schedules split the backward of a block in two, and compiled code has only one",
        lambda choice: choice.compile == "off" or choice.pp == 1
        or choice.schedule not in ("interleaved_zero_bubble", "zbv"),
        lambda choice: {"compile": choice.compile, "schedule": choice.schedule},
    ),
    LayoutRule(
        "training.activation_checkpointing",
        "a fraction needs training.compile",
        "the compiler chooses the activations to keep within that fraction of memory",
        lambda choice: not isinstance(choice.activation_checkpointing, float) or choice.compile != "off",
        lambda choice: {"activation_checkpointing": choice.activation_checkpointing, "compile": choice.compile},
    ),
    LayoutRule(
        "training.activation_checkpointing",
        "must not be selective with zero-bubble schedules",
        "these schedules run the backward of a block twice, and selective checkpointing frees its activations after "
        "the first",
        lambda choice: choice.activation_checkpointing != "selective" or choice.pp == 1
        or choice.schedule not in ("interleaved_zero_bubble", "zbv"),
        lambda choice: {"activation_checkpointing": choice.activation_checkpointing, "schedule": choice.schedule},
    ),
)  # fmt: skip
"""All layout rules. A layout is legal if it satisfies each of them."""
