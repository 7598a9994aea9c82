"""An agent whose ranks exist only as numbers. It speaks the contract of a real agent: calls, reports and heartbeats.

Real: the codec of calls, `Outbox`, `ActivityReports`, report and heartbeat, and how often each is sent. Simulated:
processes, state in memory, mirrors and storage. They answer at once or after a fixed time. State is so small that the
newest set is verified before the death of the ranks is proved, as an agent does with up to about 5 GB.
"""

import asyncio
import functools
import inspect
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from benchmarks.control_plane.step_clock import STEP_S, StepClock
from regroup.workers.agent.outbox import Outbox
from regroup.workers.agent.ranks.activity_reports import ActivityReports
from regroup.workers.contract import agent_records as records
from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.contract.codec import plain
from regroup.workers.contract.held_sets import HeldSet
from regroup.workers.contract.messages import (
    AgentReport,
    Exited,
    Joined,
    Message,
    Pinned,
    PinnedFor,
    Restored,
    StepRow,
    decode,
    to_json,
)
from regroup.workers.contract.rank_activity import RankActivity

JOIN_S, RESTORE_S, MIRROR_S = 0.2, 0.4, 5.0
"""Seconds after the order to form at which ranks have joined and restored, and seconds of a transfer to a mirror."""
_PHASES = (("forward", 0.0), ("backward", 0.35), ("optimizer", 0.85), ("snapshot", 0.95))
"""Phase → part of a step at which it begins."""
_GATHER_S = 0.2

Send = Callable[[dict[str, Any]], Awaitable[Mapping[str, Any]]]


