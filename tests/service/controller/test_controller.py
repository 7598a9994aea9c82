"""The controller, with an in-memory cluster and a real SQLite store."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from regroup.service.cluster_state.node_health import rule_of
from regroup.service.controller.controller import Controller
from regroup.service.domain.author import Author
from regroup.service.domain.errors import UnavailableError
from regroup.service.domain.states import JobState, Reason
from regroup.service.observability.prometheus import Metrics
from regroup.service.policy import sync_pace
from regroup.service.ports.cluster import Node, Reservation, job_id_of, supervisor_name
from regroup.service.ports.sync import SyncReply, SyncRequest
from regroup.service.settings import Settings
from regroup.service.spec.job import parse_spec
from regroup.service.store.rows.records import JobRow, NewJob
from regroup.service.store.store import Store
from tests.support.doubles.fake_cluster import FakeCluster, FakeSupervisor
from tests.support.servers.stores import open_store

TWO_NODES = [Node(id=f"{n}" * 40, name=f"local-{n}", address="10.0.0.1", cpus=2, free_cpus=2) for n in (1, 2)]


@dataclass
class ControlSetup:
    """A store and a cluster that outlive the controllers of a test."""

    store: Store
    cluster: FakeCluster
    settings: Settings

    async def submit(self, name: str = "gpt", dp: Any = 4, **fields: Any) -> str:
        training = {"global_batch": 8, "micro_batch": 1, "sequence": 16, "steps": 10}
        workload = {"kind": "builtin", "data": {"train": ["/data/*.txt"]}}
        spec = parse_spec({"name": name, "workload": workload, "training": training, "layout": {"dp": dp}, **fields})
        new = NewJob(f"j-{name}", spec, f"file:///s/jobs/j-{name}", fields.get("resume"))
        return (await self.store.submissions.submit(new, now=time.time(), author=Author("test"))).id

    async def until(self, job_id: str, is_expected: Callable[[JobRow], bool]) -> JobRow:
        """Wait until the job's row is as expected, and return it."""
        async with asyncio.timeout(10):
            while True:
                mark = self.store.changes.mark()
                job = await self.store.job(job_id)
                if is_expected(job):
                    return job
                await self.store.changes.wait(job_id, mark, 0.5)

    async def until_state(self, job_id: str, state: JobState) -> JobRow:
        return await self.until(job_id, lambda job: job.state is state)

    async def supervisor(self, job_id: str) -> FakeSupervisor:
        """Wait until the job is past PLACING, and return its supervisor."""
        await self.until(job_id, lambda job: job.state not in (JobState.QUEUED, JobState.PLACING))
        return self.cluster.supervisors[supervisor_name(job_id)]


