"""Nodes prove with a file that they share durable storage: real agents' calls on real folders."""

from pathlib import Path

import pytest

from regroup.workers.agent.agent import NodeAgent
from regroup.workers.contract.agent_api import AgentFailedError
from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.contract.agent_records import AgentErrorKind
from regroup.workers.contract.messages import to_json


def agent(node: str, storage: Path) -> NodeAgent:
    uri = f"file://{storage}"
    return NodeAgent(to_json(AgentConfig("j", "t", node, node, "127.0.0.1", "s", uri, f"{uri}/datasets")))


async def test_only_nodes_with_the_same_storage_see_the_proof(tmp_path: Path) -> None:
    writer, reader = agent("n1", tmp_path / "shared"), agent("n2", tmp_path / "shared")
    other = agent("n3", tmp_path / "own")
    assert not await writer.check_storage("j-0")
    await writer.write_storage_proof("j-0")
    assert await writer.check_storage("j-0") and await reader.check_storage("j-0")
    assert not await other.check_storage("j-0")
    assert not await reader.check_storage("j-1"), "another start of the job needs a proof of its own"
    assert [path.name for path in (tmp_path / "shared").iterdir()] == [".regroup-shared-j-0"]


async def test_storage_that_does_not_answer_is_not_a_missing_proof(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(AgentFailedError) as raised:
        await agent("n1", tmp_path / "file" / "storage").check_storage("j-0")
    assert raised.value.failure.kind is AgentErrorKind.STORAGE and raised.value.failure.node_name == "n1"
