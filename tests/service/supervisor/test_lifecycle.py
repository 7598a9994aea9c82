"""The lifecycle of a job in the supervisor, with in-memory agents and records instead of processes."""

import asyncio
import json
from itertools import count, pairwise
from typing import Any

import pytest

from regroup.service.supervisor import recovery
from regroup.service.supervisor.gang.liveness import Liveness
from regroup.service.supervisor.job_state.generations import GenerationLog
from regroup.workers.contract.messages import Exited, Failed, StepRow, to_json
from regroup.workers.contract.rank_error import ErrorClass, RankError
from tests.support.doubles.memory_records import Records
from tests.support.doubles.supervised_job import FakeNodes, life, outcomes, run
from tests.support.inputs.sync_records import intents


async def test_a_job_without_faults_succeeds() -> None:
    _, journal = await run(FakeNodes({}))
    assert [name for kind, name in await outcomes(journal) if kind == "state"] == ["STARTING", "RUNNING", "SUCCEEDED"]


async def test_a_dead_rank_is_one_incident_and_no_step_is_lost() -> None:
    _, journal = await run(FakeNodes({(1, 4): Exited(0, 1, -9, 3.0)}))
    events = await journal.since("", 0, 0)
    incident = [event.data for event in events if event.type == "incident"][-1]
    assert (incident["reason"], incident["recovery_action"], incident["steps_lost"]) == ("rank_exit", "respawn", 0)
    assert set(incident["durations"]) >= {"detect", "teardown", "decide", "form", "restore", "first_step", "total"}
    steps = [(event.generation, event.data["step"]) for event in events if event.type == "step"]
    assert steps == [(1, 1), (1, 2), (1, 3), (2, 4), (2, 5), (2, 6)]


async def test_an_incident_is_emitted_after_each_phase_of_the_recovery() -> None:
    _, journal = await run(FakeNodes({(1, 4): Exited(0, 1, -9, 3.0)}))
    events = await journal.since("", 0, 0)
    revisions = [event for event in events if event.type == "incident"]
    phases = ["dead_s", "decided_s", "formed_s", "restored_s", "first_step_s"]
    news = [[phase for phase in phases if phase in event.data["times"]] for event in revisions]
    assert [found for before, found in pairwise([[], *news]) if found != before] == [
        phases[: count + 1] for count in range(len(phases))
    ]
    assert len({event.key for event in revisions}) == len(revisions)


async def test_the_records_have_the_begin_and_the_end_of_an_incident() -> None:
    records = Records()
    await run(FakeNodes({(1, 4): Exited(0, 1, -9, 3.0)}), records)
    recorded = [json.loads(value)["data"]["times"] for key, value in records.data.items() if "/incident:" in key]
    assert set(recorded[0]) == {"fault_s", "seen_s"}, "recorded before the ranks are killed"
    assert set(recorded[1]) == {*recorded[0], "dead_s"}
    assert set(recorded[-1]) == {*recorded[1], "decided_s", "formed_s", "restored_s", "first_step_s"}


async def test_a_job_without_checkpoints_restarts_after_the_loss_of_an_agent() -> None:
    nodes = FakeNodes({(1, 4): "node-1"})
    _, journal = await run(nodes)
    assert ("node-1", "kill") in nodes.calls
    incident = [event.data for event in await journal.since("", 0, 0) if event.type == "incident"][-1]
    assert (incident["reason"], incident["recovery_action"], incident["steps_lost"]) == ("agent_lost", "disk", 3)


async def test_a_job_that_resumes_another_restarts_from_the_same_checkpoint() -> None:
    _, journal = await run(FakeNodes({(1, 4): "node-1"}), resume={"uri": "/other/step-2.gen-3", "step": 2})
    formed = [event.data for event in await journal.since("", 0, 0) if event.type == "generation"]
    assert [(item["start_step"], item["restore"]["uri"]) for item in formed] == [(2, "/other/step-2.gen-3")] * 2
    assert (await outcomes(journal))[-1] == ("state", "SUCCEEDED")


