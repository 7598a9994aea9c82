"""The check of a link."""

import time

import pytest

from regroup.workers.agent.transfer.echo import echo
from regroup.workers.agent.transfer.shard_store import TransferError
from regroup.workers.contract.agent_records import TransferAddress
from regroup.workers.os.node_facts import bind_listener
from tests.workers.agent.transfer.held_shards import agents


async def test_an_agent_returns_what_it_was_sent() -> None:
    async with agents() as (agent,):
        await echo(agent.address)
        with pytest.raises(TransferError, match="invalid proof"):
            await echo(TransferAddress(agent.address.host, agent.address.port, "0" * 32))
    with pytest.raises(TransferError, match="ConnectionRefusedError"):
        await echo(agent.address)


async def test_a_silent_agent_is_an_error() -> None:
    with bind_listener("127.0.0.1", None) as silent:
        started = time.monotonic()
        with pytest.raises(TransferError, match="no echo from"):
            await echo(TransferAddress("127.0.0.1", silent.getsockname()[1], ""))
        assert time.monotonic() - started < 4
