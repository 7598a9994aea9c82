"""Probes of the cluster: jobs that measure the nodes they get, and their newest results."""

from typing import Literal

from regroup.service.cluster_state.probe_results import FUNCTION, LABEL, ProbeResults
from regroup.service.domain.errors import FieldIssue, SpecError
from regroup.service.operations.access.authorization import Sender
from regroup.service.operations.nodes import Nodes, NodeState
from regroup.service.operations.submissions import Submission, Submissions
from regroup.service.policy.measurements.results import ProbeResult
from regroup.service.spec.clusters import ONE_CLUSTER, ClusterNames
from regroup.service.spec.job import JobSpec
from regroup.service.spec.layout import DataParallel, LayoutSpec
from regroup.service.spec.recovery import Budgets, Hang, Recovery
from regroup.service.spec.resources import Cores, Resources
from regroup.service.spec.state import SnapshotSpec
from regroup.service.spec.training import Training
from regroup.service.spec.types import MAX_RANKS, Degree, Name, SpecModel
from regroup.service.spec.workload import FunctionWorkload
from regroup.service.store.store import Store

_MODULE = FUNCTION.partition(":")[0]
_STAGES = 8
"""Number of stages in `workers/probe/run.py`. Each stage is a step of the job."""
_HANG_S = 600.0
"""Timeout of the hang detector. It is fixed because the durations of the stages differ by much."""


class ProbeRequest(SpecModel):
    """Measurement to run."""

    device: Literal["cpu", "cuda"] | None = None
    """Kind of device. Default: GPUs if the cluster has any, else CPUs."""
    ranks: Degree | None = None
    """Number of ranks. Default: all that fit on the nodes that are open now."""
    cpus: Cores = 1
    """CPU cores per rank. Use the `resources.cpus` of the jobs to predict."""
    cluster: Name | None = None
    """Cluster to measure. Default: the default cluster."""
    project: Name = "default"
    """Project that is charged for the devices."""


class Probes:
    """Use cases of probes."""

    def __init__(
        self, store: Store, submissions: Submissions, nodes: Nodes, cluster_names: ClusterNames = ONE_CLUSTER
    ) -> None:
        self._store, self._submissions, self._nodes, self._cluster_names = store, submissions, nodes, cluster_names

    async def submit(self, request: ProbeRequest, sender: Sender, *, key: str | None = None) -> Submission:
        """Queue a probe.

        Raises:
            SpecError: no open node has such a device.
            ConflictError: the project has a live probe of this kind of device.
            UnavailableError: the cluster or the database does not answer.
        """
        if problem := self._cluster_names.find_problem(request.cluster):
            raise SpecError([FieldIssue("cluster", problem, request.cluster)])
        cluster = self._cluster_names.internal(request.cluster)
        states = [
            state
            for state in await self._nodes.list_nodes()
            if state.status == "open" and state.node and state.node.cluster == cluster
        ]
        device = request.device or ("cuda" if any(state.node and state.node.gpus for state in states) else "cpu")
        fitting = sum(_slots(state, device, request.cpus) for state in states)
        ranks = request.ranks or min(fitting, MAX_RANKS)
        if not ranks:
            message = (
                f"no open node has capacity for a rank with device {device} and {request.cpus} cores; "
                "see `regroup nodes`"
            )
            raise SpecError([FieldIssue("device", message, device)])
        return await self._submissions.submit(_spec(request, device, ranks), sender, key=key)

    async def newest(self) -> list[ProbeResult]:
        """Return the newest result of each kind of device; empty without probes."""
        return await ProbeResults().newest(self._store)


def _slots(state: NodeState, device: str, cpus: int) -> int:
    """Return the number of ranks that fit on the node while it is idle."""
    node = state.node
    if node is None or not node.alive or node.is_draining:
        return 0
    by_cores = int(node.cpus // cpus)
    return by_cores if device == "cpu" else min(by_cores, int(node.gpus))


def _spec(request: ProbeRequest, device: Literal["cpu", "cuda"], ranks: int) -> JobSpec:
    return JobSpec(
        name=f"probe-{device}",
        project=request.project,
        labels={LABEL: device},
        workload=FunctionWorkload(kind="function", function=FUNCTION),
        preload=[_MODULE],
        resources=Resources(device=device, cpus=request.cpus, cluster=request.cluster),
        layout=LayoutSpec(dp=DataParallel(min=ranks, target=ranks, max=ranks), data_parallel="ddp"),
        training=Training(global_batch=ranks, micro_batch=1, steps=_STAGES),
        snapshot=SnapshotSpec(mirror="off"),
        # No recovery from a lost node: half of the values would come from another node.
        recovery=Recovery(budgets=Budgets(node_loss=0), hang=Hang(after=_HANG_S)),
    )
