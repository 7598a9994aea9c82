"""Client methods to drain a node."""

import time
from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import Any, TypeVar

from pydantic import BaseModel

from regroup.api.schemas.drains import Drain

T = TypeVar("T", bound=BaseModel)
_POLL_S = 0.5


class DrainCalls(ABC):
    """A part of `Client`."""

    @abstractmethod
    def _call(self, model: type[T], method: str, path: str, **options: Any) -> T: ...

    @abstractmethod
    def _send(self, method: str, path: str, *, also: Collection[int] = ()) -> Any: ...

    def drain(self, node: str, *, deadline_s: float | str = 600.0, reason: str = "on request") -> Drain:
        """Drain a node. Its jobs move to other nodes, or save their next step and queue.

        Args:
            node: Name or id of the node.
            deadline_s: Time until the node goes away, in seconds or as a text such as `15m`.
            reason: Text for people, shown with every job that moves.
        """
        body = {"deadline_s": deadline_s, "reason": reason}
        return self._call(Drain, "POST", _path(node), body=body)

    def undrain(self, node: str) -> None:
        """End the drain of a node, so that it accepts ranks again."""
        self._send("DELETE", _path(node))

    def drain_status(self, node: str) -> Drain:
        """Return the drain of a node: its deadline and the jobs still on the node.

        Raises:
            ApiError: The node is not being drained.
        """
        return self._call(Drain, "GET", _path(node))

    def wait_for_drain(self, node: str) -> Drain:
        """Wait until a draining node is empty or its deadline has passed.

        After the deadline, `jobs` of the result names the jobs still on the node. A node that Ray drains may leave the
        cluster as soon as it is empty.
        """
        found = self.drain_status(node)
        while found.jobs and (found.deadline_at is None or time.time() < found.deadline_at):
            time.sleep(_POLL_S)
            answer = self._send("GET", _path(node), also=(404,))
            if answer.status_code == 404:
                return found.model_copy(update={"jobs": []})
            found = Drain.model_validate_json(answer.content)
        return found


def _path(node: str) -> str:
    return f"/v1/nodes/{node}/drain"