class SimulatedAgent:
    """One agent. `calls` of the supervisor arrive by the name of the method."""

    def __init__(self, config: AgentConfig, send: Send, steps: StepClock) -> None:
        """Initialize an agent without ranks.

        Args:
            config: its configuration.
            send: sends a report and returns the reply.
            steps: steps of all ranks of the job.
        """
        self.config, self._send, self._steps = config, send, steps
        self.outbox, self._activity = Outbox(), ActivityReports()
        self.generation = 0
        self.listener: dict[str, Any] | None = None
        self._ranks: tuple[int, ...] = ()
        self._dead: set[int] = set()
        self._world_size = 0
        self._report_every_s, self._news = 1.0, asyncio.Event()
        self._replay: list[Message] = []
        self._mirrored: tuple[int, int] | None = None
        self._mirror_due = False

    @property
    def is_leader(self) -> bool:
        """True if rank 0 runs here."""
        return 0 in self._ranks

    @property
    def ranks(self) -> Sequence[int]:
        """The ranks of the running generation here."""
        return self._ranks

    # ------------------------------------------------------------ reports

    async def report_until_cancelled(self) -> None:
        """Report for news and when a report is due, as `SupervisorLink` does."""
        due_s = 0.0
        while True:
            try:
                async with asyncio.timeout(max(0.0, due_s - time.monotonic())):
                    await self._news.wait()
                if self._report_every_s > 1.0 and not self.outbox.has_urgent:
                    await asyncio.sleep(_GATHER_S)
            except TimeoutError:
                pass
            self._news.clear()
            due_s = time.monotonic() + self._report_every_s
            if not await self._report():
                due_s = time.monotonic() + 1.0

    async def _report(self) -> bool:
        batch = self.outbox.next_batch()
        activity = self._activity.next_report(self.generation, self._places(), self._activities(), {})
        place = self.config.node_id, self.outbox.boot_id, self.generation, self._alive()
        report = AgentReport(*place, batch, activity, self.outbox.supervisor_run)
        try:
            async with asyncio.timeout(5.0):
                reply = await self._send(to_json(report))
        except (ConnectionError, TimeoutError):
            self._activity.reset()
            return False
        self.listener, self._report_every_s = reply["heartbeats"], reply["report_every_s"]
        self._activity.confirm(reply["boot_id"])
        if reply["needs_full"]:
            self._activity.reset()
        self.outbox.acknowledge(reply["boot_id"], reply["received"], reply["durable"])
        if (batch and self.outbox.next_batch()) or self._activity.is_full_next:
            self._news.set()
        return True

    def emit(self, messages: Iterable[Message]) -> None:
        """Report messages of ranks."""
        for message in messages:
            self.outbox.add(message)
            if not isinstance(message, StepRow):
                self._replay.append(message)
        self._news.set()

    def kill_rank(self) -> None:
        """Let the first rank of this node die."""
        rank = self._ranks[0]
        self._dead.add(rank)
        self._steps.stop()
        self.emit([Exited(rank, self.generation, -9, time.time())])

    def commit_step(self) -> None:
        """Report the newest step. Only the agent of the leading rank does, once per step."""
        step, done = self._steps.step, self._steps.done
        if self.is_leader and not self._dead and done:
            row = StepRow(self.generation, step, time.time(), STEP_S, 2.5, 8192, 8, 0, 1e-4, 1.0)
            self.outbox.add(row)
            if done == 1:
                self._replay.append(row)
                self._news.set()

    # ------------------------------------------------------------ ranks

    def _alive(self) -> tuple[int, ...]:
        return tuple(rank for rank in self._ranks if rank not in self._dead)

    def _place(self) -> tuple[int, str, float]:
        """Return step, phase and seconds in the phase."""
        since_s = self._steps.trained_s
        if since_s < 0:
            return self._steps.start_step, "restore", max(0.0, since_s + RESTORE_S)
        part = since_s / STEP_S % 1.0
        phase, begin = next(each for each in reversed(_PHASES) if each[1] <= part)
        return self._steps.step + 1, phase, (part - begin) * STEP_S

    def _places(self) -> dict[int, tuple[int, str]]:
        step, phase, _ = self._place()
        return dict.fromkeys(self._ranks, (step, phase))

    def _activities(self) -> dict[int, RankActivity]:
        step, phase, stalled_s = self._place()
        done = self._steps.done
        return {
            rank: RankActivity(step, phase, stalled_s, 0.0, done, 0.5, done, 0.4 + rank % 17 * 1e-3, 1e-3)
            for rank in self._alive()
        }

    # ------------------------------------------------------------ calls of the supervisor

    def answer(self, method: str, arguments: Sequence[Any]) -> Any:
        """Return the plain data of an answer, or an awaitable of it. A method without a handler does nothing."""
        handler = getattr(self, f"_{method}", None)
        result = None if handler is None else handler(*arguments)
        return _plain_later(result) if inspect.isawaitable(result) else plain(result)

    def _start_zygote(self) -> records.NodeDescription:
        node = self.config.node_id
        return records.NodeDescription(
            node, self.outbox.boot_id, "host", "3.11", 8, 2**40, 2**40, 1, 1.0, 1.0, "fork", ""
        )

    def _check_storage(self, nonce: str) -> bool:
        return True

    def _list_sources(self, sources: Any) -> records.SourceListing:
        return records.SourceListing({"/data": 1})

    def _prepare_data(self, sources: Any) -> records.Dataset:
        return {"fingerprint": "f"}

    def _fetch_data(self, prepared: Any) -> records.Dataset:
        return {"train": "/data/train", "fingerprint": "f"}

    def _start_store(self, generation: int, is_next: bool) -> records.StoreAddress:
        return records.StoreAddress("127.0.0.1", 1)

    def _transfer_address(self) -> records.TransferAddress:
        return records.TransferAddress("127.0.0.1", 1, self.config.node_id)

    def _scan_checkpoints(self) -> records.CheckpointScan:
        return records.CheckpointScan()

    async def _send_mirror(self, *_: Any) -> records.MirrorSent:
        await asyncio.sleep(MIRROR_S)
        return records.MirrorSent(2**30, MIRROR_S)

    def _retain_mirror(self, generation: int, step: int) -> None:
        self._mirrored = (generation, step) if generation else None

    def _request_mirror(self, generation: int) -> None:
        self._mirror_due = True

    def pop_mirror_request(self) -> bool:
        """Return True once after each request that all ranks retain a set for mirrors."""
        is_due, self._mirror_due = self._mirror_due, False
        return is_due

    def pin(self, generation: int, step: int) -> None:
        """Report that all ranks here hold a set for mirrors."""
        if generation == self.generation:
            self.emit(Pinned(rank, generation, step, 0, PinnedFor.MIRROR) for rank in self._alive())

    def _form_ranks(self, common: bytes, starts: dict[str, Any], holders: bytes) -> None:
        join = _decoded(common)
        self.generation, self._world_size = join.generation, join.world_size
        self._ranks, self._dead, self._replay = tuple(starts["ranks"]), set(), []
        self._steps.form(self.generation, join.restore.step, RESTORE_S + 0.1)
        loop, generation = asyncio.get_running_loop(), self.generation
        loop.call_later(JOIN_S, self._ranks_reach, generation, Joined)
        loop.call_later(RESTORE_S, self._ranks_reach, generation, Restored)

    def _ranks_reach(self, generation: int, kind: type[Joined | Restored]) -> None:
        if generation != self.generation or self._dead:
            return
        now_s = time.time()
        if kind is Joined:
            self.emit(Joined(rank, generation, now_s) for rank in self._ranks)
        else:
            self.emit(Restored(rank, generation, self._steps.start_step, now_s) for rank in self._ranks)

    def _kill_ranks(self, generation: int, for_restore: bool) -> records.DeathProof:
        self._ranks = ()
        place = self.config.node_id, self.outbox.boot_id, self.generation, ()
        held = tuple(self._held_sets()) if for_restore else ()
        return records.DeathProof((), AgentReport(*place, self.outbox.next_batch()), held)

    def _verify_shards(self, generation: int, step: int) -> list[HeldSet]:
        """Return the shards of a set: they are intact."""
        return [each for each in self._held_sets() if each.step == step]

    def _list_shards(self) -> list[HeldSet]:
        return self._held_sets()

    def _held_sets(self) -> list[HeldSet]:
        """Return two sets of the ranks here, of which the newest is verified, and the mirrored set of another node."""
        if not self.generation:
            return []
        first, newest = self._first_rank(), self._steps.step
        own = tuple(range(first, first + 8))
        other = (first + self._world_size // 2) % max(1, self._world_size)
        shared = ({"step": 1, "scheduler": 2},)
        return [
            HeldSet(self._world_size, self.generation, step, "layout", ranks, shared, is_verified)
            for step, ranks, is_verified in (
                (newest, own, True),
                (newest - 1, own, False),
                (newest - 9, tuple(range(other, other + 8)), True),
            )
        ]

    def _first_rank(self) -> int:
        return int(self.config.node_name.rpartition("-")[2]) * 8

    def _status(self) -> records.AgentStatus:
        self._news.set()
        return records.AgentStatus(
            self.generation,
            self._alive(),
            boot_id=self.outbox.boot_id,
            messages=tuple(to_json(message) for message in self._replay),
            dataset={"train": "/data/train", "fingerprint": "f"},
            mirrored=self._mirrored,
        )


async def _plain_later(result: Awaitable[Any]) -> Any:
    return plain(await result)


@functools.lru_cache(maxsize=4)
def _decoded(common: bytes) -> Any:
    """Return a `Join`. All agents of this process get the same bytes; each real agent decodes them on its own node."""
    return decode(common)
