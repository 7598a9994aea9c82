"""The probe of a cluster: a job like any other that measures the nodes it gets, and what came of the newest ones."""

from typing import Literal

from regroup.service.cluster_state.probe_results import FUNCTION, LABEL, ProbeResults
from regroup.service.domain.errors import FieldIssue, SpecError
from regroup.service.operations.jobs import Jobs, Submitted
from regroup.service.operations.nodes import Nodes, NodeState
from regroup.service.policy.measurements.results import ProbeResult
from regroup.service.spec.job import JobSpec
from regroup.service.spec.layout import DataParallel, LayoutSpec
from regroup.service.spec.recovery import Budgets, Hang, Recovery
from regroup.service.spec.resources import Resources
from regroup.service.spec.state import SnapshotSpec
from regroup.service.spec.training import Training
from regroup.service.spec.types import Name, Positive, SpecModel
from regroup.service.spec.workload import FunctionWorkload
from regroup.service.store.store import Store

_MODULE = FUNCTION.partition(":")[0]
_STAGES = 8
"""Steps of the probe: what `stages` in `workers/probe/run.py` has."""
_HANG_S = 600.0
"""Stages differ in length by much: what one took says nothing of the next."""


class ProbeRequest(SpecModel):
    """What is to be measured."""

    device: Literal["cpu", "cuda"] | None = None
    """GPUs where there are any, if absent."""
    ranks: Positive | None = None
    """All that fit on the nodes that are open now, if absent: as many on each as jobs would have."""
    cpus: Positive = 1
    """Cores of each rank, as `resources.cpus` of the jobs it is to tell of."""
    project: Name = "default"
    """Whose devices it takes."""


class Probes:
    """Asks of people about measured values, answered from the store."""

    def __init__(self, store: Store, jobs: Jobs, nodes: Nodes) -> None:
        self._store, self._jobs, self._nodes = store, jobs, nodes

    async def submit(self, request: ProbeRequest, *, actor: str, key: str | None = None) -> Submitted:
        """Queue a probe.

        Raises:
            SpecError: no node that is open has such a device.
            ConflictError: one of this kind of device is on its way in this project.
            UnavailableError: the cluster or the database does not answer.
        """
        states = [state for state in await self._nodes.all() if state.status == "open"]
        device = request.device or ("cuda" if any(state.node and state.node.gpus for state in states) else "cpu")
        ranks = request.ranks or sum(_slots(state, device, request.cpus) for state in states)
        if not ranks:
            say = f"no open node has room for a rank of device {device} with {request.cpus} cores; see `regroup nodes`"
            raise SpecError([FieldIssue("device", say, device)])
        return await self._jobs.submit(_spec(request, device, ranks), actor=actor, key=key)

    async def newest(self) -> list[ProbeResult]:
        """The newest result of each kind of device; none where nothing was measured."""
        return await ProbeResults().newest(self._store)


def _slots(state: NodeState, device: str, cpus: int) -> int:
    """Ranks that the node takes when nothing else runs there."""
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
        resources=Resources(device=device, cpus=request.cpus),
        layout=LayoutSpec(dp=DataParallel(min=ranks, target=ranks, max=ranks), data_parallel="ddp"),
        training=Training(global_batch=ranks, micro_batch=1, steps=_STAGES),
        snapshot=SnapshotSpec(mirror="off"),
        # Of a node that is lost on the way half of the values would be of another one.
        recovery=Recovery(budgets=Budgets(node_loss=0), hang=Hang(after=_HANG_S)),
    )
