"""The built-in trainer: an ordinary training function, loaded by name like a user's.

The result is a function of seed and spec: the loss is the sum over tokens divided by the valid tokens of the whole
step, gradients are summed and never averaged, samples and initial values do not know the layout.
"""

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch

# Not used here. The first sharded forward would import it: a second of every rank, if the zygote had not.
import torch._dynamo  # pyright: ignore[reportUnusedImport]
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from regroup.workers.contract import Phase
from regroup.workers.models import build_model
from regroup.workers.parallel.digest import parameters_digest
from regroup.workers.parallel.loss import loss_scope, token_loss, value_of
from regroup.workers.parallel.mesh import meshes_of
from regroup.workers.parallel.names import parameters_of
from regroup.workers.parallel.parallelize import gradients, initialise, parallelize
from regroup.workers.parallel.precision import autocast
from regroup.workers.parallel.strategy import strategy_of
from regroup.workers.parallel.update import ShardAdamW, clip_factor, copies_of, scale, squared_norm
from regroup.workers.rank.context import Context
from regroup.workers.state.data import (
    MicroBatch,
    TrainingData,
    hash_from_limbs,
    hash_limbs,
    samples_hash_of,
    validation_batches,
)
from regroup.workers.state.record_files import open_tokens

_VALIDATION_RECORDS = 256
"""Held-out samples of one validation, evenly spaced over the file; fewer if it has fewer."""


def train(context: Context) -> None:
    """Train the job's model to its last step, or to an agreed stop."""
    _Training(context).run()