async def eventually(condition: Callable[[], bool] | Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(10):
        while True:
            answer = condition()
            if answer if isinstance(answer, bool) else await answer:
                return
            await asyncio.sleep(0.02)


@pytest.fixture
async def setup(tmp_path: Path) -> AsyncGenerator[ControlSetup]:
    settings = Settings(state_dir=tmp_path, gang_timeout_s=1, supervisor_silence_s=0.2, sync_wait_s=5, lease_s=1.5)
    store = await open_store(settings.database_url)
    yield ControlSetup(store, FakeCluster(TWO_NODES), settings)
    await store.close()


@asynccontextmanager
async def controlled(setup: ControlSetup) -> AsyncGenerator[Controller]:
    controller = Controller(setup.store, setup.cluster, setup.settings)
    task = asyncio.create_task(controller.run())
    yield controller
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_a_job_allocates_its_gang_runs_and_releases_everything(setup: ControlSetup) -> None:
    async with controlled(setup):
        job_id = await setup.submit()
        supervisor = await setup.supervisor(job_id)
        payload = supervisor.payload
        assert [(node["name"], node["ranks"]) for node in payload["nodes"]] == [("local-1", 2), ("local-2", 2)]
        assert payload["layout"]["dp_shard"] == 4 and payload["datasets_uri"] == "file:///s/datasets"
        assert {
            name for node in payload["nodes"] for name in node["reservations"]
        } == await setup.cluster.reservations()
        rows = await setup.store.live_allocations(job_id)
        assert sorted(row.kind for row in rows) == ["agent", "agent", "reservation", "reservation", "supervisor"]

        await supervisor.state("RUNNING", "first_step")
        await setup.until_state(job_id, JobState.RUNNING)
        for ranks in ({"0": [3, "forward", 0.1, 0.0, 0.2]}, None):  # None: as before
            supervisor.status = replace(supervisor.status, ranks=ranks)
            await supervisor.emit("note", kind="event for a sync")
            await setup.until(job_id, lambda job: job.rank_phases == {"0": [3, "forward", 0.1, 0.0, 0.2]})
        await supervisor.state("SUCCEEDED", "completed")
        await setup.until_state(job_id, JobState.SUCCEEDED)
        await eventually(lambda: setup.cluster.held == {} and setup.cluster.supervisors == {})
        assert setup.cluster.forgotten == [job_id]
        order = [call.split()[0] for call in setup.cluster.calls]
        assert order == ["take", "take", "start", "stop", "release", "release"]
        assert await setup.store.live_allocations() == []
        ended = await setup.store.job(job_id)
        assert ended.goodput is not None and 0 < ended.goodput < 1


async def test_a_job_knows_its_page_if_the_server_knows_its_address(setup: ControlSetup) -> None:
    setup.settings = setup.settings.model_copy(update={"public_url": "https://regroup.example/"})
    async with controlled(setup):
        payload = (await setup.supervisor(await setup.submit())).payload
        assert payload["page_url"] == "https://regroup.example/console/jobs/j-gpt"


async def test_all_reservations_are_released_when_one_node_refuses(setup: ControlSetup) -> None:
    setup.cluster.refuse = {TWO_NODES[1].id}
    async with controlled(setup):
        job_id = await setup.submit()
        job = await setup.until(job_id, lambda job: job.reason == Reason.REQUEUED)
        assert "does not hold" in job.message
        await eventually(lambda: any(call.startswith("release") for call in setup.cluster.calls))
        setup.cluster.refuse = set()
        await setup.supervisor(job_id)
        assert len(setup.cluster.held) == 2
        assert len({name.rpartition(":")[2] for name in setup.cluster.held}) == 1, "both reservations of one attempt"


async def test_a_refused_job_is_not_tried_in_every_pass_and_keeps_its_place(setup: ControlSetup) -> None:
    setup.cluster.refuse = {node.id for node in TWO_NODES}
    async with controlled(setup):
        job_id = await setup.submit()
        queued_at = (await setup.store.job(job_id)).queued_at
        await setup.until(job_id, lambda job: any("2 times in a row" in each.message for each in job.conditions))
        moves = [event for event in await setup.store.events(job_id, 0, 1000) if event.type == "state"]
        assert len([move for move in moves if move.data["to"] == JobState.PLACING]) == 2
        job = await setup.store.job(job_id)
        assert (job.state, job.reason, job.queued_at) == (JobState.QUEUED, Reason.REQUEUED, queued_at)
        setup.cluster.refuse = set()
        await setup.supervisor(job_id)


async def test_a_job_that_can_never_fit_blocks_no_other_job_and_reports_the_shortage(setup: ControlSetup) -> None:
    async with controlled(setup):
        huge = await setup.submit("huge", dp=8)
        small = await setup.submit("small", dp=4)
        later = await setup.submit("later", dp=1)
        await setup.supervisor(small)
        job = await setup.until(huge, lambda job: job.conditions != ())
        assert job.conditions[0].reason == "too_large" and "hold 4 when nothing else runs" in job.conditions[0].message
        job = await setup.until(later, lambda job: job.conditions != ())
        assert (
            job.conditions[0].reason == "resources"
            and "local-1 holds 0 (CPU: 0 of 2 free)" in job.conditions[0].message
        )


async def test_queued_jobs_start_in_order(setup: ControlSetup) -> None:
    async with controlled(setup):
        first, second, third = [await setup.submit(name, dp=dp) for name, dp in (("a", 3), ("b", 2), ("c", 1))]
        supervisor = await setup.supervisor(first)
        await setup.until(second, lambda job: [item.reason for item in job.conditions] == ["resources"])
        await setup.until(third, lambda job: [item.reason for item in job.conditions] == ["priority"])
        await supervisor.state("RUNNING", "first_step")
        await supervisor.state("SUCCEEDED", "completed")
        await setup.supervisor(second)
        await setup.supervisor(third)


async def test_a_cancel_reaches_the_supervisor_inside_its_long_poll(setup: ControlSetup) -> None:
    async with controlled(setup):
        job_id = await setup.submit()
        supervisor = await setup.supervisor(job_id)
        cancelled_s = time.monotonic()
        await setup.store.cancel(job_id, now=time.time(), author=Author("test"))
        await asyncio.wait_for(supervisor.wait_for_intent("cancel"), 5)
        assert time.monotonic() - cancelled_s < setup.settings.sync_wait_s / 2
        await supervisor.state("DRAINING", "cancelled_by_user")
        await supervisor.state("CANCELLED", "cancelled_by_user")
        await setup.until_state(job_id, JobState.CANCELLED)
        await eventually(lambda: not setup.cluster.held)


async def test_a_new_controller_continues_with_running_jobs(setup: ControlSetup) -> None:
    async with controlled(setup):
        job_id = await setup.submit()
        supervisor = await setup.supervisor(job_id)
        await supervisor.emit("note", key="before", kind="before")
        await eventually(lambda: has_note(setup, job_id, "before"))
    await supervisor.emit("note", key="between", kind="between")
    async with controlled(setup):
        await eventually(lambda: has_note(setup, job_id, "between"))
        await supervisor.restart()
        await supervisor.emit("note", key="after", kind="after")
        await eventually(lambda: has_note(setup, job_id, "after"))
        notes = [event.data["kind"] for event in await setup.store.events(job_id) if event.type == "note"]
        assert notes == ["before", "between", "after"], "no gaps and no duplicates"
        assert started(setup) == [supervisor_name(job_id)]


def started(setup: ControlSetup) -> list[str]:
    return [call.removeprefix("start ") for call in setup.cluster.calls if call.startswith("start ")]


async def has_note(setup: ControlSetup, job_id: str, kind: str) -> bool:
    return any(event.data.get("kind") == kind for event in await setup.store.events(job_id))


async def test_a_new_controller_completes_or_cleans_up_the_work_of_a_dead_one(setup: ControlSetup) -> None:
    async with controlled(setup):
        ended = await setup.submit("ended", dp=1)
        await setup.supervisor(ended)
    setup.cluster.agents = {f"regroup-agent:{ended}:11111111", "regroup-agent:j-other:11111111"}
    await setup.cluster.create_reservation(
        Reservation("regroup-reservation:j-ended:11111111:99", ended, TWO_NODES[0].id, 1, "cpu", 1)
    )
    supervisor = setup.cluster.supervisors[supervisor_name(ended)]
    await supervisor.state("RUNNING", "first_step")
    await supervisor.state("SUCCEEDED", "completed")
    async with controlled(setup):
        await setup.until_state(ended, JobState.SUCCEEDED)
        await eventually(lambda: setup.cluster.held == {} and setup.cluster.supervisors == {})
        assert {job_id_of(name) for name in setup.cluster.agents} == {"j-other"}, (
            "the controller ignores jobs of other databases"
        )


async def test_leftover_reservations_of_a_live_job_are_released_by_name(setup: ControlSetup) -> None:
    async with controlled(setup):
        job_id = await setup.submit(dp=1)
        await setup.supervisor(job_id)
    mine = set(setup.cluster.held)
    stray = Reservation(f"regroup-reservation:{job_id}:22222222:99", job_id, TWO_NODES[1].id, 1, "cpu", 1)
    await setup.cluster.create_reservation(stray)
    async with controlled(setup):
        await eventually(lambda: set(setup.cluster.held) == mine)


async def test_a_lost_supervisor_is_restarted_or_the_job_is_requeued(setup: ControlSetup) -> None:
    async with controlled(setup):
        job_id = await setup.submit()
        await setup.supervisor(job_id)
        await setup.cluster.kill_actor(supervisor_name(job_id))
        await eventually(lambda: supervisor_name(job_id) in setup.cluster.supervisors)
        assert (await setup.store.job(job_id)).state is JobState.STARTING

        setup.cluster.held.clear()
        await setup.cluster.kill_actor(supervisor_name(job_id))
        await setup.until(job_id, lambda job: job.version > 4)
        states = [event.data["to"] for event in await setup.store.events(job_id) if event.type == "state"]
        assert states[:4] == ["QUEUED", "PLACING", "STARTING", "QUEUED"]
        await setup.supervisor(job_id)


async def test_a_lost_cluster_is_reported_and_survived(setup: ControlSetup) -> None:
    async with controlled(setup) as controller:
        job_id = await setup.submit()
        supervisor = await setup.supervisor(job_id)
        waiting = await setup.submit("waiting", dp=1)
        setup.cluster.reachable = False
        await supervisor.emit("note", kind="wakes the poll that was open")
        await setup.until(job_id, lambda job: any(c.type == "SupervisorResponsive" for c in job.conditions))
        job = await setup.until(waiting, lambda job: any(c.reason == "cluster_unavailable" for c in job.conditions))
        assert job.state is JobState.QUEUED
        with pytest.raises(UnavailableError, match="does not answer"):
            await controller.check()
        setup.cluster.reachable = True
        await setup.until(job_id, lambda job: job.conditions == ())
        await eventually(lambda: checked(controller))


async def test_goodput_is_updated_while_a_job_emits_no_progress(
    setup: ControlSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync_pace, "_LEAST_ACCOUNT_S", 0.0)
    async with controlled(setup):
        job_id = await setup.submit()
        supervisor = await setup.supervisor(job_id)
        await supervisor.state("RUNNING", "first_step")
        first = (await setup.until(job_id, lambda job: job.goodput is not None)).goodput
        await supervisor.emit("note", kind="has no effect on goodput")
        await setup.until(job_id, lambda job: job.goodput is not None and first is not None and job.goodput > first)


async def test_an_internal_error_is_a_condition_of_the_job_until_it_is_resolved(
    setup: ControlSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(job_id: str, request: SyncRequest) -> SyncReply:
        raise RuntimeError("internal fault")

    async with controlled(setup):
        job_id = await setup.submit()
        supervisor = await setup.supervisor(job_id)
        with monkeypatch.context() as patched:
            patched.setattr(setup.cluster, "sync", fail)
            await supervisor.emit("note", kind="wakes the poll that was open")
            job = await setup.until(job_id, lambda job: any(c.type == "PlatformFault" for c in job.conditions))
            assert "RuntimeError: internal fault" in job.conditions[0].message
        await supervisor.state("RUNNING", "first_step")
        await setup.until(job_id, lambda job: job.state is JobState.RUNNING and job.conditions == ())


async def checked(controller: Controller) -> bool:
    try:
        return await controller.check() == "leads"
    except UnavailableError:
        return False


async def test_time_limits_end_queued_and_running_jobs(setup: ControlSetup) -> None:
    async with controlled(setup):
        running = await setup.submit("running", dp=4, max_duration="1s")
        supervisor = await setup.supervisor(running)
        queued = await setup.submit("queued", dp=1, max_queue_time="1s")
        job = await setup.until_state(queued, JobState.FAILED)
        assert job.reason == Reason.MAX_QUEUE_TIME and "CPU" in job.message
        end = await asyncio.wait_for(supervisor.wait_for_intent("end"), 5)
        assert end["reason"] == "max_duration"


async def test_of_two_controllers_one_leads_and_the_other_takes_over(setup: ControlSetup) -> None:
    async with controlled(setup) as first:
        await eventually(lambda: checked(first))
        # On SQLite, a new controller assumes that it is alone and acquires the lease. The first one must notice.
        async with controlled(setup) as second:
            await eventually(lambda: checked(second))
            job_id = await setup.submit()
            await setup.supervisor(job_id)
            assert started(setup) == [supervisor_name(job_id)]


async def test_metrics_are_rebuilt_from_the_database(setup: ControlSetup) -> None:
    async with controlled(setup):
        job_id = await setup.submit()
        supervisor = await setup.supervisor(job_id)
        place = {"layout": {"dp_shard": 4}, "world_size": 4, "ranks": [], "restore": {"source": "none"}, "cause": ""}
        await supervisor.emit("generation", number=1, start_step=0, **place)
        step = {"duration_s": 0.5, "loss": 2.5, "tokens": 64, "samples": 4, "samples_hash": 1}
        await supervisor.emit("step", step=1, **step)
        await supervisor.state("RUNNING", "first_step")
        incident = {
            "cause": "rank_exit",
            "reason": "rank_exit",
            "recovery_action": "respawn",
            "steps_lost": 0,
            "durations": {"total": 0.7},
        }
        await supervisor.emit("incident", id="i1", **incident)
        await setup.until(job_id, lambda job: job.step == 1)
        await eventually(lambda: has_incident(setup, job_id))
        metrics = Metrics(setup.store, rule_of(setup.settings))
        text = (await metrics.render()).decode()
        assert f'regroup_job_loss{{job="gpt",job_id="{job_id}",project="default"}} 2.5' in text
        assert 'regroup_jobs{state="RUNNING"} 1.0' in text
        assert 'regroup_incidents_total{cause="rank_exit"} 1.0' in text
        assert 'regroup_recovery_seconds_bucket{le="1.0",phase="total"} 1.0' in text
        assert "regroup_queue_wait_seconds_count 1.0" in text
        assert 'regroup_device_seconds_total{class="productive",device="cpu"}' in text
        await supervisor.state("SUCCEEDED", "completed")
        await setup.until_state(job_id, JobState.SUCCEEDED)
        await eventually(lambda: not setup.cluster.held)
    cached, fresh = await metrics.render(), await Metrics(setup.store, rule_of(setup.settings)).render()
    assert cached == fresh, "cached and recomputed metrics are equal"
    assert "regroup_job_loss{" not in cached.decode()


async def has_incident(setup: ControlSetup, job_id: str) -> bool:
    return bool(await setup.store.incidents(job_id))


async def test_records_of_a_job_that_was_cancelled_in_the_queue_are_deleted(setup: ControlSetup) -> None:
    object.__setattr__(setup.settings, "reap_interval_s", 0.05)
    cancelled, waiting = await setup.submit("cancelled", dp=4), await setup.submit("waiting", dp=8)
    await setup.store.cancel(cancelled, now=time.time(), author=Author("test"))
    setup.cluster.recorded = {cancelled, waiting, "j-of-another-database"}  # both ran before
    async with controlled(setup):
        await eventually(lambda: cancelled in setup.cluster.forgotten)
        await setup.until(waiting, lambda job: bool(job.conditions))
    assert setup.cluster.recorded == {waiting, "j-of-another-database"}
