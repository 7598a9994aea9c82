"""The names under which Ray shows actors. No cluster is necessary for names that were learned."""

from regroup.service.ports.actor_names import shown_supervisor_name
from regroup.service.ports.cluster import agent_name, supervisor_name
from regroup.service.ray_adapter.actor_lookup import ActorLookup


def test_the_names_of_an_ended_job_are_forgotten() -> None:
    lookup = ActorLookup()
    for job_id in ("j-1", "j-2"):
        lookup.learn(supervisor_name(job_id), shown_supervisor_name(job_id, "gpt"))
        lookup.learn(agent_name(job_id, "1" * 40), "regroup-agent")
    lookup.forget_job("j-1")
    left = set(lookup._shown)  # pyright: ignore[reportPrivateUsage]
    assert left == {supervisor_name("j-2"), agent_name("j-2", "1" * 40)}