class _Training:
    def __init__(self, context: Context) -> None:
        context.phase(Phase.BUILD)
        config, training = context.config, context.config["training"]
        _be_deterministic(config["determinism"] == "strict")
        tokens = open_tokens(context.dataset, "train")
        assert tokens is not None, "a spec has data to train on"
        self._context = context
        self._training = training
        self._data = TrainingData(
            tokens,
            sequence=training["sequence"],
            global_batch=training["global_batch"],
            micro_batch=training["micro_batch"],
            seed=config["seed"],
        )
        strategy = strategy_of(config)
        self._meshes = meshes_of(context.layout, context.device.type, sharded=strategy.is_sharded)
        model = build_model(config["model"], tokens.vocab_size)
        self._model = parallelize(model, self._meshes, context.device, strategy)
        self._autocast = partial(autocast, strategy.precision, self._meshes, context.device.type)
        self._optimizer = make_optimizer(self._model, training["optimizer"])
        self._trained = list(self._model.parameters())
        self._copies = copies_of(self._trained)
        self._validation = self._held_out()

    def run(self) -> None:
        """Restore or begin, then step."""
        context, steps = self._context, int(self._training["steps"])
        context.track(model=self._model, optimizer=self._optimizer, data=self._data)
        done = context.restore()
        if done == 0:
            initialise(self._model, context.config["seed"])
        for step in range(done + 1, steps + 1):
            if not self._step(step, last=step == steps):
                return
        context.result = self._result()

    def _step(self, step: int, *, last: bool) -> bool:
        context = self._context
        place = context.data_place
        rate = learning_rate(step, self._training)
        batches = self._data.deal(place.index, place.degree)
        loss_sum = self._gradients(batches)
        # Ranks that split a model between them see the same samples: one of them counts.
        counted = batches if place.speaks else []
        ids = [sample for batch in counted for sample in batch.ids]
        low, high = hash_limbs(samples_hash_of(ids))
        gradients_now = [parameter.grad for parameter in self._trained if parameter.grad is not None]
        total = context.agree(
            {
                "loss": loss_sum if place.speaks or not math.isfinite(loss_sum) else 0.0,
                "tokens": sum(batch.valid_tokens for batch in counted),
                "samples": len(ids),
                "hash_low": low,
                "hash_high": high,
                "squared_norm": squared_norm(gradients_now, self._copies),
            }
        )
        tokens, samples = int(total["tokens"]), int(total["samples"])
        samples_hash = hash_from_limbs(total["hash_low"], total["hash_high"])
        context.phase(Phase.OPTIMIZER)
        # Known only after the backward: labels that are ignored make the step smaller than its nominal size.
        correction = self._nominal_tokens / max(tokens, 1)
        norm = correction * math.sqrt(total["squared_norm"])
        self._update(step, rate, gradients_now, total["loss"] / max(tokens, 1), norm, correction)
        self._data.advance(step, samples, samples_hash)
        every = self._training["validate_every"]
        validates = self._validation and (last or (every is not None and step % every == 0))
        return context.commit(
            step,
            loss=total["loss"] / max(tokens, 1),
            tokens=tokens,
            samples=samples,
            samples_hash=samples_hash,
            learning_rate=rate,
            grad_norm=norm,
            validation_loss=self._validation_loss() if validates else None,
        )

    def _gradients(self, batches: list[MicroBatch]) -> float:
        """Forward and backward of this rank's micro-batches; the sum of its token losses."""
        self._optimizer.zero_grad()
        total = torch.zeros((), dtype=torch.float64, device=self._context.device)
        for number, batch in enumerate(batches):
            with gradients(self._model, summed=number == len(batches) - 1), loss_scope(self._meshes):
                self._context.phase(Phase.FORWARD)
                loss = self._loss(batch)
                self._context.phase(Phase.BACKWARD)
                (loss / self._nominal_tokens).backward()
            total += value_of(loss)
        return float(total)

    def _update(
        self, step: int, rate: float, gradients_now: list[Tensor], loss: float, norm: float, correction: float
    ) -> None:
        """Scale, clip, and update.

        Raises:
            FloatingPointError: loss or gradient is not finite.
        """
        if not math.isfinite(loss) or not math.isfinite(norm):
            raise FloatingPointError(
                f"step {step}: loss {loss}, gradient norm {norm}; lower training.optimizer.lr, lengthen "
                "training.schedule.warmup_steps, or look at the data of this step"
            )
        scale(gradients_now, correction * clip_factor(norm, self._training["optimizer"]["clip_norm"]))
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        self._optimizer.step()

    def _loss(self, batch: MicroBatch) -> Tensor:
        device = self._context.device
        tokens, labels = batch.tokens.to(device), batch.labels.to(device)
        with self._autocast():
            logits = self._model(tokens)
        return token_loss(logits, labels)

    def _held_out(self) -> list[MicroBatch]:
        tokens = open_tokens(self._context.dataset, "validation")
        if tokens is None:
            return []
        place = self._context.data_place
        return validation_batches(
            tokens,
            sequence=self._training["sequence"],
            micro_batch=self._training["micro_batch"],
            most=_VALIDATION_RECORDS,
            index=place.index,
            degree=place.degree,
        )

    @torch.no_grad()
    def _validation_loss(self) -> float:
        loss = 0.0
        for batch in self._validation:
            self._context.phase(Phase.VALIDATION)
            with loss_scope(self._meshes):
                loss += float(value_of(self._loss(batch)))
        tokens = sum(batch.valid_tokens for batch in self._validation)
        if isinstance(self._model, FSDPModule):
            # A forward without a backward leaves the root's parameters gathered: the next step would use old ones.
            self._model.reshard()
        loss, tokens = self._context.sum([loss, tokens])
        return loss / tokens

    def _result(self) -> dict[str, Any]:
        return {
            "parameters": parameters_digest(parameters_of(self._model)),
            "samples": self._data.samples_digest,
            "parameter_count": sum(parameter.numel() for parameter in self._model.parameters()),
        }

    @property
    def _nominal_tokens(self) -> int:
        return self._training["global_batch"] * self._training["sequence"]


def learning_rate(step: int, training: Mapping[str, Any]) -> float:
    """Rate of step `step` (from 1): linear warm-up, then constant or cosine decay to `min_lr_ratio` at the last."""
    peak, schedule = float(training["optimizer"]["lr"]), training["schedule"]
    warmup = int(schedule["warmup_steps"])
    if step <= warmup:
        return peak * step / warmup
    if schedule["name"] == "constant":
        return peak
    way = (step - warmup) / max(1, int(training["steps"]) - warmup)
    floor = float(schedule["min_lr_ratio"])
    return peak * (floor + (1 - floor) * (1 + math.cos(math.pi * way)) / 2)


def make_optimizer(model: nn.Module, config: Mapping[str, Any]) -> ShardAdamW:
    """AdamW as the spec has it; norms and other vectors are not decayed."""
    parameters = list(model.parameters())
    return ShardAdamW(
        [
            {"params": [p for p in parameters if p.dim() > 1], "weight_decay": config["weight_decay"]},
            {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0},
        ],
        lr=config["lr"],
        betas=tuple(config["betas"]),
        eps=config["eps"],
        fused=True,
    )


def _be_deterministic(strict: bool) -> None:
    if strict:
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.benchmark = False