async def test_a_job_whose_checkpoint_to_resume_is_damaged_fails() -> None:
    nodes = FakeNodes({})
    nodes.damaged = {"/other/step-2.gen-3"}
    _, journal = await run(nodes, resume={"uri": "/other/step-2.gen-3", "step": 2})
    last = (await journal.since("", 0, 0))[-1]
    assert (last.data["state"], last.data["reason"]) == ("FAILED", "invalid_input")
    assert "/other/step-2.gen-3 is damaged" in last.data["message"]


async def test_a_damaged_checkpoint_is_reported_and_an_older_one_is_used() -> None:
    nodes = FakeNodes({})
    nodes.manifests = [{"uri": f"/s/step-{step}.gen-1", "generation": 1, "step": step} for step in (2, 4)]
    nodes.damaged = {"/s/step-4.gen-1"}
    _, journal = await run(nodes)
    events = await journal.since("", 0, 0)
    assert [event.data["start_step"] for event in events if event.type == "generation"] == [4, 2]
    incident = [event.data for event in events if event.type == "incident"][-1]
    assert (incident["reason"], incident["recovery_action"]) == ("io_error", "disk")
    (note,) = [event.data for event in events if event.data.get("kind") == "checkpoint_unusable"]
    assert "step-4.gen-1 is damaged" in note["message"]
    assert (await outcomes(journal))[-1] == ("state", "SUCCEEDED")


async def test_damage_that_a_rank_finds_excludes_the_checkpoint_as_well() -> None:
    error = RankError(ErrorClass.IO, "CheckpointDamagedError", "/s/step-4.gen-1 is damaged", "", 4, "restore", 3.0)
    nodes = FakeNodes({(1, 5): Failed(0, 1, error)})
    nodes.manifests = [{"uri": f"/s/step-{step}.gen-1", "generation": 1, "step": step} for step in (2, 4)]
    _, journal = await run(nodes)
    events = await journal.since("", 0, 0)
    assert [event.data["start_step"] for event in events if event.type == "generation"] == [4, 2]
    incident = [event.data for event in events if event.type == "incident"][-1]
    assert (incident["reason"], incident["recovery_action"]) == ("io_error", "disk")
    (note,) = [event.data for event in events if event.data.get("kind") == "checkpoint_unusable"]
    assert "step-4.gen-1 is damaged" in note["message"]
    assert (await outcomes(journal))[-1] == ("state", "SUCCEEDED")


async def test_a_job_whose_checkpoint_to_resume_is_damaged_inside_fails() -> None:
    uri = "/other/step-2.gen-3"
    error = RankError(ErrorClass.IO, "CheckpointDamagedError", f"{uri} is damaged", "", 2, "restore", 3.0)
    _, journal = await run(FakeNodes({(1, 3): Failed(0, 1, error)}), resume={"uri": uri, "step": 2})
    last = (await journal.since("", 0, 0))[-1]
    assert (last.data["state"], last.data["reason"]) == ("FAILED", "invalid_input")
    assert f"{uri} is damaged" in last.data["message"]


async def test_a_restore_is_retried_while_storage_is_unavailable() -> None:
    nodes = FakeNodes({})
    nodes.manifests = [{"uri": f"/s/step-{step}.gen-1", "generation": 1, "step": step} for step in (2, 4)]
    made, journal = life(nodes, Records())
    nodes.away = 1
    made._checkpoints.scanned = True
    made._checkpoints._merge_scan(nodes.manifests, set())
    await asyncio.wait_for(made.run(), 20)
    events = await journal.since("", 0, 0)
    assert [event.data["start_step"] for event in events if event.type == "generation"] == [4, 4]
    assert [event.data["reason"] for event in events if event.type == "incident"][-1] == "io_error"
    assert not [event for event in events if event.data.get("kind") == "checkpoint_unusable"]
    assert (await outcomes(journal))[-1] == ("state", "SUCCEEDED")


