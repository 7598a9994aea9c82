"""Addresses at which no Ray cluster answers. An address with one is in tests/e2e/cluster."""

import asyncio
import os
import socket
import time
from pathlib import Path

import pytest

from regroup.service.domain.errors import SettingError, UnavailableError
from regroup.service.ray_adapter.reach import check_reachable


def children() -> set[str]:
    """Return the ids of this process's children."""
    tasks = Path(f"/proc/{os.getpid()}/task").iterdir()
    return {child for task in tasks for child in (task / "children").read_text().split()}


async def test_an_address_where_nothing_listens_is_refused_after_the_wait() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
        began_s = time.monotonic()
        expected = rf"no Ray cluster answers at {address} within 1 s \(.*refused.*\); correct --ray-address"
        with pytest.raises(UnavailableError, match=expected):
            await check_reachable(address, wait_s=1.0)
        assert time.monotonic() - began_s < 10


async def test_a_port_where_something_else_listens_is_refused_and_its_check_is_ended() -> None:
    before = children()
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(UnavailableError, match=f"the process at {address} does not answer as a Ray cluster"):
            await check_reachable(address, answer_s=3.0)
        assert children() <= before


async def test_a_check_that_is_cancelled_leaves_no_process() -> None:
    before = children()
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listener:
        checking = asyncio.create_task(check_reachable(f"127.0.0.1:{listener.getsockname()[1]}"))
        async with asyncio.timeout(20):
            while children() <= before:  # noqa: ASYNC110  # no event: another process starts
                await asyncio.sleep(0.01)
        checking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await checking
        assert children() <= before


@pytest.mark.parametrize("address", ["", "host", "host:", ":6379", "host:port", "host:0", "host:65536"])
async def test_another_text_than_host_and_port_is_an_invalid_setting(address: str) -> None:
    with pytest.raises(SettingError, match="is not HOST:PORT, for example"):
        await check_reachable(address)
