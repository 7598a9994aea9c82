"""Reservations as detached placement groups of one bundle, and the records of their names. All calls block.

Ray lists removed placement groups, too, for the life of the cluster: a list would take longer with every job. So a
record in the key-value store names each reservation from before its creation until after its removal.
"""

# pyright: reportPrivateUsage=false
# The key-value store has no public face in Ray 2.60.

import socket
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import ray
from ray.experimental import internal_kv
from ray.util import placement_group_table
from ray.util.placement_group import PlacementGroup, get_placement_group, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from regroup.service.ports.cluster import NAMESPACE, Reservation, ReservationRefusedError
from regroup.service.ray_adapter.nodes import name_of_node
from regroup.workers.os import nvml

_KV = NAMESPACE.encode()
_PREFIX = "reservation/"
_NAME = "regroup-reservation:"
_NODE_ID_LABEL = "ray.io/node-id"
_READY_S = 20.0
_DEVICES_S = 30.0
LONGEST_S = _READY_S + 1.5 * _DEVICES_S
"""Longest time of `create`."""


def create(reservation: Reservation) -> Sequence[int]:
    """Reserve devices, and return their CUDA indexes. A placement group needs no process and has fixed devices.

    Raises:
        ReservationRefusedError: the node did not provide the resources in time, or its devices have no indexes.
    """
    gpus = reservation.devices if reservation.device_kind == "cuda" else 0
    resources = {"CPU": float(reservation.cpus), "GPU": float(gpus), "memory": float(reservation.memory_bytes)}
    _record(reservation.name)
    group = _find_group(reservation.name) or placement_group(
        [{name: amount for name, amount in resources.items() if amount}],
        name=reservation.name,
        lifetime="detached",
        bundle_label_selector=[{_NODE_ID_LABEL: reservation.node_id}],
    )
    if not group.wait(_READY_S):
        remove_placement_group(group)
        _delete_record(reservation.name)
        raise ReservationRefusedError(
            f"node {name_of_node(reservation.node_id)} did not provide {resources} within {_READY_S:.0f} s: "
            "it is gone, or others use its resources"
        )
    if not gpus:
        return ()
    try:
        return _device_ids(group, gpus)
    except ReservationRefusedError:
        release(reservation.name)
        raise


def release(name: str) -> None:
    """Release a reservation. A missing one is not an error."""
    group = _find_group(name)
    if group is not None:
        remove_placement_group(group)
    _delete_record(name)


def names() -> set[str]:
    """Return the names of all reservations. A few of them may have just been released, or are about to be created."""
    keys = internal_kv._internal_kv_list(_PREFIX.encode(), namespace=_KV)
    return {key.decode().removeprefix(_PREFIX) for key in keys}


def adopt() -> None:
    """Record the reservations of a server that wrote no records."""
    table: Mapping[str, Mapping[str, Any]] = placement_group_table()
    for group in table.values():
        if group["name"].startswith(_NAME) and group["state"] != "REMOVED":
            _record(group["name"])


def _record(name: str) -> None:
    internal_kv._internal_kv_put(f"{_PREFIX}{name}".encode(), b"", namespace=_KV)


def _delete_record(name: str) -> None:
    internal_kv._internal_kv_del(f"{_PREFIX}{name}".encode(), namespace=_KV)


def _find_group(name: str) -> PlacementGroup | None:
    try:
        return get_placement_group(name)
    except ValueError:
        return None


def _device_ids(group: PlacementGroup, gpus: int) -> Sequence[int]:
    """Return the CUDA indexes of the group's devices. Only a task inside the group can see them.

    Raises:
        ReservationRefusedError: the node's devices have no indexes.
    """
    here = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=0)
    task = _device_query().options(num_cpus=0, num_gpus=gpus, scheduling_strategy=here, max_retries=0)
    indexes, refusal = ray.get(task.remote(), timeout=_DEVICES_S)
    if refusal:
        raise ReservationRefusedError(refusal)
    return tuple(indexes)


@cache
def _device_query() -> Any:
    """Return the remote function. GCS keeps each one that is created: one per reservation would be a leak."""
    return ray.remote(_visible_devices)


def _visible_devices() -> tuple[list[int], str]:
    """Return the indexes of this task's devices, or a message for people. Ray has the names of the node's variable."""
    try:
        return [nvml.index_of(str(name)) for name in ray.get_gpu_ids()], ""
    except nvml.NvmlError as error:
        return [], f"node {socket.gethostname()}: {error}"
