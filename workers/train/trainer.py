"""The built-in trainer: an ordinary training function, loaded by name like a user's.

The result is a function of seed and spec. The loss is the sum over labels divided by the number of valid labels of the
whole step. Gradients are summed and never averaged. Samples and initial values do not depend on the layout.
"""

import math
from contextlib import nullcontext
from typing import Any

import torch

from regroup.workers.contract.messages import Phase
from regroup.workers.data.datasets import open_samples
from regroup.workers.data.sampler import (
    MicroBatch,
    TrainingData,
    dealt,
    hash_from_limbs,
    hash_limbs,
    samples_hash_of,
    validation_batches,
)
from regroup.workers.parallel.collective_counter import Collectives
from regroup.workers.parallel.engine import Engine
from regroup.workers.parallel.parameter_digest import digest_of, digests
from regroup.workers.parallel.parameter_names import parameters_of
from regroup.workers.parallel.precision import stream_dtype
from regroup.workers.parallel.step_metrics import StepMeter
from regroup.workers.parallel.strategy import strategy_of
from regroup.workers.rank.context import Context
from regroup.workers.rank.numerics.loss_spikes import LossSpikes
from regroup.workers.rank.numerics.non_finite import NonFinite
from regroup.workers.torch_internals import compiler
from regroup.workers.train.schedule import FOLLOWS, BatchSize, learning_rate

compiler.import_dynamo()  # once in the zygote, which preloads this module, and not in each rank

_VALIDATION_RECORDS = 256
"""Maximum number of held-out samples of one validation, evenly spaced over the file."""


def train(context: Context) -> None:
    """Train the job's model to its last step, or to an agreed stop."""
    _Training(context).run()


class _Training:
    def __init__(self, context: Context) -> None:
        context.phase(Phase.BUILD)
        config, training = context.config, context.config.training
        _be_deterministic(config.is_deterministic)
        samples = open_samples(context.dataset, "train", training.sequence)
        assert samples is not None, "a spec has data to train on"
        self._context = context
        self._training = training
        self._non_finite = NonFinite(
            config.non_finite,
            "Lower training.optimizer.lr, lengthen training.schedule.warmup_steps, or check the data of this step",
        )
        self._spikes = LossSpikes(config.loss_spike)
        place, micro_batch = context.data_place, training.micro_batch
        self._batch = BatchSize(training, place.degree)
        self._nominal_labels = self._batch.samples * samples.labels_each
        self._data = TrainingData(samples, global_batch=self._batch.samples, micro_batch=micro_batch, seed=config.seed)
        self._engine = Engine(
            config.model,
            samples.symbols,
            context.layout,
            context.device,
            strategy_of(config),
            training.optimizer,
            micro_batches=len(dealt(self._batch.samples // micro_batch, place.index, place.degree)),
            example=samples.blank(micro_batch)[0].to("meta"),
            loss_scale=1 / self._nominal_labels,
            phase=context.phase,
        )
        self._validation = self._validation_batches()
        precision = stream_dtype(training.precision)
        # A dispatch mode that counts collectives disables compiled blocks. That step would differ in the last bits, and
        # failures change which step it is.
        self._may_count = training.compile == "off"
        self._meter = StepMeter(context.device, precision, context.rank, context.world_size)
        self._begun = self._flops = 0

    def run(self) -> None:
        """Restore or initialize, then step."""
        context, steps, engine = self._context, self._training.steps, self._engine
        assert steps is not None, "the spec gives it"
        context.track(model=engine.model, optimizer=engine.optimizer, data=self._data)
        if engine.scale.is_on:
            context.track(scale=engine.scale)
        if self._training.batch == FOLLOWS:
            context.track(batch=self._batch)
        self._begun = done = context.restore()
        self._batch.resumed_after(done)
        if done == 0:
            engine.initialise(context.config.seed)
        for step in range(done + 1, steps + 1):
            if not self._step(step, last=step == steps):
                return
        context.result = self._result()

    def _step(self, step: int, *, last: bool) -> bool:
        context = self._context
        place = context.data_place
        rate = learning_rate(step, self._training) * self._batch.factor(step)
        batches = self._data.deal(place.index, place.degree)
        # Count in the second step of a generation: the first one also allocates what later steps reuse.
        sent, flops, is_measured = Collectives(), self._flops, step == self._begun + 2
        self._meter.begin()
        with sent if is_measured and self._may_count else nullcontext():
            loss_sum = self._engine.gradients(batches)
        self._meter.end()
        if is_measured:
            self._meter.measure(context.config.device_flops)
            self._flops = self._engine.flops(self._batch.samples)
        # Ranks that share one model replica see the same samples: only one of them counts.
        counted = batches if place.speaks else []
        ids = [sample for batch in counted for sample in batch.ids]
        low, high = hash_limbs(samples_hash_of(ids))
        total = context.agree(
            {
                "loss": loss_sum,
                "tokens": sum(batch.valid_labels for batch in counted),
                "samples": len(ids),
                "hash_low": low,
                "hash_high": high,
                "squared_norm": self._engine.squared_norm(),
                **self._engine.times(),
                **self._meter.own(),
            }
        )
        tokens, samples = int(total["tokens"]), int(total["samples"])
        samples_hash = hash_from_limbs(total["hash_low"], total["hash_high"])
        context.phase(Phase.OPTIMIZER)
        # Known only after the backward pass: ignored labels make the step smaller than its nominal size.
        correction = self._nominal_labels / max(tokens, 1)
        loss, norm = total["loss"] / max(tokens, 1), correction * math.sqrt(total["squared_norm"])
        finite = self._non_finite.is_finite(loss, norm)
        if not finite and not self._engine.scale.can_fall:
            context.note("step_skipped", self._non_finite.skip(step, f"loss {loss}, gradient norm {norm}"))
        if finite:
            for spike in self._spikes.check(step, loss, norm):
                context.note("loss_spike", spike)
            self._engine.update(rate, norm, correction)
        self._engine.scale.judge(finite=finite)
        self._data.advance(step, samples, samples_hash)
        every = self._training.validate_every
        validates = self._validation and (last or (every is not None and step % every == 0))
        return context.commit(
            step,
            loss=loss if math.isfinite(loss) else None,
            tokens=tokens,
            samples=samples,
            samples_hash=samples_hash,
            learning_rate=rate,
            grad_norm=norm if math.isfinite(norm) else None,
            validation_loss=self._validation_loss() if validates else None,
            extra={
                **self._meter.facts(total, flops),
                **self._engine.facts(total, context.world_size),
                **sent.facts(),
            },
        )

    def _validation_batches(self) -> list[MicroBatch]:
        samples = open_samples(self._context.dataset, "validation", self._training.sequence)
        if samples is None:
            return []
        place = self._context.data_place
        return validation_batches(
            samples,
            micro_batch=self._training.micro_batch,
            most=_VALIDATION_RECORDS,
            index=place.index,
            degree=place.degree,
        )

    def _validation_loss(self) -> float:
        loss = self._engine.evaluate(self._validation)
        counted = self._validation if self._context.data_place.speaks else []
        loss, tokens = self._context.sum([loss, sum(batch.valid_labels for batch in counted)])
        return loss / tokens

    def _result(self) -> dict[str, Any]:
        parameters = digests(parameters_of(self._engine.model))
        return {
            "parameters": digest_of(parameters),
            "samples": self._data.samples_digest,
            "parameter_count": sum(found.numel for found in parameters.values()),
        }


def _be_deterministic(strict: bool) -> None:
    if strict:
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.benchmark = False
