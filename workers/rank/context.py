"""The API of a training function: its place among the ranks, its restorable state, and the end of each step.

Example::

    def train(run):
        model, optimizer = ...
        run.track(model=model, optimizer=optimizer)
        for step in run.steps(100):
            for batch in run.micro_batches(len(dataset)):
                x, y = dataset[batch.indices]
                loss = (cross_entropy(model(x), y, reduction="none") * batch.weights).sum()
                loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            run.report(loss=loss.item())

`steps` combines lower-level methods. Code with its own loop, such as the built-in trainer, calls them directly::

    for step in range(context.restore() + 1, steps + 1):
        ...
        total = context.agree({"loss": loss.item(), "tokens": count})
        optimizer.step()
        if not context.commit(step, loss=total["loss"] / total["tokens"], tokens=int(total["tokens"])):
            break
"""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from regroup.workers.contract import messages
from regroup.workers.contract.rank_config import RankConfig
from regroup.workers.data.record_files import RecordFiles, open_records
from regroup.workers.data.record_stream import RecordBatch
from regroup.workers.parallel.mesh import Place, alike_in, build_mesh, data_place, layout_hash
from regroup.workers.rank import own_process
from regroup.workers.rank.control_allreduce import control_sum
from regroup.workers.rank.faults.faults import Faults
from regroup.workers.rank.faults.numeric_faults import fault_actions
from regroup.workers.rank.ports import ChannelPort, ProgressPort
from regroup.workers.rank.prepared_start import is_prepared, wait_for_begin
from regroup.workers.rank.restart_check import RestartCheck
from regroup.workers.rank.snapshot_schedule import SnapshotSchedule
from regroup.workers.rank.state_requests import StateRequests
from regroup.workers.rank.step_consensus import AgentRequests, StepConsensus, StepRequests
from regroup.workers.rank.step_loop import StepLoop
from regroup.workers.state.rank_source import RankSource
from regroup.workers.state.rng_state import seed_of, seed_random
from regroup.workers.state.shard_buffer import Pin, ShardBuffer
from regroup.workers.state.slices.slice_source import SliceSource
from regroup.workers.state.snapshot import ShardSource, Source
from regroup.workers.state.training_state import TrainingState

_Tracked = TypeVar("_Tracked")


