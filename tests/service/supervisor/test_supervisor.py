"""The supervisor as the controller calls it, with agents in memory."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from regroup.service.ports.sync import SyncReply, SyncRequest
from regroup.service.spec.job import parse_spec
from regroup.service.supervisor.job_state.generations import PinnedSet
from regroup.service.supervisor.supervisor import Adapters, Supervisor
from regroup.workers.contract.messages import AgentReport, to_json
from regroup.workers.contract.storage_progress import SaveProgress, StorageProgress
from tests.support.doubles.memory_records import Records
from tests.support.doubles.supervised_job import SPEC, FakeNodes, place

POLL_S = 30.0


class WaitingNodes(FakeNodes):
    """Agents whose ranks never start, and whose saves never end."""

    async def intercept(self, node_id: str, method: str, arguments: Any) -> None:
        if method in ("form_ranks", "save_checkpoint"):
            await asyncio.Event().wait()
        await super().intercept(node_id, method, arguments)


@pytest.fixture
async def supervisor() -> AsyncIterator[Supervisor]:
    """A supervisor whose first generation is recorded, without events that wait."""
    nodes = WaitingNodes({})
    payload = {
        "job_id": "j", "spec": parse_spec(SPEC).model_dump(mode="json"), "layout": {"dp_shard": 2},
        "nodes": [place(f"node-{number}") for number in range(2)], "storage_uri": "file:///s",
        "datasets_uri": "file:///d", "resume": None,
    }  # fmt: skip
    adapters = Adapters(lambda job_id: nodes, Records(), lambda config: lambda event: None, lambda: "127.0.0.1")
    made = Supervisor(payload, adapters)
    async with asyncio.timeout(10):
        seen = await sync(made, 0.1)
        while seen.events or not made._lifecycle._generations.past:
            seen = await sync(made, 0.1, seen)
    yield made
    await made.shutdown()


async def sync(supervisor: Supervisor, wait_s: float, seen: SyncReply | None = None) -> SyncReply:
    """Poll the supervisor. The reply acknowledges all of `seen`."""
    newest = seen.events[-1].seq if seen is not None and seen.events else 0
    request = SyncRequest(acked_seq=newest, boot_id=seen.boot_id if seen is not None else "", wait_s=wait_s)
    return SyncReply.from_json(await supervisor.sync(request.to_json()))


async def test_a_checkpoint_that_is_written_is_in_the_status_although_no_event_happens(supervisor: Supervisor) -> None:
    life = supervisor._lifecycle
    life._checkpoints.start_save(life._generations.past[-1], PinnedSet(2), life._generations, lambda: None)
    await asyncio.sleep(0)
    progress = StorageProgress(3, 9, 2.0)
    await supervisor.report(to_json(AgentReport("node-0", "boot", 1, (), (), save=SaveProgress(1, 2, progress))))
    began_s = time.monotonic()
    reply = await sync(supervisor, POLL_S)
    assert time.monotonic() - began_s < POLL_S / 3
    assert reply.events == () and reply.status.save is not None
    assert (reply.status.save.step, reply.status.save.done_bytes, reply.status.save.total_bytes) == (2, 3, 9)
