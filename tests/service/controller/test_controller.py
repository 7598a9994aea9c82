"""The controller over the cluster in memory and a real SQLite store."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from regroup.service.cluster_state.node_health import rule_of
from regroup.service.controller import job_reconciler
from regroup.service.controller.controller import Controller
from regroup.service.domain.errors import UnavailableError
from regroup.service.domain.states import JobState, Reason
from regroup.service.observability.prometheus import Metrics
from regroup.service.ports.cluster import Node, Reservation, job_id_of, supervisor_name
from regroup.service.ports.sync import SyncReply, SyncRequest
from regroup.service.settings import Settings
from regroup.service.spec.job import parse_spec
from regroup.service.store.records import JobRow, NewJob
from regroup.service.store.store import Store
from tests.support.doubles.fake_cluster import FakeCluster, FakeSupervisor

TWO_NODES = [Node(id=f"{n}" * 40, name=f"local-{n}", address="10.0.0.1", cpus=2, free_cpus=2) for n in (1, 2)]


@dataclass
class House:
    """A store and a cluster, over which controllers come and go."""

    store: Store
    cluster: FakeCluster
    settings: Settings

    async def submit(self, name: str = "gpt", dp: Any = 4, **fields: Any) -> str:
        training = {"global_batch": 8, "micro_batch": 1, "sequence": 16, "steps": 10}
        workload = {"kind": "builtin", "data": {"train": ["/data/*.txt"]}}
        spec = parse_spec({"name": name, "workload": workload, "training": training, "layout": {"dp": dp}, **fields})
        new = NewJob(f"j-{name}", spec, f"file:///s/jobs/j-{name}", fields.get("resume"))
        return (await self.store.submit(new, now=time.time(), actor="test")).id

    async def until(self, job_id: str, wanted: Callable[[JobRow], bool]) -> JobRow:
        """The job's row, once it is as wanted."""
        async with asyncio.timeout(10):
            while True:
                mark = self.store.changes.mark()
                job = await self.store.job(job_id)
                if wanted(job):
                    return job
                await self.store.changes.wait(job_id, mark, 0.5)

    async def until_state(self, job_id: str, state: JobState) -> JobRow:
        return await self.until(job_id, lambda job: job.state is state)

    async def supervisor(self, job_id: str) -> FakeSupervisor:
        """The job's supervisor, once it is there and the job is past PLACING."""
        await self.until(job_id, lambda job: job.state not in (JobState.QUEUED, JobState.PLACING))
        return self.cluster.supervisors[supervisor_name(job_id)]


