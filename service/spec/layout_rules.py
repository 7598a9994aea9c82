"""What a layout must keep to, as data: spec validation, documentation and tests read the one table."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ModelSizes:
    """What a layout must know of a model; sizes that it must divide are None where the model has none of them, or the
    tokenizer decides."""

    layers: int
    heads: int | None = None
    kv_heads: int | None = None
    ffn_dim: int | None = None
    vocab_size: int | None = None
    classes: int | None = None
    tie_embeddings: bool = False
    has_sequence: bool = True
    norm_over: str | None = None
    """The batch that it normalises over, if it does."""


NO_MODEL = ModelSizes(layers=1)
"""Of a function: what it computes is its own."""


@dataclass(frozen=True)
class LayoutCandidate:
    """Everything that rules look at, at one data-parallel degree."""

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
    """Of the whole pipeline."""
    activation_checkpointing: str | int | float
    precision: str
    reduce: str
    compile: str
    sequence: int
    micro_batches: int
    """Of one step, all ranks together."""
    model: ModelSizes

    @property
    def is_sharded(self) -> bool:
        """Parameters are sharded between steps."""
        return self.data_parallel in ("fsdp", "zero2")

    @property
    def micro_batches_of_a_rank(self) -> int:
        """Of one step, with dummies."""
        return -(-self.micro_batches // self.dp)


@dataclass(frozen=True)
class LayoutRule:
    """One thing that must hold."""

    field: str
    """The field of the spec to change first."""
    law: str
    """What must hold, for people."""
    reason: str
    """Why."""
    holds: Callable[[LayoutCandidate], bool]
    values: Callable[[LayoutCandidate], Mapping[str, Any]]
    """What the message of a violation shows."""

    def message(self, choice: LayoutCandidate) -> str:
        """What is wrong, the values, and why."""
        values = ", ".join(f"{name}={value}" for name, value in self.values(choice).items())
        return f"{self.field}: {self.law}: {values}; {self.reason}"


def find_violations(choice: LayoutCandidate) -> list[str]:
    """A message for each rule that does not hold."""
    return [rule.message(choice) for rule in RULES if not rule.holds(choice)]


def render_rules() -> str:
    """The table for people."""
    lines = ["| field | what must hold | why |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| `{rule.field}` | {rule.law} | {rule.reason} |" for rule in RULES)])


def _of_model(size: str, reason: str = "every rank of a tensor-parallel group computes an equal part") -> LayoutRule:
    def holds(choice: LayoutCandidate) -> bool:
        value = getattr(choice.model, size)
        return value is None or value % choice.tp == 0

    return LayoutRule(
        "layout.tp",
        f"divides the model's {size}",
        reason,
        holds,
        lambda choice: {"tp": choice.tp, size: getattr(choice.model, size)},
    )


def _rounds(choice: LayoutCandidate) -> int:
    return max(1, choice.micro_batches_of_a_rank // choice.pp)


RULES: tuple[LayoutRule, ...] = (
    LayoutRule(
        "layout.dp",
        "at most as many as a step has micro-batches",
        "a data rank computes whole micro-batches (training.global_batch / training.micro_batch)",
        lambda choice: choice.dp <= choice.micro_batches,
        lambda choice: {"dp": choice.dp, "micro-batches": choice.micro_batches},
    ),
    LayoutRule(
        "layout.dp_shard",
        "divides layout.dp",
        "copies of the parameters are spread over groups of equal size",
        lambda choice: choice.dp_shard is None or choice.dp % choice.dp_shard == 0,
        lambda choice: {"dp": choice.dp, "dp_shard": choice.dp_shard},
    ),
    LayoutRule(
        "layout.dp_shard",
        "only with data_parallel fsdp or zero2",
        "ddp and zero1 have a whole copy of the parameters on each data rank",
        lambda choice: choice.dp_shard is None or choice.is_sharded,
        lambda choice: {"data_parallel": choice.data_parallel, "dp_shard": choice.dp_shard},
    ),
    LayoutRule(
        "layout.data_parallel",
        "zero1 only with tp 1 and pp 1",
        "the optimizer's state is spread over ranks that hold all parameters; fsdp spreads more and joins with both",
        lambda choice: choice.data_parallel != "zero1" or choice.tp == choice.pp == 1,
        lambda choice: {"data_parallel": choice.data_parallel, "tp": choice.tp, "pp": choice.pp},
    ),
    LayoutRule(
        "layout.reshard_after_forward",
        "other than true only with data_parallel fsdp and pp 1",
        "zero2 never reshards between forward and backward, nor does a pipeline, which would gather again for every "
        "micro-batch",
        lambda choice: choice.reshard_after_forward is True or (choice.data_parallel == "fsdp" and choice.pp == 1),
        lambda choice: {"reshard_after_forward": choice.reshard_after_forward, "data_parallel": choice.data_parallel,
                        "pp": choice.pp},
    ),
    LayoutRule(
        "layout.reshard_after_forward",
        "a number is a divisor of the ranks that share one copy, above 1 and below all of them",
        "parameters stay spread over so many neighbouring ranks until the backward",
        lambda choice: isinstance(choice.reshard_after_forward, bool)
        or (1 < choice.reshard_after_forward < (choice.dp_shard or choice.dp)
            and (choice.dp_shard or choice.dp) % choice.reshard_after_forward == 0),
        lambda choice: {"reshard_after_forward": choice.reshard_after_forward, "ranks": choice.dp_shard or choice.dp},
    ),
    LayoutRule(
        "layout.prefetch",
        "other than 1, and offload, only with data_parallel fsdp or zero2",
        "ddp and zero1 gather no parameters and have whole ones on the device",
        lambda choice: choice.is_sharded or (choice.prefetch == 1 and not choice.offload),
        lambda choice: {"prefetch": choice.prefetch, "offload": choice.offload, "data_parallel": choice.data_parallel},
    ),
    LayoutRule(
        "layout.bucket_mib",
        "other than 25 only with data_parallel ddp or zero1, tp 1 and pp 1",
        "everything else sums gradients block by block",
        lambda choice: choice.bucket_mib == 25 or (not choice.is_sharded and choice.tp == choice.pp == 1),
        lambda choice: {"bucket_mib": choice.bucket_mib, "data_parallel": choice.data_parallel, "tp": choice.tp,
                        "pp": choice.pp},
    ),
    LayoutRule(
        "layout.find_unused_parameters",
        "true only with data_parallel ddp or zero1, tp 1 and pp 1",
        "everything else sums gradients block by block, of blocks that all ranks use",
        lambda choice: not choice.find_unused_parameters or (not choice.is_sharded and choice.tp == choice.pp == 1),
        lambda choice: {"find_unused_parameters": choice.find_unused_parameters,
                        "data_parallel": choice.data_parallel, "tp": choice.tp, "pp": choice.pp},
    ),
    _of_model("heads"),
    _of_model("kv_heads"),
    _of_model("ffn_dim"),
    _of_model("vocab_size", "each rank holds an equal part of its rows: set model.vocab_size to a multiple"),
    _of_model("classes", "each rank computes the logits of an equal part of them: set model.classes to a multiple"),
    LayoutRule(
        "layout.sequence_parallel",
        "false with tp above 1 where samples have no sequence",
        "images are not split between ranks: a convolution looks beyond the edge of a part",
        lambda choice: choice.model.has_sequence or choice.tp == 1 or not choice.sequence_parallel,
        lambda choice: {"tp": choice.tp, "sequence_parallel": choice.sequence_parallel},
    ),
    LayoutRule(
        "layout.dp",
        "divides the number of micro-batches of a step where the model has batch normalisation",
        "ranks that would run fewer are filled up with empty micro-batches, which have statistics of their own",
        lambda choice: choice.model.norm_over is None or choice.micro_batches % choice.dp == 0,
        lambda choice: {"dp": choice.dp, "micro-batches": choice.micro_batches},
    ),
    LayoutRule(
        "layout.dp",
        "is the number of micro-batches of a step where model.norm_over is global_batch, and tp is 1",
        "statistics of all samples of a step are known only if all are computed at once, each rank one micro-batch; "
        "they are not yet taken of channels that are split between ranks",
        lambda choice: choice.model.norm_over != "global_batch"
        or (choice.micro_batches == choice.dp and choice.tp == 1),
        lambda choice: {"dp": choice.dp, "micro-batches": choice.micro_batches, "tp": choice.tp},
    ),
    LayoutRule(
        "layout.tp",
        "divides training.sequence where sequence_parallel is on",
        "every rank of the group keeps an equal part of the sequence between split layers",
        lambda choice: not (choice.sequence_parallel and choice.model.has_sequence)
        or choice.sequence % choice.tp == 0,
        lambda choice: {"tp": choice.tp, "sequence": choice.sequence},
    ),
    LayoutRule(
        "layout.cp",
        "is 1",
        "context parallelism has no kernel on CPUs and was not proven on a GPU yet",
        lambda choice: choice.cp == 1,
        lambda choice: {"cp": choice.cp},
    ),
    LayoutRule(
        "layout.async_tp",
        "is false",
        "it needs symmetric memory of GPUs with NVLink, and was not proven on one yet",
        lambda choice: not choice.async_tp,
        lambda choice: {"async_tp": choice.async_tp},
    ),
    LayoutRule(
        "training.precision",
        "is not float8",
        "its products exist on GPUs from Ada on, and were not proven on one yet",
        lambda choice: choice.precision != "float8",
        lambda choice: {"precision": choice.precision},
    ),
    LayoutRule(
        "layout.pp",
        "has a block at least for each stage",
        "interleaved and zero-bubble schedules have two stages on a rank",
        lambda choice: choice.stages <= choice.model.layers,
        lambda choice: {"stages": choice.stages, "layers": choice.model.layers},
    ),
    LayoutRule(
        "layout.pp",
        "is 1 with tie_embeddings",
        "the first and the last stage would hold the same parameter",
        lambda choice: choice.pp == 1 or not choice.model.tie_embeddings,
        lambda choice: {"pp": choice.pp, "tie_embeddings": choice.model.tie_embeddings},
    ),
    LayoutRule(
        "layout.schedule",
        "but for gpipe, a rank has at least as many micro-batches as the pipeline has ranks",
        "the schedule is not defined for fewer",
        lambda choice: choice.pp == 1 or choice.schedule == "gpipe" or choice.micro_batches_of_a_rank >= choice.pp,
        lambda choice: {"schedule": choice.schedule, "pp": choice.pp,
                        "micro-batches of a rank": choice.micro_batches_of_a_rank},
    ),
    LayoutRule(
        "layout.schedule",
        "interleaved schedules need micro-batches in whole rounds of as many as the pipeline has ranks",
        "a rank turns to its next stage after each round",
        lambda choice: choice.pp == 1
        or not choice.schedule.startswith("interleaved")
        or choice.micro_batches_of_a_rank % _rounds(choice) == 0,
        lambda choice: {"schedule": choice.schedule, "pp": choice.pp,
                        "micro-batches of a rank": choice.micro_batches_of_a_rank},
    ),
    LayoutRule(
        "training.reduce",
        "not bf16 with precision fp64",
        "that is for truth, and rounding sums would spoil it",
        lambda choice: choice.reduce == "fp32" or choice.precision != "fp64",
        lambda choice: {"reduce": choice.reduce, "precision": choice.precision},
    ),
    LayoutRule(
        "training.compile",
        "off with tp above 1",
        "compiled, blocks whose tensors are split gave wrong gradients (torch 2.13)",
        lambda choice: choice.compile == "off" or choice.tp == 1,
        lambda choice: {"compile": choice.compile, "tp": choice.tp},
    ),
    LayoutRule(
        "training.compile",
        "off with zero-bubble schedules",
        "they go backward through a block in two parts, and what is compiled has only one",
        lambda choice: choice.compile == "off" or choice.pp == 1
        or choice.schedule not in ("interleaved_zero_bubble", "zbv"),
        lambda choice: {"compile": choice.compile, "schedule": choice.schedule},
    ),
    LayoutRule(
        "training.activation_checkpointing",
        "a share of memory only with training.compile",
        "it is the compiler that decides what is kept within it",
        lambda choice: not isinstance(choice.activation_checkpointing, float) or choice.compile != "off",
        lambda choice: {"activation_checkpointing": choice.activation_checkpointing, "compile": choice.compile},
    ),
    LayoutRule(
        "training.activation_checkpointing",
        "not selective with zero-bubble schedules",
        "they go backward through a block twice, and what selective checkpointing kept is given up after the first",
        lambda choice: choice.activation_checkpointing != "selective" or choice.pp == 1
        or choice.schedule not in ("interleaved_zero_bubble", "zbv"),
        lambda choice: {"activation_checkpointing": choice.activation_checkpointing, "schedule": choice.schedule},
    ),
)  # fmt: skip
"""Legal layouts keep all of them."""
