"""The loop of a training function: `steps`, `micro_batches` and `report`, built on restore, agree and commit."""

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from regroup.workers.contract.messages import Phase
from regroup.workers.data.record_stream import RecordBatch, RecordStream
from regroup.workers.data.sampler import SampleId, hash_from_limbs, hash_limbs, samples_hash_of
from regroup.workers.parallel.parameter_digest import digest_of, digests
from regroup.workers.rank.numerics.loss_spikes import LossSpikes
from regroup.workers.rank.numerics.non_finite import NonFinite

if TYPE_CHECKING:
    from regroup.workers.rank.context import Context

_SAMPLES = "samples"
"""Name under which the position in the data is tracked."""


class StepLoop:
    """The loop over one generation's steps on one rank."""

    def __init__(self, context: "Context") -> None:
        self._context = context
        self._non_finite = NonFinite(
            context.config.non_finite, "Lower the learning rate, or check the data of this step"
        )
        self._spikes = LossSpikes(context.config.loss_spike)
        training = context.config.training
        self._steps: int | None = training.steps
        self._stream: RecordStream | None = None
        if training.global_batch is not None:
            self._stream = RecordStream(
                global_batch=training.global_batch,
                micro_batch=training.micro_batch,
                seed=context.config.seed,
                fingerprint=context.dataset.get("fingerprint", ""),
            )
        self._step = _Step()
        self._began = False

    def steps(self, total: int | None) -> Iterator[int]:
        """Restore, then yield each step and commit it when its body ends."""
        context = self._context
        total = self._total(total)
        if self._began:
            raise RuntimeError("run.steps() was called twice: a training function has one loop over its steps")
        self._began = True
        context.last_step = total
        if self._stream is not None:
            context.track(**{_SAMPLES: self._stream})
        optimizers = context.tracked(Optimizer)
        # The optimizer is the first to change state that a snapshot reads, so training waits for the copy there.
        hooks = [optimizer.register_step_pre_hook(self._before_update) for optimizer in optimizers]
        try:
            for step in range(context.restore() + 1, total + 1):
                self._step = _Step()
                if not optimizers:
                    context.settle()
                context.phase(Phase.FORWARD)
                yield step
                if not self._commit(step):
                    return
            context.result = {**self._result(), **context.result}
        finally:
            for hook in hooks:
                hook.remove()

    def micro_batches(self, records: int | None) -> Iterator[RecordBatch]:
        """Yield this rank's micro-batches of the step."""
        stream, context = self._stream, self._context
        records = len(context.records) if records is None else records
        if stream is None:
            raise RuntimeError("run.micro_batches() needs training.global_batch and training.micro_batch in the spec")
        if self._step.is_dealt:
            raise RuntimeError("run.micro_batches() was called twice in one step: its samples are dealt once")
        place = context.data_place
        weight = place.degree / stream.global_batch
        dealt = stream.deal(records, place.index, place.degree)
        self._step.is_dealt = True
        for number, ids in enumerate(dealt):
            context.phase(Phase.FORWARD)
            self._step.ids += ids
            yield RecordBatch(
                indices=stream.record_numbers(ids) or [0] * stream.micro_batch,
                weights=torch.full((stream.micro_batch,), weight if ids else 0.0, device=context.device),
                valid=bool(ids),
                last=number == len(dealt) - 1,
            )

    def report(self, scalars: Mapping[str, float | Tensor]) -> None:
        """Record scalars of the step."""
        for name, value in scalars.items():
            self._step.reported[name] = float(value)

    def _commit(self, step: int) -> bool:
        context, done = self._context, self._step
        loss, tokens = done.reported.pop("loss", None), done.reported.pop("tokens", None)
        low, high = hash_limbs(samples_hash_of(done.ids))
        # Every rank sums the same values, whatever it reports.
        total = context.agree(
            {
                "loss": 0.0 if loss is None else loss,
                "losses": float(loss is not None),
                "grad_norm": done.reported.get("grad_norm", 0.0),
                "grad_norms": float("grad_norm" in done.reported),
                "tokens": 0.0 if tokens is None else tokens,
                "dealt": float(done.is_dealt),
                "samples": len(done.ids),
                "hash_low": low,
                "hash_high": high,
            }
        )
        mean = total["loss"] / total["losses"] if total["losses"] else None
        norm = total["grad_norm"] / total["grad_norms"] if total["grad_norms"] else None
        if total["non_finite_ranks"]:
            self._check_finite(step, mean, int(total["non_finite_ranks"]))
            mean = norm = None
        for spike in self._spikes.check(step, mean, norm):
            context.note("loss_spike", spike)
        samples = samples_hash = None
        if total["dealt"]:
            samples, samples_hash = int(total["samples"]), hash_from_limbs(total["hash_low"], total["hash_high"])
            self._advance(step, samples, samples_hash)
        finite = {name: value for name, value in done.reported.items() if math.isfinite(value)}
        return context.commit(
            step,
            loss=mean,
            tokens=int(total["tokens"]) if math.isfinite(total["tokens"]) else None,
            samples=samples,
            samples_hash=samples_hash,
            learning_rate=done.learning_rate,
            grad_norm=finite.pop("grad_norm", None),
            validation_loss=finite.pop("validation_loss", None),
            extra=finite,
        )

    def _check_finite(self, step: int, loss: float | None, ranks: int) -> None:
        scaler_skips = bool(self._context.tracked(GradScaler))
        if not scaler_skips and not self._non_finite.is_off:
            self._non_finite.fail(
                step,
                f"loss {loss}: it or the gradient norm is not finite on {ranks} of {self._context.world_size} ranks",
            )

    def _advance(self, step: int, samples: int, samples_hash: int) -> None:
        assert self._stream is not None, "samples are dealt from a stream"
        if samples != self._stream.global_batch:
            raise RuntimeError(
                f"step {step} took {samples} of its {self._stream.global_batch} samples: every rank goes through "
                "run.micro_batches() to its end, in every step"
            )
        self._stream.advance(step, samples, samples_hash)

    def _before_update(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        self._context.settle()
        if self._step.learning_rate is None:
            self._step.learning_rate = float(optimizer.param_groups[0]["lr"])
            self._context.phase(Phase.OPTIMIZER)

    def _result(self) -> dict[str, Any]:
        parameters = self._context.parameters
        found: dict[str, Any] = {
            "parameters": digest_of(digests(parameters.items())),
            "parameter_count": sum(parameter.numel() for parameter in parameters.values()),
        }
        if self._stream is not None:
            found["samples"] = self._stream.samples_digest
        return found

    def _total(self, total: int | None) -> int:
        if total is None and self._steps is None:
            raise ValueError("run.steps() without a number needs training.steps in the spec")
        if total is not None and self._steps is not None and total != self._steps:
            raise ValueError(
                f"run.steps({total}), but the spec says training.steps={self._steps}: leave one of them out"
            )
        return total if total is not None else int(self._steps or 0)


class _Step:
    """The progress of the current step's body."""

    def __init__(self) -> None:
        self.ids: list[SampleId] = []
        self.is_dealt = False
        self.reported: dict[str, float] = {}
        self.learning_rate: float | None = None
