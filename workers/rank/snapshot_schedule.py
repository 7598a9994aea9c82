"""Schedule of the snapshots and checkpoints of one rank: due steps, copies, and their cost to training.

Every decision that must be equal on all ranks passes through the control all-reduce (`step_consensus.py`).
"""

import time
from collections.abc import Callable, Sequence

import torch

from regroup.workers.contract import messages
from regroup.workers.contract.messages import Phase, PinnedFor
from regroup.workers.contract.state_messages import SourceReleaseRequest
from regroup.workers.parallel.mesh import layout_hash
from regroup.workers.rank.ports import ChannelPort, ProgressPort
from regroup.workers.rank.restart_check import RestartCheck
from regroup.workers.rank.snapshot_interval import SnapshotInterval
from regroup.workers.rank.snapshots import Snapshots
from regroup.workers.rank.step_consensus import MIRROR_PINS, AgentRequests, StepConsensus, StepRequests
from regroup.workers.state.memory.copy_threads import thread_count
from regroup.workers.state.replica_check import compared_by
from regroup.workers.state.shard_buffer import Pin, ShardBuffer
from regroup.workers.state.training_state import TrainingState


class SnapshotSchedule:
    """Takes the snapshots of one rank when they are due and measures how long training waits for them."""

    def __init__(
        self,
        join: messages.Join,
        channel: ChannelPort,
        progress: ProgressPort,
        device: torch.device,
        *,
        enter_phase: Callable[[str], None],
        sum_over_ranks: Callable[[Sequence[float]], list[float]],
        is_last: Callable[[int], bool],
        restart_check: RestartCheck,
    ) -> None:
        """Initialize the schedule.

        Args:
            join: place of the rank in its generation.
            channel: connection to the agent.
            progress: progress page of the rank.
            device: device of the state.
            enter_phase: publishes the next phase and injects the faults planned for it.
            sum_over_ranks: sums each value over all ranks.
            is_last: returns True for the step at which the job is complete.
            restart_check: selects the first snapshots if the job checks a restart.
        """
        self._join, self._channel, self._progress = join, channel, progress
        self._enter_phase, self._sum, self._is_last = enter_phase, sum_over_ranks, is_last
        self._restart_check = restart_check
        self._snapshots = Snapshots(device, compared_by(join, device), thread_count(join.local_world_size))
        every = join.config.snapshot.every_steps
        self._interval = SnapshotInterval(None if every == "auto" else every, is_async=self._snapshots.is_async)
        self._last_checkpoint = join.restore.step
        self._newest_step = join.restore.step
        """Step of the newest snapshot in memory."""
        self._checkpoint_clock = self._step_clock = time.monotonic()
        self._size_bytes = self._used_at_once = 0
        """Expected size of a snapshot, and number of buffers that hold snapshots at the same time."""
        self._is_prepared = False
        """True once the memory of snapshots is being prepared."""
        self._stall_s = 0.0
        self._previous_step_s = self._previous_stall_s = 0.0
        """Duration of the previous step, and the part of it spent on a snapshot, in seconds."""

    @property
    def every_steps(self) -> int:
        """Current number of steps between snapshots."""
        return self._interval.every_steps

    def newest(self) -> ShardBuffer | None:
        """Return the newest snapshot, or the restored one; None if there is neither."""
        return self._snapshots.newest()

    def use(self, buffers: Sequence[ShardBuffer], source: int, size_bytes: int) -> None:
        """Set the buffers to write.

        Args:
            buffers: buffers of this rank.
            source: index of the buffer with the restored state, or -1.
            size_bytes: expected size of a snapshot.
        """
        self._snapshots.use(buffers, source)
        self._size_bytes = size_bytes
        checkpoint = self._join.config.checkpoint
        has_checkpoints = checkpoint.every_steps is not None or checkpoint.every_s is not None
        self._used_at_once = len(buffers) - (0 if has_checkpoints else 1)

    def start(self) -> None:
        """Start the clocks of steps and checkpoints, and prepare the memory of snapshots, after the restore.

        After a restore onto another layout, the node also has the old shards until the first snapshot is complete on
        all ranks. Until the node has released them, no other memory is prepared.
        """
        if not self._join.restore.world_size:
            self._prepare_memory()
        self._checkpoint_clock = self._step_clock = time.monotonic()

    def requests(self, step: int, agent: AgentRequests, *, is_finite: bool) -> StepRequests:
        """Return this rank's part of the decisions about `step`."""
        return StepRequests(
            non_finite=not is_finite,
            stop=agent.stop,
            save=agent.save,
            checkpoint=self._join.rank == 0 and self._checkpoint_due(step),
            checkpoint_pins=self._snapshots.count(Pin.CHECKPOINT),
            mirror=agent.mirror,
            full_mirror_pins=self._snapshots.count(Pin.MIRROR) >= MIRROR_PINS,
            skew=self._snapshots.skew(),
            step_s=self._previous_step_s,
            stall_s=self._stall_s,
            previous_stall_s=self._previous_stall_s,
        )

    def apply(self, total: StepRequests) -> bool:
        """Apply the sums over all ranks: check replicas, adapt the interval, and protect the newest snapshot.

        Returns:
            True if the interval has changed.

        Raises:
            ReplicasDifferError: replicas hold different state.
        """
        if total.skew:
            self._snapshots.check_replicas()
        is_changed = self._interval.learn(total.step_s, total.stall_s, total.previous_stall_s)
        # All ranks have finished their last copy, so the newest snapshot is complete on all of them.
        self._snapshots.protect_newest()
        if not self._is_prepared and self._snapshots.has_own:
            self._channel.request(SourceReleaseRequest(self._join.rank, self._join.generation))
            self._prepare_memory()
        return is_changed

    def end_step(self) -> tuple[float, float]:
        """End the clock of a step. Return its duration and the stall within it, in seconds."""
        now = time.monotonic()
        self._previous_step_s, self._previous_stall_s = now - self._step_clock, self._stall_s
        self._step_clock, self._stall_s = now, 0.0
        return self._previous_step_s, self._previous_stall_s

    def exclude_from_step(self, waited_s: float) -> None:
        """Leave `waited_s` seconds out of the duration of the current step, from which the interval is derived."""
        self._step_clock += waited_s

    def save_if_due(self, step: int, state: Callable[[], TrainingState], agreed: StepConsensus) -> None:
        """Take a snapshot of `step` if one is due or agreed on, with the pins for checkpoint and mirror."""
        if self._restart_check.is_suppressed(step) and not (self._is_last(step) or agreed.stop):
            return
        is_last = self._is_last(step) or agreed.save
        pin = Pin.CHECKPOINT if is_last or agreed.checkpoint else Pin.NONE
        if agreed.mirror:
            pin |= Pin.MIRROR
        is_due = self._interval.is_due(step, self._newest_step) or self._restart_check.is_due(step)
        if not (pin or agreed.stop or is_due):
            return
        began = time.monotonic()
        if is_last:
            # The last state is always saved, so wait for the saver. Earlier checkpoints are postponed instead.
            self._progress.set(step, Phase.CHECKPOINT)
            self._snapshots.wait_for_saver()
        self.start_snapshot(step, state(), pin)
        if Pin.CHECKPOINT in pin or agreed.stop or not self._snapshots.is_async:
            self._finish_snapshot()
        self._stall_s = time.monotonic() - began

    def start_snapshot(self, step: int, state: TrainingState, pin: Pin) -> None:
        """Start the copy of the state of `step`."""
        join = self._join
        place = {"generation": join.generation, "rank": join.rank, "world_size": join.world_size}
        self._snapshots.start_copy(state, step, place, layout_hash(join.layout), pin)
        self._newest_step = step
        self._enter_phase(Phase.SNAPSHOT)

    def settle(self) -> None:
        """Wait until the copy of the last snapshot is complete."""
        if self._snapshots.is_copying:  # a stall of 0 marks a step without a snapshot
            began = time.monotonic()
            self._finish_snapshot()
            self._stall_s += time.monotonic() - began

    def wait_for_saver(self) -> None:
        """Wait until no buffer is pinned for a checkpoint."""
        self._snapshots.wait_for_saver()

    def _prepare_memory(self) -> None:
        self._is_prepared = True
        self._snapshots.prepare_memory(self._size_bytes, self._used_at_once)

    def _finish_snapshot(self) -> None:
        copied = self._snapshots.finish_copy()
        if copied is None:
            return
        if self._is_last(copied.step) and self._sum([self._snapshots.skew()])[0]:
            self._snapshots.check_replicas()  # no later step checks it
        rank, generation = self._join.rank, self._join.generation
        if Pin.MIRROR in copied.pin:
            self._channel.send(messages.Pinned(rank, generation, copied.step, copied.buffer, PinnedFor.MIRROR))
        if Pin.CHECKPOINT in copied.pin:
            self._last_checkpoint, self._checkpoint_clock = copied.step, time.monotonic()
            copies = self._snapshots.free_digests()
            self._channel.send(messages.Pinned(rank, generation, copied.step, copied.buffer, copies=copies))
            self._enter_phase(Phase.CHECKPOINT)

    def _checkpoint_due(self, step: int) -> bool:
        checkpoint = self._join.config.checkpoint
        steps, seconds = checkpoint.every_steps, checkpoint.every_s
        # Not "step % every_steps": a postponed checkpoint stays due.
        by_steps = steps is not None and step // steps > self._last_checkpoint // steps
        return by_steps or (seconds is not None and time.monotonic() - self._checkpoint_clock >= seconds)