async def test_a_scan_is_retried_while_storage_is_unavailable() -> None:
    nodes = FakeNodes({})
    nodes.away = 2
    nodes.manifests = [{"uri": "/s/step-4.gen-1", "generation": 1, "step": 4}]
    _, journal = await run(nodes)
    events = await journal.since("", 0, 0)
    assert [event.data["start_step"] for event in events if event.type == "generation"] == [4]
    waits = [event.data["message"] for event in events if event.data.get("phase") == "storage"]
    assert len(waits) == 2 and "no route to storage (node n0)" in waits[0] and "traceback" not in waits[0]


async def test_a_job_whose_storage_stays_unavailable_fails_within_its_budget() -> None:
    nodes = FakeNodes({})
    nodes.away = 1000
    _, journal = await run(nodes)
    last = (await journal.since("", 0, 0))[-1]
    assert (last.data["state"], last.data["reason"]) == ("FAILED", "budget_exhausted")
    assert "recovery.budgets.io_error=2" in last.data["message"]


async def test_an_exception_in_user_code_fails_the_job_at_once() -> None:
    error = RankError(ErrorClass.USER, "ValueError", "bad", "Traceback …", 2, "forward", 3.0)
    nodes = FakeNodes({(1, 2): Failed(0, 1, error)})
    _, journal = await run(nodes)
    last = (await journal.since("", 0, 0))[-1]
    assert (last.data["state"], last.data["reason"]) == ("FAILED", "user_error")
    assert last.data["error"]["traceback"] == "Traceback …"


async def test_a_crash_loop_stops_within_its_budget() -> None:
    nodes = FakeNodes({(generation, 1): Exited(0, generation, -11, 3.0) for generation in range(1, 9)})
    _, journal = await run(nodes)
    last = (await journal.since("", 0, 0))[-1]
    assert (last.data["state"], last.data["reason"], last.generation) == ("FAILED", "budget_exhausted", 3)


async def test_a_missing_input_file_is_an_error_of_the_user() -> None:
    nodes = FakeNodes({})
    nodes.refuse = {"list_sources": "no such file /x"}
    _, journal = await run(nodes)
    last = (await journal.since("", 0, 0))[-1]
    assert (last.data["state"], last.data["reason"]) == ("FAILED", "invalid_input")
    assert "no such file /x (node n0)" in last.data["message"]


