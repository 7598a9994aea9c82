"""The loss of Ray under a job: the controller records it, because the supervisor is lost, too."""

import dataclasses
import time

from regroup.service.controller.cluster_loss import cluster_loss, describe_cluster_loss
from regroup.service.domain.states import JobState, Reason
from regroup.service.policy.lost_time import GenerationProgress
from regroup.service.ports.cluster import supervisor_name
from regroup.service.store.rows.records import Generation
from tests.service.controller.test_controller import TWO_NODES, ControlSetup, controlled, setup
from tests.support.inputs.job_rows import JOB

__all__ = ["setup"]
RANKS = [{"rank": n, "node_id": node.id, "node_name": node.name, "address": "h", "local_rank": 0, "device": 0}
         for n, node in enumerate(TWO_NODES)]  # fmt: skip
FORMED = Generation(3, {"dp_shard": 2}, 2, RANKS, 40, {}, "rank_exit", 1000.0)


def test_the_fault_is_dated_to_the_last_sign_of_life() -> None:
    job = dataclasses.replace(JOB, step=90, reported_at=1100.0)
    progress = [GenerationProgress(3, 1000.0, 1010.0, 1120.0)]
    lost = [node.id for node in TWO_NODES]
    incident = cluster_loss(job, FORMED, progress, "Ray failed", seen_s=1200.0, dead_s=1203.0, lost=lost)
    assert incident.times == {"fault_s": 1120.0, "seen_s": 1200.0, "dead_s": 1203.0}
    assert incident.durations == {"detect": 80.0, "teardown": 3.0}
    assert (incident.reason, incident.generation, incident.at_step) == (Reason.CLUSTER_LOST, 3, 90)
    assert incident.evidence_missing == dict.fromkeys(("local-1", "local-2"), "the cluster was lost")
    silent = cluster_loss(job, FORMED, [GenerationProgress(3, 1000.0)], "", seen_s=1050.0, dead_s=0.0, lost=lost)
    assert silent.times == {"fault_s": 1050.0, "seen_s": 1050.0, "dead_s": 1050.0}, "clocks of two machines"


def test_the_message_names_the_nodes_and_no_object_of_ray() -> None:
    message = describe_cluster_loss(FORMED, [TWO_NODES[1].id])
    assert message == "Ray failed: the supervisor of the job and its devices on local-2 are gone"


async def test_a_lost_cluster_is_an_incident_of_the_job_and_its_next_supervisor_gets_it(setup: ControlSetup) -> None:
    async with controlled(setup):
        job_id = await setup.submit()
        first = await setup.supervisor(job_id)
        started = {"number": 1, "layout": {"dp_shard": 4}, "world_size": 4, "ranks": RANKS, "start_step": 0}
        await first.emit("generation", **started)
        await first.state("RUNNING", "first_step")
        row = {"duration_s": 0.1, "loss": 1.0, "tokens": 1, "samples": 8, "samples_hash": 0}
        for step in (1, 2, 3):
            await first.emit("step", key=f"step:1:{step}", step=step, **row)
        await setup.until(job_id, lambda job: job.step == 3 and job.state is JobState.RUNNING)

        setup.cluster.held.clear()
        await setup.cluster.kill_actor(supervisor_name(job_id))
        await setup.until(job_id, lambda job: job.state is JobState.STARTING)
        (incident,) = await setup.store.incidents(job_id)
        assert (incident.data["reason"], incident.data["at_step"], incident.data["generation"]) == (
            "cluster_lost",
            3,
            1,
        )
        assert incident.data["times"]["fault_s"] <= time.time() and incident.data["durations"]["detect"] >= 0
        assert "local-1, local-2" in incident.cause
        second = await setup.supervisor(job_id)
        assert second.payload["incidents"] == [incident.data] and second.payload["generations"] == [(1, 0)]

        setup.cluster.held.clear()
        await setup.cluster.kill_actor(supervisor_name(job_id))
        await setup.until(job_id, lambda job: job.state is JobState.QUEUED or job.version > 14)
        assert len(await setup.store.incidents(job_id)) == 1, "it had not trained since"
