"""Training section of a job spec."""

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from regroup.service.spec.types import Positive, SpecModel, parse_off


class Optimizer(SpecModel):
    """AdamW (Loshchilov and Hutter 2019), or SGD with momentum."""

    name: Literal["adamw", "sgd"] = "adamw"
    """Optimizer."""
    lr: float = Field(default=3e-4, gt=0)
    """Peak learning rate."""
    betas: tuple[float, float] = (0.9, 0.95)
    """For adamw: decay rates of the first and second moment."""
    eps: float = Field(default=1e-8, gt=0)
    """For adamw: added to the root of the second moment."""
    momentum: float = Field(default=0.9, ge=0, lt=1)
    """For sgd: momentum."""
    weight_decay: float = Field(default=0.1, ge=0)
    """Weight decay. Decoupled for adamw; added to the gradient for sgd."""
    clip_norm: float | None = Field(default=1.0, gt=0)
    """Maximum gradient norm; null disables clipping."""


class Schedule(SpecModel):
    """Linear warm-up, then cosine decay to `min_lr_ratio` of the peak at the last step."""

    name: Literal["cosine", "constant"] = "cosine"
    """Shape of the learning rate after the warm-up."""
    warmup_steps: int = Field(default=0, ge=0)
    """Number of steps from zero to the peak."""
    min_lr_ratio: float = Field(default=0.1, ge=0, le=1)
    """Learning rate of the last step, as a fraction of the peak."""


class Training(SpecModel):
    """Training settings. The result is a function of this section and `seed`, not of layout, failures or size."""

    global_batch: Positive
    """Number of samples per step. Fixed for the life of the job unless `batch` is `follows_world`."""
    batch: Literal["fixed", "follows_world"] = "fixed"
    """`follows_world`: a step has `global_batch` samples at `layout.dp.target`, and a proportional number at other
    sizes."""
    lr_rule: Literal["fixed", "linear", "sqrt"] = "fixed"
    """For `batch: follows_world`: scaling of the learning rate with the batch size. `linear`: proportional. `sqrt`:
    with its square root."""
    lr_ramp_steps: int = Field(default=0, ge=0)
    """For `batch: follows_world`: number of steps over which the learning rate changes after a resize."""
    micro_batch: Positive = 1
    """Number of samples per forward: the unit that is distributed to ranks. Required unless `layout: auto` chooses it.
    Sizes at which this value is illegal use a divisor of it, if results do not depend on it."""
    sequence: Positive | None = None
    """Number of tokens per sample. Required by the built-in transformer."""
    steps: Positive
    """Number of optimizer updates of the whole job."""
    optimizer: Optimizer = Optimizer()
    """Optimizer and its constants."""
    schedule: Schedule = Schedule()
    """Learning rate schedule."""
    precision: Literal["fp64", "fp32", "bf16", "fp16", "float8"] = "fp32"
    """Precision of forward and backward. With fp64 everything is fp64; otherwise parameters, gradient sums and
    optimizer state are fp32. fp16 scales the loss and skips a step that overflows on all ranks. float8 is rejected
    until it is verified."""
    reduce: Literal["fp32", "bf16"] = "fp32"
    """Precision of the gradient reduction over ranks. bf16 sends half the bytes and rounds."""
    compile: Annotated[Literal["off", "default", "reduce-overhead", "max-autotune"], BeforeValidator(parse_off)] = "off"
    """torch.compile mode for the blocks: a slower start, then faster steps."""
    activation_checkpointing: (
        Literal["none", "full", "selective", "sqrt"]
        | Annotated[int, Field(gt=1)]
        | Annotated[float, Field(gt=0, lt=1, strict=True)]
    ) = "none"
    """Activations to recompute in backward. `full`: every block. `selective`: the cheap operations of each block. An
    integer k: all blocks except every k-th. `sqrt`: as k, with k the square root of the number of blocks. A number
    below 1: the compiler chooses, within this fraction of memory."""
    validate_every: Positive | None = None
    """Number of steps between validation losses. With held-out data, the last step is validated as well."""

    def samples_at(self, dp: int, target: int) -> int:
        """Return the number of samples per step at a data-parallel degree.

        Args:
            dp: data-parallel degree.
            target: requested data-parallel degree.
        """
        return self.global_batch if self.batch == "fixed" else self.global_batch * dp // target

    @model_validator(mode="after")
    def _check_batches(self) -> Self:
        if self.global_batch % self.micro_batch:
            raise PydanticCustomError(
                "global_batch",
                "global_batch must be a multiple of micro_batch: {global_batch} % {micro_batch} != 0",
                {"global_batch": self.global_batch, "micro_batch": self.micro_batch},
            )
        if self.batch == "fixed" and (self.lr_rule != "fixed" or self.lr_ramp_steps):
            raise PydanticCustomError("batch", "lr_rule and lr_ramp_steps need batch: follows_world")
        if self.schedule.warmup_steps >= self.steps:
            raise PydanticCustomError(
                "warmup_steps",
                "schedule.warmup_steps must be less than steps: {warmup} >= {steps}",
                {"warmup": self.schedule.warmup_steps, "steps": self.steps},
            )
        return self