async def test_data_preparation_does_not_wait_for_an_unresponsive_node(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = FakeNodes({})
    nodes.stuck = "prepare_data"  # The tasks wait for a lost node.
    made, journal = life(nodes, Records())
    monkeypatch.setattr("regroup.service.supervisor.gang.liveness._POLL_S", 0.001)
    made.liveness = made._setup._liveness = Liveness(count().__next__)  # The clock advances one second per poll.
    await asyncio.wait_for(made.run(), 20)
    last = (await journal.since("", 0, 0))[-1]
    assert (last.data["state"], last.data["reason"]) == ("QUEUED", "requeued")
    assert "sent no heartbeat during data preparation" in last.data["message"]


async def test_a_supervisor_that_loses_the_generation_number_emits_nothing_more() -> None:
    records = Records()
    nodes = FakeNodes({})
    made, journal = life(nodes, records)
    await GenerationLog(records, "j").load()
    records.data["generation/j/00000001"] = b"{}"  # Another supervisor has just created it.
    made._generations.load = lambda: asyncio.sleep(0)  # type: ignore[method-assign]  # Loaded before that.
    await asyncio.wait_for(made.run(), 20)
    assert [name for _, name in await outcomes(journal)] == ["STARTING"]


async def test_a_job_can_be_cancelled_while_its_agents_start() -> None:
    nodes = FakeNodes({})
    made, journal = life(nodes, Records())
    made.set_intents(intents(cancel=True))
    await asyncio.wait_for(made.run(), 20)
    assert [name for _, name in await outcomes(journal)] == ["STARTING", "DRAINING", "CANCELLED"]


async def test_a_restarted_supervisor_adopts_a_complete_generation() -> None:
    records, nodes = Records(), FakeNodes({})
    made, _ = life(nodes, records)
    running = asyncio.create_task(made.run())
    while not made.status().step:  # noqa: ASYNC110  (a step sets no event)
        await asyncio.sleep(0)
    running.cancel()
    again, journal = life(nodes, records)
    task = asyncio.create_task(again.run())
    await asyncio.wait_for(task, 20)
    assert [event.generation for event in await journal.since("", 0, 0) if event.type == "generation"] == [1]
    assert (await outcomes(journal))[-1] == ("state", "SUCCEEDED")


async def test_a_supervisor_restarted_during_a_recovery_completes_it() -> None:
    records, nodes = Records(), FakeNodes({(1, 4): Exited(0, 1, -9, 3.0)})
    made, _ = life(nodes, records)
    stop = asyncio.Event()

    def die(node: str) -> Any:
        stop.set()
        raise asyncio.CancelledError

    nodes._list_shards = die  # type: ignore[method-assign]
    running = asyncio.create_task(made.run())
    await asyncio.wait_for(stop.wait(), 20)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    del nodes._list_shards  # type: ignore[method-assign]
    again, journal = life(nodes, records)
    await asyncio.wait_for(again.run(), 20)
    events = await journal.since("", 0, 0)
    assert [event.generation for event in events if event.type == "generation"] == [1, 2]
    incidents = {event.data["id"]: event.data for event in events if event.type == "incident"}
    assert len(incidents) == 1 and all("first_step_s" in data["times"] for data in incidents.values())
    assert (await outcomes(journal))[-1] == ("state", "SUCCEEDED")


@pytest.mark.parametrize("field", ["boot_id", "acked"])
async def test_events_without_an_acknowledgement_are_sent_again(field: str) -> None:
    _, journal = await run(FakeNodes({}))
    first = await journal.since("", 0, 0)
    half = first[len(first) // 2].seq
    again = await journal.since(journal.boot_id if field == "acked" else "another supervisor", half, 0)
    assert [event.seq for event in again] == [event.seq for event in first if field == "boot_id" or event.seq > half]


def test_messages_survive_the_wire() -> None:
    message = StepRow(1, 2, 3.0, 0.1, 1.0, 8, 4, 2**63, 0.1, 1.0)
    assert to_json(message)["samples_hash"] == 2**63


def _with_unscanned_storage(made: Any, end: Any) -> Any:
    """Wrap `end` as for a restarted supervisor that has not scanned storage yet."""

    def ended(node: str, generation: int) -> Any:
        made._checkpoints.scanned = False
        return end(node, generation)

    return ended


async def test_a_restore_from_memory_does_not_wait_for_unavailable_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "_SCAN_SOON_S", 0.05)
    for trouble in ("hangs", "is gone"):
        nodes = FakeNodes({(1, 4): Exited(0, 1, -9, 3.0)})
        made, journal = life(nodes, Records())
        made._checkpoints.scanned = True  # Storage is empty when the job starts.
        nodes._kill_ranks = _with_unscanned_storage(made, nodes._kill_ranks)  # type: ignore[method-assign]
        if trouble == "hangs":
            nodes.stuck = "scan_checkpoints"
        nodes.away = 1000
        await asyncio.wait_for(made.run(), 20)
        events = await journal.since("", 0, 0)
        (incident,) = {event.data["id"]: event.data for event in events if event.type == "incident"}.values()
        assert (incident["recovery_action"], incident["steps_lost"]) == ("respawn", 0)
        messages = [event.data["message"] for event in events if event.data.get("kind") == "storage_unavailable"]
        assert messages == [
            "durable storage did not respond; step 3 is restored from memory without a check for newer checkpoints"
        ]
        assert (await outcomes(journal))[-1] == ("state", "SUCCEEDED")