async def eventually(what: Callable[[], bool] | Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(10):
        while True:
            answer = what()
            if answer if isinstance(answer, bool) else await answer:
                return
            await asyncio.sleep(0.02)


@pytest.fixture
async def house(tmp_path: Path) -> AsyncGenerator[House]:
    settings = Settings(state_dir=tmp_path, gang_timeout_s=1, supervisor_silence_s=0.2, sync_wait_s=5, lease_s=1.5)
    store = await Store.open(settings.database_url)
    yield House(store, FakeCluster(TWO_NODES), settings)
    await store.close()


@asynccontextmanager
async def controlled(house: House) -> AsyncGenerator[Controller]:
    controller = Controller(house.store, house.cluster, house.settings)
    task = asyncio.create_task(controller.run())
    yield controller
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_a_job_takes_its_gang_runs_and_gives_everything_back(house: House) -> None:
    async with controlled(house):
        job_id = await house.submit()
        supervisor = await house.supervisor(job_id)
        payload = supervisor.payload
        assert [(node["name"], node["ranks"]) for node in payload["nodes"]] == [("local-1", 2), ("local-2", 2)]
        assert payload["layout"]["dp_shard"] == 4 and payload["datasets_uri"] == "file:///s/datasets"
        assert {
            name for node in payload["nodes"] for name in node["reservations"]
        } == await house.cluster.reservations()
        rows = await house.store.live_allocations(job_id)
        assert sorted(row.kind for row in rows) == ["agent", "agent", "reservation", "reservation", "supervisor"]

        await supervisor.state("RUNNING", "first_step")
        await house.until_state(job_id, JobState.RUNNING)
        await supervisor.state("SUCCEEDED", "completed")
        await house.until_state(job_id, JobState.SUCCEEDED)
        await eventually(lambda: house.cluster.held == {} and house.cluster.supervisors == {})
        assert house.cluster.forgotten == [job_id]
        order = [call.split()[0] for call in house.cluster.calls]
        assert order == ["take", "take", "start", "stop", "release", "release"]
        assert await house.store.live_allocations() == []
        ended = await house.store.job(job_id)
        assert ended.goodput is not None and 0 < ended.goodput < 1


async def test_nothing_is_kept_when_one_node_refuses(house: House) -> None:
    house.cluster.refuse = {TWO_NODES[1].id}
    async with controlled(house):
        job_id = await house.submit()
        job = await house.until(job_id, lambda job: job.reason == Reason.REQUEUED)
        assert "does not hold" in job.message
        await eventually(lambda: any(call.startswith("release") for call in house.cluster.calls))
        house.cluster.refuse = set()
        await house.supervisor(job_id)
        assert len(house.cluster.held) == 2
        assert len({name.rpartition(":")[2] for name in house.cluster.held}) == 1, "both reservations of one attempt"


async def test_a_job_that_can_never_fit_blocks_nobody_and_says_what_is_missing(house: House) -> None:
    async with controlled(house):
        huge = await house.submit("huge", dp=8)
        small = await house.submit("small", dp=4)
        later = await house.submit("later", dp=1)
        await house.supervisor(small)
        job = await house.until(huge, lambda job: job.conditions != ())
        assert job.conditions[0].reason == "too_large" and "hold 4 when nothing else runs" in job.conditions[0].message
        job = await house.until(later, lambda job: job.conditions != ())
        assert (
            job.conditions[0].reason == "resources"
            and "local-1 holds 0 (CPU: 0 of 2 free)" in job.conditions[0].message
        )


async def test_jobs_wait_their_turn_in_order(house: House) -> None:
    async with controlled(house):
        first, second, third = [await house.submit(name, dp=dp) for name, dp in (("a", 3), ("b", 2), ("c", 1))]
        supervisor = await house.supervisor(first)
        await house.until(second, lambda job: [item.reason for item in job.conditions] == ["resources"])
        await house.until(third, lambda job: [item.reason for item in job.conditions] == ["priority"])
        await supervisor.state("RUNNING", "first_step")
        await supervisor.state("SUCCEEDED", "completed")
        await house.supervisor(second)
        await house.supervisor(third)


async def test_a_cancel_reaches_the_supervisor_inside_its_long_poll(house: House) -> None:
    async with controlled(house):
        job_id = await house.submit()
        supervisor = await house.supervisor(job_id)
        asked = time.monotonic()
        await house.store.cancel(job_id, now=time.time(), actor="test")
        await asyncio.wait_for(supervisor.wait_for_intent("cancel"), 5)
        assert time.monotonic() - asked < house.settings.sync_wait_s / 2
        await supervisor.state("DRAINING", "cancelled_by_user")
        await supervisor.state("CANCELLED", "cancelled_by_user")
        await house.until_state(job_id, JobState.CANCELLED)
        await eventually(lambda: not house.cluster.held)


async def test_a_new_controller_goes_on_with_what_runs(house: House) -> None:
    async with controlled(house):
        job_id = await house.submit()
        supervisor = await house.supervisor(job_id)
        await supervisor.emit("note", key="before", kind="before")
        await eventually(lambda: told(house, job_id, "before"))
    await supervisor.emit("note", key="meanwhile", kind="meanwhile")
    async with controlled(house):
        await eventually(lambda: told(house, job_id, "meanwhile"))
        await supervisor.restart()
        await supervisor.emit("note", key="after", kind="after")
        await eventually(lambda: told(house, job_id, "after"))
        notes = [event.data["kind"] for event in await house.store.events(job_id) if event.type == "note"]
        assert notes == ["before", "meanwhile", "after"], "without gap or duplicate"
        assert started(house) == [supervisor_name(job_id)]


def started(house: House) -> list[str]:
    return [call.removeprefix("start ") for call in house.cluster.calls if call.startswith("start ")]


async def told(house: House, job_id: str, kind: str) -> bool:
    return any(event.data.get("kind") == kind for event in await house.store.events(job_id))


async def test_what_a_dead_controller_began_is_finished_or_reaped(house: House) -> None:
    async with controlled(house):
        ended = await house.submit("ended", dp=1)
        await house.supervisor(ended)
    house.cluster.agents = {f"regroup-agent:{ended}:11111111", "regroup-agent:j-other:11111111"}
    await house.cluster.create_reservation(
        Reservation("regroup-reservation:j-ended:11111111:99", ended, TWO_NODES[0].id, 1, "cpu", 1)
    )
    supervisor = house.cluster.supervisors[supervisor_name(ended)]
    await supervisor.state("RUNNING", "first_step")
    await supervisor.state("SUCCEEDED", "completed")
    async with controlled(house):
        await house.until_state(ended, JobState.SUCCEEDED)
        await eventually(lambda: house.cluster.held == {} and house.cluster.supervisors == {})
        assert {job_id_of(name) for name in house.cluster.agents} == {"j-other"}, "not in this database: left alone"


async def test_leftovers_of_a_live_job_are_reaped_by_name(house: House) -> None:
    async with controlled(house):
        job_id = await house.submit(dp=1)
        await house.supervisor(job_id)
    mine = set(house.cluster.held)
    stray = Reservation(f"regroup-reservation:{job_id}:22222222:99", job_id, TWO_NODES[1].id, 1, "cpu", 1)
    await house.cluster.create_reservation(stray)
    async with controlled(house):
        await eventually(lambda: set(house.cluster.held) == mine)


async def test_a_supervisor_that_vanished_is_started_again_or_the_job_queues_again(house: House) -> None:
    async with controlled(house):
        job_id = await house.submit()
        await house.supervisor(job_id)
        await house.cluster.kill_actor(supervisor_name(job_id))
        await eventually(lambda: supervisor_name(job_id) in house.cluster.supervisors)
        assert (await house.store.job(job_id)).state is JobState.STARTING

        house.cluster.held.clear()
        await house.cluster.kill_actor(supervisor_name(job_id))
        await house.until(job_id, lambda job: job.version > 4)
        states = [event.data["to"] for event in await house.store.events(job_id) if event.type == "state"]
        assert states[:4] == ["QUEUED", "PLACING", "STARTING", "QUEUED"]
        await house.supervisor(job_id)


async def test_a_lost_cluster_is_reported_and_survived(house: House) -> None:
    async with controlled(house) as controller:
        job_id = await house.submit()
        supervisor = await house.supervisor(job_id)
        waiting = await house.submit("waiting", dp=1)
        house.cluster.reachable = False
        await supervisor.emit("note", kind="wakes the poll that was open")
        await house.until(job_id, lambda job: any(c.type == "SupervisorResponsive" for c in job.conditions))
        job = await house.until(waiting, lambda job: any(c.reason == "cluster_unavailable" for c in job.conditions))
        assert job.state is JobState.QUEUED
        with pytest.raises(UnavailableError, match="does not answer"):
            await controller.check()
        house.cluster.reachable = True
        await house.until(job_id, lambda job: job.conditions == ())
        await eventually(lambda: checked(controller))


async def test_the_goodput_of_a_quiet_run_is_kept_up(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_reconciler, "_ACCOUNT_EVERY_S", 0.0)
    async with controlled(house):
        job_id = await house.submit()
        supervisor = await house.supervisor(job_id)
        await supervisor.state("RUNNING", "first_step")
        first = (await house.until(job_id, lambda job: job.goodput is not None)).goodput
        await supervisor.emit("note", kind="nothing that moves the account")
        await house.until(job_id, lambda job: job.goodput is not None and first is not None and job.goodput > first)


async def test_a_fault_of_ours_is_shown_on_the_job_and_gone_with_it(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def stumble(job_id: str, request: SyncRequest) -> SyncReply:
        raise RuntimeError("a stumble")

    async with controlled(house):
        job_id = await house.submit()
        supervisor = await house.supervisor(job_id)
        with monkeypatch.context() as patched:
            patched.setattr(house.cluster, "sync", stumble)
            await supervisor.emit("note", kind="wakes the poll that was open")
            job = await house.until(job_id, lambda job: any(c.type == "LookedAfter" for c in job.conditions))
            assert "RuntimeError: a stumble" in job.conditions[0].message
        await supervisor.state("RUNNING", "first_step")
        await house.until(job_id, lambda job: job.state is JobState.RUNNING and job.conditions == ())


async def checked(controller: Controller) -> bool:
    try:
        return await controller.check() == "leads"
    except UnavailableError:
        return False


async def test_time_limits(house: House) -> None:
    async with controlled(house):
        running = await house.submit("running", dp=4, max_duration="1s")
        supervisor = await house.supervisor(running)
        queued = await house.submit("queued", dp=1, max_queue_time="1s")
        job = await house.until_state(queued, JobState.FAILED)
        assert job.reason == Reason.MAX_QUEUE_TIME and "CPU" in job.message
        end = await asyncio.wait_for(supervisor.wait_for_intent("end"), 5)
        assert end["reason"] == "max_duration"


async def test_of_two_controllers_one_leads_and_the_other_takes_over(house: House) -> None:
    async with controlled(house) as first:
        await eventually(lambda: checked(first))
        # On SQLite a newcomer is known to be alone and takes the lease: the first must notice.
        async with controlled(house) as second:
            await eventually(lambda: checked(second))
            job_id = await house.submit()
            await house.supervisor(job_id)
            assert started(house) == [supervisor_name(job_id)]


async def test_metrics_are_rebuilt_from_the_database(house: House) -> None:
    async with controlled(house):
        job_id = await house.submit()
        supervisor = await house.supervisor(job_id)
        place = {"layout": {"dp_shard": 4}, "world_size": 4, "ranks": [], "restore": {"source": "none"}, "cause": ""}
        await supervisor.emit("generation", number=1, start_step=0, **place)
        step = {"duration_s": 0.5, "loss": 2.5, "tokens": 64, "samples": 4, "samples_hash": 1}
        await supervisor.emit("step", step=1, **step)
        await supervisor.state("RUNNING", "first_step")
        struck = {
            "cause": "rank_exit",
            "reason": "rank_exit",
            "recovery_action": "respawn",
            "steps_lost": 0,
            "durations": {"total": 0.7},
        }
        await supervisor.emit("incident", id="i1", **struck)
        await house.until(job_id, lambda job: job.step == 1)
        await eventually(lambda: has_incident(house, job_id))
        metrics = Metrics(house.store, rule_of(house.settings))
        text = (await metrics.render()).decode()
        assert f'regroup_job_loss{{job="gpt",job_id="{job_id}",project="default"}} 2.5' in text
        assert 'regroup_jobs{state="RUNNING"} 1.0' in text
        assert 'regroup_incidents_total{cause="rank_exit"} 1.0' in text
        assert 'regroup_recovery_seconds_bucket{le="1.0",phase="total"} 1.0' in text
        assert "regroup_queue_wait_seconds_count 1.0" in text
        assert 'regroup_device_seconds_total{class="productive",device="cpu"}' in text
        await supervisor.state("SUCCEEDED", "completed")
        await house.until_state(job_id, JobState.SUCCEEDED)
        await eventually(lambda: not house.cluster.held)
    again, fresh = await metrics.render(), await Metrics(house.store, rule_of(house.settings)).render()
    assert again == fresh, "kept or read anew, the numbers are the same"
    assert "regroup_job_loss{" not in again.decode()


async def has_incident(house: House, job_id: str) -> bool:
    return bool(await house.store.incidents(job_id))
