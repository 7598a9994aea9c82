"""Datagrams of an agent reach the supervisor whose word it was told, and nobody else's count."""

import asyncio
import socket

from regroup.service.supervisor.liveness import HeartbeatListener as Heard
from regroup.workers.agent.heartbeat_sender import HeartbeatSender
from regroup.workers.contract.heartbeat import Listener

HOST = "127.0.0.1"


class Ear:
    """Who was heard of."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self._more = asyncio.Event()

    def hear(self, node_id: str) -> None:
        self.heard.append(node_id)
        self._more.set()

    async def until(self, times: int) -> None:
        async with asyncio.timeout(10):
            while len(self.heard) < times:
                self._more.clear()
                await self._more.wait()


async def test_signs_arrive_until_the_aim_is_another() -> None:
    heard, then = Ear(), Ear()
    first, second = Heard(heard.hear), Heard(then.hear)
    await first.listen(HOST)
    await second.listen(HOST)
    assert first.listener is not None and second.listener is not None
    sender = HeartbeatSender()
    sending = asyncio.create_task(sender.send())
    try:
        sender.aim("node a", None)
        sender.aim("node a", first.listener.to_json())
        await heard.until(2)
        sender.aim("node a", second.listener.to_json())
        await then.until(2)
        assert set(heard.heard) | set(then.heard) == {"node a"}
    finally:
        sending.cancel()
        sender.close()
        first.close()
        second.close()


async def test_a_word_that_was_not_told_counts_for_nothing() -> None:
    heard = Ear()
    listens = Heard(heard.hear)
    await listens.listen(HOST)
    true = listens.listener
    assert true is not None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as anybody:
        for data in (b"", b"\xff" * 60_000, Listener(HOST, true.port, "guessed").datagram("b"), true.datagram("a")):
            anybody.sendto(data, (HOST, true.port))
        await heard.until(1)
    assert heard.heard == ["a"]
    listens.close()


async def test_nobody_listens_where_no_port_is_free() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind((HOST, 0))
        listens = Heard(lambda _: None)
        await listens.listen(HOST, [taken.getsockname()[1]])
        assert listens.listener is None
    listens.close()


async def test_a_port_of_the_range_is_taken() -> None:
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free,
    ):
        for sock in (taken, free):
            sock.bind((HOST, 0))
        ports = [taken.getsockname()[1], free.getsockname()[1]]
        free.close()
        listens = Heard(lambda _: None)
        await listens.listen(HOST, ports)
        assert listens.listener is not None and listens.listener.port == ports[1]
        listens.close()


async def test_a_supervisor_that_comes_back_where_nobody_was_is_heard() -> None:
    """The address of one that died is left behind: an agent must not stop at the first refusal."""
    heard = Ear()
    listens, again = Heard(heard.hear), Heard(heard.hear)
    await listens.listen(HOST)
    left = listens.listener
    assert left is not None
    listens.close()
    sender = HeartbeatSender()
    sender.aim("a", left.to_json())
    sending = asyncio.create_task(sender.send())
    await asyncio.sleep(0)  # the first is sent, and refused
    await again.listen(HOST, [left.port])
    again.listener = left
    await heard.until(1)
    sending.cancel()
    sender.close()
    again.close()
