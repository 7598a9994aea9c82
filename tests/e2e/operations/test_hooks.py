"""Notifications of a real job: all of them arrive, signed, although the server is killed while it sends one."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.servers.hook_receiver import HookReceiver, running_receiver
from tests.support.servers.regroup_server import Server, eventually

Spec = Callable[..., dict[str, Any]]


class ThreadedReceiver:
    """A receiver in a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._ready, self._end = threading.Event(), asyncio.Event()
        self._thread = threading.Thread(target=self.loop.run_until_complete, args=(self._serve(),))
        self._thread.start()
        assert self._ready.wait(20), "the receiver did not start"

    async def _serve(self) -> None:
        async with running_receiver() as self.receiver:
            self._ready.set()
            await self._end.wait()

    def call(self, function: Callable[[], object]) -> None:
        """Call a function in the thread."""
        self.loop.call_soon_threadsafe(function)

    def stop(self) -> None:
        self.call(self._end.set)
        self._thread.join(20)
        self.loop.close()


@pytest.fixture
def threaded() -> Iterator[ThreadedReceiver]:
    running = ThreadedReceiver()
    yield running
    running.stop()


@pytest.mark.slow
def test_kill_9_of_the_server_loses_no_notification(served: Server, spec: Spec, threaded: ThreadedReceiver) -> None:
    receiver: HookReceiver = threaded.receiver
    hook = served.client.create_hook("default", "ci", url=receiver.url(), events=["state"], labels={"hooked": "yes"})
    try:
        threaded.call(receiver.gate.clear)  # no answer: the server is killed during the attempts
        job = served.client.submit(spec("hooked", steps=4, labels={"hooked": "yes"}))
        eventually(lambda: receiver.received)
        served.kill()
        threaded.call(receiver.gate.set)
        served.start()
        assert served.client.wait(job.id, timeout_s=240).state == "SUCCEEDED"
        events = [event for event in served.client.events(job.id) if event.type == "state"]
        expected = {f"{job.id}-{event.number}" for event in events}
        eventually(lambda: {each.headers["webhook-id"] for each in list(receiver.received)} == expected, 120)
        eventually(
            lambda: len(list(served.client.deliveries("default", hook.id, state="delivered"))) == len(events), 120
        )
        assert all(each.is_signed_with(str(hook.secret)) for each in list(receiver.received))
        repeated = [each.headers["webhook-id"] for each in receiver.received]
        assert len(repeated) > len(expected), "the interrupted attempt was repeated, with the same id"
        states = {each.json["data"]["event"]["to"] for each in receiver.received}
        assert {"QUEUED", "RUNNING", "SUCCEEDED"} <= states
    finally:
        served.client.delete_hook("default", hook.id)


def count_delivered(served: Server, hook_id: str) -> int:
    return len(list(served.client.deliveries("default", hook_id, state="delivered")))
