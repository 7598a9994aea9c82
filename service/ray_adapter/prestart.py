"""Requests to a raylet to start a worker process ahead of need, by a private call of Ray 2.60.

A process that has run a task never becomes an actor, so the public way, running an empty task, leaves nothing that an
agent or a supervisor could start from.
"""

# pyright: reportAttributeAccessIssue=false
# Ray's generated messages carry no types.

import grpc
import ray
from ray._private.grpc_utils import init_grpc_channel
from ray.core.generated import common_pb2, node_manager_pb2, node_manager_pb2_grpc

from regroup.service.ports.cluster import ClusterUnavailableError

_CALL_S = 5.0


def prestart_worker(node_id: str, keep_alive_s: int) -> None:
    """Start one idle process on a node for the next actor of this driver. Return before it is up. Blocking.

    Args:
        keep_alive_s: seconds that the idle process lives while all CPUs of the node are in use.

    Raises:
        ClusterUnavailableError: the node is gone or its raylet does not answer.
    """
    address = next(
        (
            f"{node['NodeManagerAddress']}:{node['NodeManagerPort']}"
            for node in ray.nodes()
            if node["Alive"] and node["NodeID"] == node_id
        ),
        None,
    )
    if address is None:
        raise ClusterUnavailableError(f"node {node_id[:8]} is gone")
    request = node_manager_pb2.PrestartWorkersRequest(
        language=common_pb2.Language.PYTHON,
        job_id=bytes.fromhex(ray.get_runtime_context().get_job_id()),
        keep_alive_duration_secs=keep_alive_s,
        num_workers=1,
    )
    channel = init_grpc_channel(address)
    try:
        node_manager_pb2_grpc.NodeManagerServiceStub(channel).PrestartWorkers(request, timeout=_CALL_S)
    except grpc.RpcError as error:
        raise ClusterUnavailableError(f"the raylet at {address} started no idle process: {error}") from error
    finally:
        channel.close()
