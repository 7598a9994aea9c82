"""Snapshot buffers of one rank: the next buffer to write, the copy in progress, the newest complete snapshot."""

import json
import threading
import time
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from regroup.workers.parallel.parameter_digest import gathered
from regroup.workers.state.buffer_rotation import buffer_to_write, buffers_to_prepare
from regroup.workers.state.memory.preparation import BufferPreparation
from regroup.workers.state.replica_check import ReplicaComparison, error_of, find_outliers
from regroup.workers.state.shard_buffer import Pin, ShardBuffer
from regroup.workers.state.snapshot import Copier
from regroup.workers.state.training_state import TrainingState

_PIN_POLL_S = 0.02


@dataclass(frozen=True)
class SnapshotCopy:
    """A started copy of a snapshot."""

    buffer: int
    step: int
    pin: Pin


class Snapshots:
    """Copies snapshots into buffers that the agent owns."""

    def __init__(self, device: torch.device, compared: ReplicaComparison | None = None, threads: int = 1) -> None:
        """Args:
        device: device of the state.
        compared: selects the state that replicas on other ranks also hold; None: compare nothing.
        threads: most threads of a copy on the CPU.
        """
        self._compared = compared
        self._copier = Copier(device, threads)
        self._buffers: list[ShardBuffer] = []
        self._protected = -1
        self._newest = -1
        self._copying: SnapshotCopy | None = None
        self._commit: _BackgroundCommit | None = None
        """Commit of the copy in progress, if copies are asynchronous."""
        self._skew = 0.0
        self._incomparable = set[str]()

    @property
    def is_async(self) -> bool:
        """True if a copy runs during training. Otherwise it is complete when `start_copy` returns."""
        return self._copier.is_async

    @property
    def is_copying(self) -> bool:
        """True if a copy was started and not finished."""
        return self._copying is not None

    @property
    def has_own(self) -> bool:
        """True if there is a snapshot of a step after the restore."""
        return self._newest >= 0

    def count(self, pin: Pin) -> int:
        """Return the number of buffers that are pinned for `pin`."""
        return sum(pin in buffer.header().pinned for buffer in self._buffers)

    def use(self, buffers: Sequence[ShardBuffer], source: int) -> None:
        """Set the buffers to write; `source` is the index of the buffer with the restored state, or -1."""
        self._buffers = list(buffers)
        self._protected = source

    def prepare_memory(self, size_bytes: int, count: int) -> None:
        """Start to make the memory of the next `count` buffers present, in a thread.

        Args:
            size_bytes: expected size of a snapshot.
            count: number of buffers that snapshots use at the same time.
        """
        headers = [buffer.header() for buffer in self._buffers]
        chosen = buffers_to_prepare(headers, self._protected, count)
        BufferPreparation([self._buffers[number].memory for number in chosen], size_bytes).start()

    def start_copy(self, state: TrainingState, step: int, place: Mapping[str, int], layout_hash: str, pin: Pin) -> None:
        """Start copying the state of `step`. `place` is this rank's generation, rank and world_size."""
        captured = state.capture(step)
        plan = self._copier.plan(captured.tensors, state.alike, self._compared)
        number = buffer_to_write([buffer.header() for buffer in self._buffers], self._protected)
        buffer = self._buffers[number]
        buffer.begin(plan, captured.facts, step=step, layout_hash=layout_hash, **place)
        self._copier.copy(buffer, plan, captured.tensors)
        self._copying = SnapshotCopy(number, step, pin)
        if self.is_async:
            self._commit = _BackgroundCommit(self._copier, buffer, pin)

    def finish_copy(self) -> SnapshotCopy | None:
        """Wait for the copy in progress, if any, and make its snapshot the newest one.

        Raises:
            RuntimeError: the device failed during the copy.
        """
        if self._copying is None:
            return None
        copied, self._copying = self._copying, None
        if self._commit is not None:
            commit, self._commit = self._commit, None
            commit.wait()
        else:
            self._copier.finish()
            self._buffers[copied.buffer].commit(copied.pin, self._copier.regions)
        self._newest, self._skew = copied.buffer, self._buffers[copied.buffer].skew(self._incomparable)
        return copied

    def free_digests(self) -> dict[str, int]:
        """Return group → checksum of the newest snapshot, for state that may differ between ranks."""
        return self._buffers[self._newest].free_digests()

    def skew(self) -> float:
        """Return the skew of the newest snapshot; 0 if it was returned before.

        The sum of the skews over all ranks is not 0 if replicas hold different state.
        """
        skew, self._skew = self._skew, 0.0
        return skew

    def check_replicas(self) -> None:
        """Find the ranks whose newest snapshot differs from its replicas. A collective.

        Call this if the skews do not sum to 0. If ranks hold different tensors rather than different values, that group
        is not compared from now on.

        Raises:
            ReplicasDifferError: names the outlier ranks and the tensors that differ.
        """
        buffer = self._buffers[self._newest]
        own = buffer.digests()
        by_rank = dict(enumerate(json.loads(some) for some in gathered(json.dumps(own).encode())))
        outlier = find_outliers(by_rank)
        plan, parts = self._copier.last_plan, dict[str, int]()
        if outlier is None:
            holders = Counter(group for digests in by_rank.values() for group in digests)
            self._incomparable = {group.id for group in plan.groups.values() if holders[group.id] < group.copies}
            return
        for entry in plan.entries:
            if (group := plan.groups.get(entry.name)) is not None and group.id in outlier.keys:
                parts[f"{group.id} {entry.name}"] = zlib.crc32(buffer.view(entry))
        differing = find_outliers(dict(enumerate(json.loads(some) for some in gathered(json.dumps(parts).encode()))))
        names = sorted({key.partition(" ")[2] for key in differing.keys}) if differing is not None else []
        raise error_of(buffer.header().step, outlier, names)

    def newest(self) -> ShardBuffer | None:
        """Return the newest snapshot, or the restored one; None if there is neither."""
        newest = self._newest if self._newest >= 0 else self._protected
        return self._buffers[newest] if newest >= 0 else None

    def protect_newest(self) -> None:
        """Protect the newest snapshot, which is complete on all ranks, until a newer one is."""
        self._protected = self._newest if self._newest >= 0 else self._protected

    def wait_for_saver(self) -> None:
        """Wait until no buffer is pinned for a checkpoint."""
        while self.count(Pin.CHECKPOINT):
            time.sleep(_PIN_POLL_S)


class _BackgroundCommit:
    """Commit of a snapshot in a thread, as soon as its copy is complete.

    The checksum reads the whole buffer, at about 10 GB per second. In the main thread it would delay the next update.
    """

    def __init__(self, copier: Copier, buffer: ShardBuffer, pin: Pin) -> None:
        self._copier, self._buffer, self._pin = copier, buffer, pin
        self._error: Exception | None = None
        # A daemon: a rank that fails does not wait for its snapshot.
        self._thread = threading.Thread(target=self._run, name="snapshot-commit", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait until the snapshot is complete. Raise the error of the copy or the commit."""
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self._copier.finish()
            self._buffer.commit(self._pin)
        except Exception as error:
            self._error = error
