"""Ray's thread that prints error messages of the cluster, without its busy loop while the head is gone.

`ray._private.worker.listen_error_messages` polls in a loop. Without the head, each poll returns at once, and the thread
uses a whole core until the process ends.
"""

import threading
import time
from typing import Any, Protocol

from ray._private import worker as ray_worker

PAUSE_S = 1.0
"""Pause after a poll that returned nothing at once."""


class Subscriber(Protocol):
    """Ray's subscriber of error messages."""

    def subscribe(self) -> None: ...
    def poll(self, timeout: float | None = None) -> tuple[Any, Any]: ...
    def close(self) -> None: ...


class PatientSubscriber:
    """Passes calls to a subscriber, and pauses after a poll that returned nothing at once."""

    def __init__(self, subscriber: Subscriber, pause_s: float = PAUSE_S) -> None:
        self._subscriber, self._pause_s = subscriber, pause_s
        self._closed = threading.Event()

    def subscribe(self) -> None:
        """Begin to receive messages."""
        self._subscriber.subscribe()

    def poll(self, timeout: float | None = None) -> tuple[Any, Any]:
        """Return the key and the data of the next message; the data is None without one."""
        began_s = time.monotonic()
        found = self._subscriber.poll(timeout)
        if found[1] is None and time.monotonic() - began_s < self._pause_s:
            self._closed.wait(self._pause_s)
        return found

    def close(self) -> None:
        """End the subscription, and a pause."""
        self._closed.set()
        self._subscriber.close()


def slow_down_polls() -> None:
    """Make Ray's thread pause between polls that return nothing. Call it after `ray.init`."""
    worker: Any = ray_worker.global_worker
    worker.gcs_error_subscriber = PatientSubscriber(worker.gcs_error_subscriber)