class Context:
    """One rank's view of one generation. The platform creates it and passes it to the training function."""

    def __init__(self, join: messages.Join, channel: ChannelPort, device: torch.device, progress: ProgressPort) -> None:
        self.job_id = join.job_id
        self.config: RankConfig = join.config
        self.generation = join.generation
        self.rank = join.rank
        self.world_size = join.world_size
        self.local_rank = join.local_rank
        self.layout: Mapping[str, int] = join.layout
        self.device = device
        self.dataset: Mapping[str, Any] = join.dataset
        self.step = 0
        """Committed steps."""
        self.stopped = False
        """True after `commit` returned False because the job stops."""
        self.result: dict[str, Any] = {}
        """Result that the leading rank sends when the training function returns."""
        self.args: Mapping[str, Any] = join.config.args
        """The spec's `args`."""
        self.last_step: int | None = join.config.training.steps
        """Step at which the job is complete. Its state is always saved."""
        self._channel = channel
        self._progress = progress
        self._tracked_objects: dict[str, object] = {}
        self._per_rank = set[str]()
        self._state: TrainingState | None = None
        self._faults = Faults(join, fault_actions(lambda: self.tracked(nn.Module), lambda: self._schedule.newest()))
        self._consensus = StepConsensus()
        self._agent_requests = AgentRequests()
        self._start_from(join)

    @cached_property
    def mesh(self) -> DeviceMesh:
        """The mesh of this generation's layout; axes of degree 1 are left out."""
        return build_mesh(self.layout, self.device.type)

    @cached_property
    def data_place(self) -> Place:
        """This rank's index among the ranks that receive different samples."""
        return data_place(self.layout, self.rank)

    @property
    def global_batch(self) -> int:
        """Samples of one step over all ranks: the spec's `training.global_batch`."""
        if (samples := self.config.training.global_batch) is None:
            raise LookupError("training.global_batch is not set in the spec")
        return samples

    @property
    def micro_batch(self) -> int:
        """Samples of one forward pass: the spec's `training.micro_batch`."""
        return self.config.training.micro_batch

    @property
    def stopping(self) -> bool:
        """True after a request to stop the job. `steps` ends after a step that all ranks agree on, this one or a later
        one.

        Ranks receive the request at different times. Do not use it for decisions that must be equal on all ranks.
        """
        self._agent_requests.receive(self._channel)
        return self._agent_requests.stop

    def track(self, **objects: object) -> None:
        """Register training state before the first step. It survives failures and restores onto any layout.

        Accepts any number of modules, optimizers, schedulers, scalers and other objects with `state_dict` and
        `load_state_dict`. State dicts may contain tensors, numbers, strings, bytes, NumPy arrays, and lists, tuples,
        sets and dicts of them. Parameters of a module called `model` keep their names in checkpoints. Parameters of
        other modules get the prefix `name.`
        """
        if self._state is not None:
            raise RuntimeError("track() after the first step or restore(): the state is fixed then; track before")
        if twice := sorted(self._tracked_objects.keys() & objects.keys()):
            raise ValueError(f"{twice[0]!r} is tracked already; use another name")
        self._tracked_objects |= objects

    def track_per_rank(self, **objects: object) -> None:
        """Register training state that differs between ranks on purpose, such as the weights of local SGD.

        Each rank gets its own state back, from memory and from checkpoints. Such state has no meaning for another
        number of ranks, so a job with it cannot be resized.
        """
        self.track(**objects)
        self._per_rank |= objects.keys()

    def tracked(self, kind: type[_Tracked]) -> list[_Tracked]:
        """Return the tracked objects of this type."""
        return [tracked for tracked in self._tracked_objects.values() if isinstance(tracked, kind)]

    @property
    def parameters(self) -> Mapping[str, nn.Parameter]:
        """Parameters of all tracked modules by their names in checkpoints."""
        return self._tracked().parameters

    def steps(self, total: int | None = None) -> Iterator[int]:
        """Restore, then yield the number of each remaining step. A step is committed when its body ends.

        Ends after step `total` (the spec's `training.steps` by default), or earlier if the job stops: then `stopped` is
        true. A step that is left by `break` or an exception is not committed: the state of the previous step survives.
        All ranks leave at the same step.

        Raises:
            StateError: a tracked object contains state that cannot be saved. Names the object and the place in it.
        """
        return self._loop.steps(total)

    @cached_property
    def records(self) -> RecordFiles:
        """The records that the spec's `data.prepare` wrote: `records[batch.indices]` is field → tensor.

        Raises:
            RuntimeError: the spec has no `data.prepare`.
        """
        if (found := open_records(self.dataset, "train")) is None:
            raise RuntimeError("run.records needs workload.data.prepare in the spec")
        return found

    @cached_property
    def validation_records(self) -> RecordFiles | None:
        """Held-out records; None if `data.prepare` names none."""
        return open_records(self.dataset, "validation")

    def micro_batches(self, records: int | None = None) -> Iterator[RecordBatch]:
        """Yield this rank's micro-batches of the current step, as record numbers of a dataset.

        Args:
            records: number of records in the dataset; by default that of `records`, the prepared ones.

        The order is a keyed shuffle of each epoch and does not depend on the layout. The position is part of the state.
        All ranks get the same number of micro-batches, with dummies if necessary (`valid` is false, weights are 0).
        Iterate over all of them, once per step, on every rank.
        """
        return self._loop.micro_batches(records)

    def report(self, **scalars: float | Tensor) -> None:
        """Report scalars of the current step. The last value of a name counts.

        `loss` is averaged over the ranks that report it. `tokens` (of this rank) are summed. For every other name, the
        value of the leading rank is shown. A loss that is not finite ends the job, unless a GradScaler is tracked.
        """
        self._loop.report(scalars)

    def restore(self) -> int:
        """Restore the state from memory or a checkpoint and return the number of committed steps; 0 if there is none.

        Without a state to restore, random generators are seeded from the job's seed and the data rank.
        """
        if is_prepared(self._join):
            self._start_from(wait_for_begin(self._join, self._channel, self._progress))
            self._channel.send(messages.Joined(self.rank, self.generation, time.time()))
        self.phase(messages.Phase.RESTORE)
        self._restart_check.check_steps(self.last_step)
        source = self._join.restore
        state = self._tracked()
        state.check()
        size_bytes = state.buffer_bytes()
        reply, fds = self._channel.request(messages.BuffersRequest(self.rank, self.generation, size_bytes))
        assert isinstance(reply, messages.Buffers), f"the reply to BuffersRequest is Buffers, not {reply!r}"
        own = [ShardBuffer(fd) for fd in fds]
        self._schedule.use(own, reply.source_index, size_bytes)
        seed_random(seed_of(self.config.seed, source.step, self.data_place.index), self.device)
        if source.source == "memory" and reply.source_index >= 0:
            state.restore(self._own_view(ShardSource(own[reply.source_index])))
        elif source.source in ("memory", "checkpoint"):  # not in a buffer of this rank: in storage, or of other ranks
            requests = StateRequests(self._channel, self.rank, self.generation, own[0])
            state.restore(self._own_view(SliceSource(requests.catalog(), requests.receive)))
        self.step = source.step
        if self._is_last(self.step):
            # The ranks died between the last step and its checkpoint: save the checkpoint again.
            self._schedule.start_snapshot(self.step, state, Pin.CHECKPOINT)
            self.settle()
        self._channel.send(messages.Restored(self.rank, self.generation, self.step, time.time()))
        self._schedule.start()
        return self.step

    def phase(self, name: str) -> None:
        """Publish the next phase of step `self.step + 1`, for hang detection, and inject faults planned for it."""
        if own_process.is_forked():
            return
        step = self.step + 1
        self._progress.set(step, name)
        self._faults.inject(step, name, self._channel)

    def agree(self, values: Mapping[str, float]) -> Mapping[str, float]:
        """Sum each value over all ranks: the only control all-reduce of a step, before the optimizer.

        It also carries the decisions that must be equal on all ranks. The last snapshot is complete everywhere. Stop or
        continue. Save a checkpoint or a mirror or not. Replicas hold equal state in their last snapshots or not. All
        ranks pass the same keys in the same order.

        Raises:
            ReplicasDifferError: replicas hold different state.
        """
        self.settle()
        self._agent_requests.receive(self._channel)
        is_finite = all(math.isfinite(value) for value in values.values())
        own = self._schedule.requests(self.step + 1, self._agent_requests, is_finite=is_finite)
        totals = self.sum([*values.values(), *own.values()])
        total = StepRequests(*totals[len(values) :])
        self._consensus = StepConsensus.of(total)
        if self._schedule.apply(total):
            self.note("snapshot_interval", {"every_steps": self._schedule.every_steps})
        return {**dict(zip(values, totals, strict=False)), "non_finite_ranks": total.non_finite}

    def note(self, kind: str, data: Mapping[str, Any]) -> None:
        """Emit an event of the job. Only the leading rank sends it."""
        if self.rank == 0:
            self._channel.send(messages.Note(self.generation, kind, dict(data), time.time()))

    def sum(self, values: Sequence[float]) -> list[float]:
        """Sum each value over all ranks, in float64."""
        on_host = self.device.type == "cpu" or "cpu:gloo" in dist.get_backend_config()
        own = torch.tensor(values, dtype=torch.float64, device="cpu" if on_host else self.device)
        return control_sum(own).tolist()

    def commit(
        self,
        step: int,
        *,
        loss: float | None,
        tokens: int | None,
        samples: int | None = 0,
        samples_hash: int | None = 0,
        learning_rate: float | None = 0.0,
        grad_norm: float | None = 0.0,
        validation_loss: float | None = None,
        extra: Mapping[str, float] | None = None,
    ) -> bool:
        """Complete step `step` after the optimizer's update: report it and save what is due.

        Arguments that are unknown are None.

        Returns:
            False if the job stops here: return from the training function.
        """
        if step != self.step + 1:
            raise ValueError(f"commit({step}) after step {self.step}: commit the steps in order, one by one")
        duration_s, stall_s = self._schedule.end_step()
        if self.rank == 0:
            self._channel.send(
                messages.StepRow(
                    self.generation,
                    step,
                    time.time(),
                    duration_s,
                    loss,
                    tokens,
                    samples,
                    samples_hash,
                    learning_rate,
                    grad_norm,
                    validation_loss,
                    stall_s,
                    dict(extra or {}),
                )
            )
        agreed, self._consensus = self._consensus, StepConsensus()
        if agreed.mirror:
            self._agent_requests.mirror = False
        self._schedule.save_if_due(step, self._tracked, agreed)
        self._restart_check.send_digest(step, self._tracked)
        self.step = step
        self.stopped = (agreed.stop or self._restart_check.is_end(step)) and not self._is_last(step)
        return not self.stopped

    def settle(self) -> None:
        """Wait until the copy of the last snapshot is complete. Call this before changing state that the copy reads."""
        self._schedule.settle()

    def _start_from(self, join: messages.Join) -> None:
        """Set what depends on the state from which the generation starts."""
        self._join = join
        self._restart_check = RestartCheck(join, self._channel)
        self._schedule = SnapshotSchedule(
            join,
            self._channel,
            self._progress,
            self.device,
            enter_phase=self.phase,
            sum_over_ranks=self.sum,
            is_last=self._is_last,
            restart_check=self._restart_check,
        )

    def _is_last(self, step: int) -> bool:
        return self.last_step is not None and step >= self.last_step

    @cached_property
    def _loop(self) -> StepLoop:
        # The type checker sees this file under two module names and treats its classes as different.
        return StepLoop(cast(Any, self))

    def _own_view(self, source: Source) -> RankSource:
        return RankSource(source, self.rank, self.world_size, layout_hash(self.layout))

    def _tracked(self) -> TrainingState:
        if not self._tracked_objects:
            raise RuntimeError("call context.track(model=…, optimizer=…) before restore, steps and commit")
        if self._state is None:
            alike, is_stage = alike_in(self.layout, self.rank, self.world_size), self.layout.get("pp", 1) > 1
            self._state = TrainingState(
                self._tracked_objects,
                self.device,
                alike,
                is_stage=is_stage,
                rank=self.rank,
                per_rank=self._per_rank,
            )
        return self._state
