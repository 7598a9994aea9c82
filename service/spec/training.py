"""Training section of a job spec."""

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from regroup.service.spec.types import (
    MAX_SAMPLES,
    MAX_STEPS,
    Integer,
    Number,
    SpecModel,
    Steps,
    parse_off,
)

_Samples = Annotated[Integer, Field(ge=1, le=MAX_SAMPLES)]
_Moment = Annotated[Number, Field(ge=0, lt=1)]


class Optimizer(SpecModel):
    """AdamW (Loshchilov and Hutter 2019), or SGD with momentum."""

    name: Literal["adamw", "sgd"] = "adamw"
    """Optimizer."""
    lr: Number = Field(default=3e-4, ge=1e-12, le=100)
    """Peak learning rate."""
    betas: tuple[_Moment, _Moment] = (0.9, 0.95)
    """For adamw: decay rates of the first and second moment."""
    eps: Number = Field(default=1e-8, ge=1e-30, le=1)
    """For adamw: added to the root of the second moment."""
    momentum: Number = Field(default=0.9, ge=0, lt=1)
    """For sgd: momentum."""
    weight_decay: Number = Field(default=0.1, ge=0, le=100)
    """Weight decay. Decoupled for adamw; added to the gradient for sgd."""
    clip_norm: Annotated[Number, Field(ge=1e-12, le=1e12)] | None = 1.0
    """Maximum gradient norm; null disables clipping."""

    @model_validator(mode="after")
    def _check_decay(self) -> Self:
        if self.lr * self.weight_decay >= 1:
            raise PydanticCustomError(
                "weight_decay",
                "lr * weight_decay must be below 1: each step would reverse the sign of the parameters: {lr} * {decay}",
                {"lr": self.lr, "decay": self.weight_decay},
            )
        return self


class Schedule(SpecModel):
    """Linear warm-up, then cosine decay to `min_lr_ratio` of the peak at the last step."""

    name: Literal["cosine", "constant"] = "cosine"
    """Shape of the learning rate after the warm-up."""
    warmup_steps: Integer = Field(default=0, ge=0, le=MAX_STEPS)
    """Number of steps from zero to the peak."""
    min_lr_ratio: Number = Field(default=0.1, ge=0, le=1)
    """Learning rate of the last step, as a fraction of the peak."""


class Training(SpecModel):
    """Training settings. The result is a function of this section and `seed`, not of layout, failures or size."""

    global_batch: _Samples
    """Number of samples per step. Fixed for the life of the job unless `batch` is `follows_world`."""
    batch: Literal["fixed", "follows_world"] = "fixed"
    """`follows_world`: a step has `global_batch` samples at `layout.dp.target`, and a proportional number at other
    sizes."""
    lr_rule: Literal["fixed", "linear", "sqrt"] = "fixed"
    """For `batch: follows_world`: scaling of the learning rate with the batch size. `linear`: proportional. `sqrt`:
    with its square root."""
    lr_ramp_steps: Integer = Field(default=0, ge=0, le=MAX_STEPS)
    """For `batch: follows_world`: number of steps over which the learning rate changes after a resize."""
    micro_batch: _Samples = 1
    """Number of samples per forward: the unit that is distributed to ranks. Required unless `layout: auto` chooses it.
    Sizes at which this value is illegal use a divisor of it, if results do not depend on it."""
    sequence: Annotated[Integer, Field(ge=1, le=2**24)] | None = None
    """Number of tokens per sample. Required by the built-in transformer."""
    steps: Steps
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
        | Annotated[Integer, Field(ge=2, le=10_000)]
        | Annotated[Number, Field(gt=0, lt=1)]
    ) = "none"
    """Activations to recompute in backward. `full`: every block. `selective`: the cheap operations of each block. An
    integer k: all blocks except every k-th. `sqrt`: as k, with k the square root of the number of blocks. A number
    below 1: the compiler chooses, within this fraction of memory."""
    validate_every: Steps | None = None
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
