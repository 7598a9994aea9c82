"""Nodes, demands and job sizes for tests of the queue."""

from regroup.service.domain.layout import Layout
from regroup.service.domain.topology import ANY_KIND, IMAGE_LABEL, Node, NodeKind
from regroup.service.policy.placement.place import Demand
from regroup.service.policy.scheduling.entries import Size


def node(name: str, devices: int = 8, free: int | None = None, image: str = "") -> Node:
    left, labels = devices if free is None else free, {IMAGE_LABEL: image} if image else {}
    return Node(name, name, "::1", labels=labels, cpus=devices, free_cpus=left, gpus=devices, free_gpus=left)


def demand(ranks: int, segment: int = 1, device: str = "cuda", kind: NodeKind = ANY_KIND) -> Demand:
    return Demand(ranks, segment, device, 1, kind=kind)


def sizes(*ranks: int, segment: int = 1, device: str = "cuda", kind: NodeKind = ANY_KIND) -> tuple[Size, ...]:
    return tuple(Size(Layout(dp_shard=count), demand(count, segment, device, kind)) for count in ranks)
