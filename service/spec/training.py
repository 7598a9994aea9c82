"""The part of a spec that says what is computed."""

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from regroup.service.spec.types import Positive, SpecModel, parse_off


class Optimizer(SpecModel):
    """AdamW (Loshchilov and Hutter 2019), or SGD with momentum."""

    name: Literal["adamw", "sgd"] = "adamw"
    """Which optimizer."""
    lr: float = Field(default=3e-4, gt=0)
    """Peak learning rate."""
    betas: tuple[float, float] = (0.9, 0.95)
    """Of adamw: decay of the first and second moment."""
    eps: float = Field(default=1e-8, gt=0)
    """Added to the root of the second moment."""
    momentum: float = Field(default=0.9, ge=0, lt=1)
    """Of sgd."""
    weight_decay: float = Field(default=0.1, ge=0)
    """Decoupled for adamw; of sgd it is added to the gradient."""
    clip_norm: float | None = Field(default=1.0, gt=0)
    """Gradients are scaled down to this norm; null leaves them."""


class Schedule(SpecModel):
    """Linear warm-up, then cosine decay to `min_lr_ratio` of the peak at the last step."""

    name: Literal["cosine", "constant"] = "cosine"
    """What follows the warm-up."""
    warmup_steps: int = Field(default=0, ge=0)
    """Steps from zero to the peak."""
    min_lr_ratio: float = Field(default=0.1, ge=0, le=1)
    """Learning rate of the last step over the peak."""


class Training(SpecModel):
    """What is computed. The result is a function of this and `seed`, not of layout, failure or size."""

    global_batch: Positive
    """Samples per step, fixed for the job's life unless `batch` says otherwise."""
    batch: Literal["fixed", "follows_world"] = "fixed"
    """`follows_world`: a step has `global_batch` samples at `layout.dp.target`, and in proportion at another size."""
    lr_rule: Literal["fixed", "linear", "sqrt"] = "fixed"
    """Of a batch that follows: the learning rate does so with its size, or with the root of it."""
    lr_ramp_steps: int = Field(default=0, ge=0)
    """Of a batch that follows: steps over which a new size's rate is gone to."""
    micro_batch: Positive = 1
    """Samples per forward: the unit that is dealt to ranks. Needed, unless `layout: auto` is to choose it. A size
    at which so many are not legal takes a part of it, if results do not depend on that."""
    sequence: Positive | None = None
    """Tokens per sample; the built-in transformer needs it."""
    steps: Positive
    """Optimizer updates of the whole job."""
    optimizer: Optimizer = Optimizer()
    """The optimizer and its constants."""
    schedule: Schedule = Schedule()
    """The learning rate over the steps."""
    precision: Literal["fp64", "fp32", "bf16", "fp16", "float8"] = "fp32"
    """Of forward and backward. In fp64 everything is; else parameters, sums of gradients and optimizer stay fp32. With
    fp16 the loss is scaled, and a step that overflows is skipped on all ranks. float8 is refused until it is proven."""
    reduce: Literal["fp32", "bf16"] = "fp32"
    """Gradients are summed over ranks in this; bf16 sends half the bytes and rounds."""
    compile: Annotated[Literal["off", "default", "reduce-overhead", "max-autotune"], BeforeValidator(parse_off)] = "off"
    """Blocks go through torch.compile, in this mode: slower to start, then faster."""
    activation_checkpointing: (
        Literal["none", "full", "selective", "sqrt"]
        | Annotated[int, Field(gt=1)]
        | Annotated[float, Field(gt=0, lt=1, strict=True)]
    ) = "none"
    """Recompute in backward: `full` every block, `selective` what is cheap of each, a number k all blocks but every
    k-th, `sqrt` with k the root of their number; below 1, what the compiler chooses to keep this share of memory."""
    validate_every: Positive | None = None
    """Steps between validation losses; with held-out data, also at the last step."""

    def samples_at(self, dp: int, target: int) -> int:
        """Samples of a step at a data-parallel degree, if `target` is the wanted one."""
        return self.global_batch if self.batch == "fixed" else self.global_batch * dp // target

    @model_validator(mode="after")
    def _whole_micro_batches(self) -> Self:
        if self.global_batch % self.micro_batch:
            raise PydanticCustomError(
                "global_batch",
                "global_batch must be whole micro-batches: {global_batch} % {micro_batch} != 0",
                {"global_batch": self.global_batch, "micro_batch": self.micro_batch},
            )
        if self.batch == "fixed" and (self.lr_rule != "fixed" or self.lr_ramp_steps):
            raise PydanticCustomError("batch", "lr_rule and lr_ramp_steps are of batch follows_world: set it")
        if self.schedule.warmup_steps >= self.steps:
            raise PydanticCustomError(
                "warmup_steps",
                "schedule.warmup_steps must be less than steps: {warmup} >= {steps}",
                {"warmup": self.schedule.warmup_steps, "steps": self.steps},
            )
        return self
