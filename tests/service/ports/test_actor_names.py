"""Names of actors in Ray, and the names that they stand for."""

import pytest

from regroup.service.ports.actor_names import (
    name_of,
    node_of_standby,
    shown_agent_name,
    shown_standby_name,
    shown_supervisor_name,
)
from regroup.service.ports.cluster import agent_name, job_id_of, supervisor_name

NODE = "0123456789abcdef"


@pytest.mark.parametrize("node_name", ["local-1", "10.0.0.1", "fd00::1", "pool/a"])
def test_the_shown_names_are_readable_and_stand_for_one_actor(node_name: str) -> None:
    supervisor, agent = shown_supervisor_name("j1", "gpt"), shown_agent_name("j1", "gpt", NODE, node_name)
    assert (supervisor, agent) == ("regroup-supervisor:gpt:j1", f"regroup-agent:gpt:{node_name}:j1:01234567")
    assert (name_of(supervisor), name_of(agent)) == (supervisor_name("j1"), agent_name("j1", NODE))
    assert job_id_of(name_of(supervisor)) == job_id_of(name_of(agent)) == "j1"


def test_names_without_labels_stand_for_themselves() -> None:
    for name in (supervisor_name("j1"), agent_name("j1", NODE)):
        assert name_of(name) == name


def test_a_standby_has_the_name_of_its_node_and_of_no_job() -> None:
    standby = shown_standby_name(NODE, "pool/a", "1a2b")
    assert (standby, name_of(standby)) == ("regroup-node:pool-a:01234567:1a2b", "")
    assert node_of_standby(standby) == NODE[:8]
    assert node_of_standby(shown_agent_name("j1", "gpt", NODE, "n")) == node_of_standby("other") == ""


@pytest.mark.parametrize("name", ["", "regroup-agent", "regroup-agent:x", "regroup-supervisor", "driver:a:b"])
def test_other_actors_stand_for_nothing(name: str) -> None:
    assert name_of(name) == ""
