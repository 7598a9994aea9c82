"""Client methods for node drains."""

import time
from collections.abc import Callable
from typing import Any

from regroup.api.schemas.drains import Drain

_POLL_S = 0.5


class Drains:
    """The client's calls: `client.drains`."""

    def __init__(self, call: Callable[..., Any], send: Callable[..., Any]) -> None:
        self._call, self._send = call, send

    def start(self, node: str, *, deadline_s: float | str = 600.0, reason: str = "on request") -> Drain:
        """Have a node, by name or id, empty within `deadline_s`: jobs go on elsewhere from where they stand."""
        body = {"deadline_s": deadline_s, "reason": reason}
        return self._call(Drain, "POST", _path(node), body=body)

    def get(self, node: str) -> Drain:
        """How far it is; raises ApiError if the node is not drained."""
        return self._call(Drain, "GET", _path(node))

    def undo(self, node: str) -> None:
        """Let the node be used again."""
        self._send("DELETE", _path(node))

    def wait(self, node: str) -> Drain:
        """The drain once nobody is left on the node, or its deadline has passed: then `jobs` says who still is. A node
        that Ray drains may end as soon as it is empty."""
        found = self.get(node)
        while found.jobs and (found.deadline_at is None or time.time() < found.deadline_at):
            time.sleep(_POLL_S)
            answer = self._send("GET", _path(node), also=(404,))
            if answer.status_code == 404:
                return found.model_copy(update={"jobs": []})
            found = Drain.model_validate_json(answer.content)
        return found


def _path(node: str) -> str:
    return f"/v1/nodes/{node}/drain"
