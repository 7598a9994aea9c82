"""What the client asks of nodes."""

from abc import ABC, abstractmethod
from typing import Any, TypeVar
from urllib.parse import quote

from pydantic import BaseModel

from regroup.api.schemas.nodes import Node, NodeList
from regroup.api.schemas.topology import Topology

T = TypeVar("T", bound=BaseModel)


class NodeCalls(ABC):
    """A part of `Client`."""

    @abstractmethod
    def _call(self, model: type[T], method: str, path: str, **options: Any) -> T: ...

    def nodes(self) -> list[Node]:
        """Nodes that take ranks, with what is free, the jobs there, and why nothing new is placed on one."""
        return self._call(NodeList, "GET", "/v1/nodes").nodes

    def topology(self) -> Topology:
        """Where the nodes are, as placement sees it."""
        return self._call(Topology, "GET", "/v1/topology")

    def cordon(self, node: str, *, reason: str = "") -> Node:
        """Place nothing new on a node until it is uncordoned. What runs there runs on."""
        return self._call(Node, "POST", f"/v1/nodes/{quote(node, safe='')}/cordon", body={"reason": reason})

    def uncordon(self, node: str, *, reason: str = "") -> Node:
        """Trust a node again, whether it was cordoned or quarantined; what happened before is forgiven."""
        return self._call(Node, "POST", f"/v1/nodes/{quote(node, safe='')}/uncordon", body={"reason": reason})
