"""Heartbeats of an agent reach the supervisor that sent its token, and other datagrams do not count."""

import asyncio
import socket

from regroup.service.supervisor.gang.liveness import HeartbeatListener
from regroup.workers.agent.heartbeat_sender import HeartbeatSender
from regroup.workers.contract.heartbeat import Listener

HOST = "127.0.0.1"


class Receiver:
    """Records the nodes of received heartbeats."""

    def __init__(self) -> None:
        self.nodes: list[str] = []
        self._more = asyncio.Event()

    def receive(self, node_id: str) -> None:
        self.nodes.append(node_id)
        self._more.set()

    async def wait_for(self, times: int) -> None:
        async with asyncio.timeout(10):
            while len(self.nodes) < times:
                self._more.clear()
                await self._more.wait()


async def test_heartbeats_go_to_the_current_listener() -> None:
    receiver, other = Receiver(), Receiver()
    first, second = HeartbeatListener(receiver.receive), HeartbeatListener(other.receive)
    await first.listen(HOST)
    await second.listen(HOST)
    assert first.listener is not None and second.listener is not None
    sender = HeartbeatSender()
    sending = asyncio.create_task(sender.send())
    try:
        sender.set_listener("node a", None)
        sender.set_listener("node a", first.listener.to_json())
        await receiver.wait_for(2)
        sender.set_listener("node a", second.listener.to_json())
        await other.wait_for(2)
        assert set(receiver.nodes) | set(other.nodes) == {"node a"}
    finally:
        sending.cancel()
        sender.close()
        first.close()
        second.close()


async def test_a_datagram_without_the_token_does_not_count() -> None:
    receiver = Receiver()
    listener = HeartbeatListener(receiver.receive)
    await listener.listen(HOST)
    address = listener.listener
    assert address is not None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        for data in (
            b"",
            b"\xff" * 60_000,
            Listener(HOST, address.port, "guessed").datagram("b"),
            address.datagram("a"),
        ):
            stranger.sendto(data, (HOST, address.port))
        await receiver.wait_for(1)
    assert receiver.nodes == ["a"]
    listener.close()


async def test_there_is_no_listener_if_no_port_is_free() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind((HOST, 0))
        listener = HeartbeatListener(lambda _: None)
        await listener.listen(HOST, [taken.getsockname()[1]])
        assert listener.listener is None
    listener.close()


async def test_a_listener_uses_a_free_port_of_the_range() -> None:
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free,
    ):
        for sock in (taken, free):
            sock.bind((HOST, 0))
        ports = [taken.getsockname()[1], free.getsockname()[1]]
        free.close()
        listener = HeartbeatListener(lambda _: None)
        await listener.listen(HOST, ports)
        assert listener.listener is not None and listener.listener.port == ports[1]
        listener.close()


async def test_heartbeats_resume_after_a_supervisor_restarts() -> None:
    """Check that an agent continues after a refused datagram: a dead supervisor leaves its address behind."""
    receiver = Receiver()
    first, second = HeartbeatListener(receiver.receive), HeartbeatListener(receiver.receive)
    await first.listen(HOST)
    address = first.listener
    assert address is not None
    first.close()
    sender = HeartbeatSender()
    sender.set_listener("a", address.to_json())
    sending = asyncio.create_task(sender.send())
    await asyncio.sleep(0)  # the first datagram is sent and refused
    await second.listen(HOST, [address.port])
    second.listener = address
    await receiver.wait_for(1)
    sending.cancel()
    sender.close()
    second.close()
