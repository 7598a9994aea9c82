"""The configuration of a job in its supervisor: configurations of agents and ranks, and the policies of the spec."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from regroup.service.domain.detectors import Detector
from regroup.service.domain.job_events import RankPlace
from regroup.service.domain.layout import Layout
from regroup.service.domain.rank_map import RankMap
from regroup.service.policy.detection.hang import HangPolicy, hang_policy_for
from regroup.service.policy.recovery.mirror_pairs import PairingNode, pair_nodes
from regroup.service.ports.actor_names import shown_supervisor_name
from regroup.service.ports.assignment import NodeAssignment
from regroup.service.ports.cluster import Node
from regroup.service.ports.start_config import StartConfig, with_devices
from regroup.service.spec.data_preparation import PreparedData
from regroup.service.spec.models import TransformerModel
from regroup.service.spec.secrets import SecretRef
from regroup.service.spec.workload import BuiltinWorkload, FunctionWorkload, ProgramWorkload, RayTrainWorkload
from regroup.service.supervisor.job_state.outcomes import Shape, shape_of
from regroup.service.supervisor.job_state.rank_config import rank_config
from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.contract.agent_records import DataSources, TokenSources
from regroup.workers.contract.codec import plain
from regroup.workers.contract.messages import Join, Restore
from regroup.workers.contract.rank_config import WarmupConfig
from regroup.workers.contract.rank_env import BUILTIN_ENTRY
from regroup.workers.os.secret_source import MountedSecret, SecretSource

FUNCTION_ENTRY = "regroup.workers.rank.user_function:train"
_NEEDS = ("torch",)
_PRELOADED_FOR_SCRIPTS = ("torch", "regroup.workers.rank.main")
_PRELOADED_FOR_RAY_TRAIN = (*_PRELOADED_FOR_SCRIPTS, "regroup.workers.rank.ray_train.fit")
_ALWAYS_PRELOADED = (
    "torch",
    "regroup.workers.rank.main",
    "regroup.workers.state.checkpoint",
    "regroup.workers.train.trainer",
    "regroup.workers.train.warmup",
)


def standby_config(node: Node, ifname: str, *, preflight: bool, rank_users: str = "") -> AgentConfig:
    """Return the config of a standby agent: its node, and the defaults of a job spec."""
    return AgentConfig(
        job_id="",
        job_name="standby",
        node_id=node.id,
        node_name=node.name,
        address=node.address,
        supervisor="",
        storage_uri="",
        datasets_uri="",
        preload=_ALWAYS_PRELOADED,
        ifname=ifname,
        preflight=preflight,
        rank_users=rank_users,
    )


class JobConfig(StartConfig):
    """The start configuration, with everything that follows from it for the agents and ranks of the job."""

    @property
    def ports(self) -> Sequence[int]:
        """Ports on which the job may listen; 0: any port."""
        return range(self.port_first, self.port_last + 1) if self.port_last else (0,)

    def with_nodes(self, nodes: Iterable[NodeAssignment], layout: Layout) -> "JobConfig":
        """Return the config of the same job on other nodes, or with another layout."""
        return replace(self, nodes=with_devices(nodes), layout=layout)

    def with_node(self, node: NodeAssignment) -> "JobConfig":
        """Return the config of the same job with one more node."""
        return replace(self, nodes=(*self.nodes, *with_devices([node])))

    @property
    def ranks_by_node(self) -> dict[str, int]:
        """Node id → number of ranks."""
        return {node.node_id: node.ranks for node in self.nodes}

    def devices_on(self, node_id: str) -> tuple[int, ...]:
        """Return the device indexes of a node's ranks, or of the ranks that it will get."""
        return next((node.devices[: node.ranks] for node in self.nodes if node.node_id == node_id), ())

    @property
    def storage_nonce(self) -> str:
        """Name of the file that proves that nodes share durable storage. Each start of the job has another one."""
        return f"{self.job_id}-{self.attempt}"

    @property
    def shape(self) -> Shape:
        """Shape of the job. Another shape requires a relocation."""
        return shape_of(self.nodes, self.layout)

    def has_same_places(self, other: "JobConfig") -> bool:
        """Return whether each rank has the same place in both. The order of nodes matters."""
        return (self.layout, self.places) == (other.layout, other.places)

    @property
    def budgets(self) -> Mapping[str, int]:
        """Failures allowed per budget. Non-finite steps have budget 0 if the ranks skip them."""
        recovery = self.spec.recovery
        budgets: dict[str, int] = recovery.budgets.model_dump()
        return budgets if recovery.non_finite == "rollback" else {**budgets, "non_finite": 0}

    @property
    def window_s(self) -> float:
        """Age in seconds after which a failure no longer counts."""
        return self.spec.recovery.window

    @property
    def refill_steps(self) -> int:
        """Number of committed steps that refill a budget by one failure."""
        return self.spec.recovery.refill_steps

    @property
    def hang_policy(self) -> HangPolicy | None:
        """Policy that detects hangs, or None if hang detection is disabled."""
        hang = self.spec.recovery.hang
        if hang.after == "off" or Detector.HANG in self.spec.disable_detectors:
            return None
        after_s = None if hang.after == "auto" else hang.after
        return hang_policy_for(self.spec.workload.kind, after_s, None if hang.first_step == "auto" else hang.first_step)

    @property
    def script(self) -> ProgramWorkload | None:
        """The program of a script job, or None. A script manages its own state and data."""
        return self.spec.workload if isinstance(self.spec.workload, ProgramWorkload) else None

    @property
    def mirror_pairs(self) -> Mapping[str, str]:
        """Node → the node that stores its mirror. Empty for a job with one node, and for a script."""
        if self.spec.snapshot.mirror == "off" or self.script is not None:
            return {}
        return pair_nodes([PairingNode(node.node_id, node.domain) for node in self.nodes])

    @property
    def _may_need_mirrors(self) -> bool:
        """True if the job may grow beyond one node while its agents run."""
        return self.spec.snapshot.mirror != "off" and self.script is None and len(self.spec.ladder) > 1

    @property
    def data_sources(self) -> DataSources | None:
        """The data to prepare, if the workload has any."""
        workload, training = self.spec.workload, self.spec.training
        if not isinstance(workload, BuiltinWorkload | FunctionWorkload) or training is None or workload.data is None:
            return None
        data = workload.data
        if isinstance(data, PreparedData):
            cpus = self.spec.resources.cpus
            return DataSources(
                recipe=data.recipe(
                    training.sequence,
                    code=self.spec.code.archive if self.spec.code else "",
                    python=self.spec.environment.model_dump_json(),
                    reads=workload.sample_kind if isinstance(workload, BuiltinWorkload) else "",
                ),
                reservations={
                    node.node_id: {name: cpus * ranks for name, ranks in node.reservations.items()}
                    for node in self.nodes
                },
            )
        return DataSources(TokenSources(data.train, data.validation, data.tokenizer, training.sequence))

    @cached_property
    def places(self) -> RankMap:
        """The place of each rank: as assigned, or in the order of nodes. A TP group stays on its node."""
        slots = [(node, local_rank) for node in self.nodes for local_rank in range(node.ranks)]
        numbers = [number for node in self.nodes for number in node.numbers]
        if sorted(numbers) != list(range(len(slots))):
            numbers = list(range(len(slots)))  # the assignment has no rank numbers, or too many or too few
        assert len(slots) == self.layout.world_size, f"{len(slots)} places for {self.layout.world_size} ranks"
        places = [
            RankPlace(rank, node.node_id, node.name, node.address, local_rank, node.devices[local_rank])
            for rank, (node, local_rank) in zip(numbers, slots, strict=True)
        ]
        return RankMap.of(sorted(places, key=lambda place: place.rank))

    def join_message(self) -> Join:
        """Return a JOIN with the fields that are the same for every rank and generation."""
        return Join(
            job_id=self.job_id,
            generation=0,
            rank=0,
            world_size=0,
            local_rank=0,
            local_world_size=0,
            node_rank=0,
            node_count=0,
            layout={},
            device=self.spec.resources.device,
            store_host="",
            store_port=0,
            restore=Restore("none"),
            entry=self._entry,
            config=rank_config(self.spec, micro_batch=self.layout.micro_batch, storage_uri=self.storage_uri),
        )

    def agent_configs(self) -> dict[str, AgentConfig]:
        """Return node id → config of its agent."""
        spec, warmup = self.spec, self._warmup
        has_mirrors = bool(self.mirror_pairs) or self._may_need_mirrors
        return {
            node.node_id: AgentConfig(
                job_id=self.job_id,
                job_name=spec.name,
                node_id=node.node_id,
                node_name=node.name,
                address=node.address,
                supervisor=shown_supervisor_name(self.job_id, spec.name),
                storage_uri=self.storage_uri,
                datasets_uri=self.datasets_uri,
                code=spec.code.archive if spec.code else "",
                blob_uri=self.blob_uri,
                code_limit_bytes=self.code_limit_bytes,
                interpreter=spec.environment.interpreter or "",
                requirements=tuple(spec.environment.requirements),
                base=spec.environment.base,
                needs=self._needs,
                env=dict(spec.env),
                secrets={name: _secret_source(ref, spec.project) for name, ref in spec.secrets.items()},
                warmup=warmup,
                preload=(*self._preload, *spec.preload),
                cpus=spec.resources.cpus,
                ifname=self.ifname,
                port_first=self.port_first,
                port_last=self.port_last,
                mirror=has_mirrors,
                termination_grace_s=spec.termination_grace,
                rank_users=self.rank_users,
                page_url=self.page_url,
            )
            for node in self.nodes
        }

    @property
    def _preload(self) -> tuple[str, ...]:
        if isinstance(self.script, RayTrainWorkload):
            return _PRELOADED_FOR_RAY_TRAIN
        return _PRELOADED_FOR_SCRIPTS if self.script else _ALWAYS_PRELOADED

    @property
    def _entry(self) -> str:
        if self.script is None:
            return FUNCTION_ENTRY if isinstance(self.spec.workload, FunctionWorkload) else BUILTIN_ENTRY
        module = self.script.module
        return f"script:{self.script.entrypoint}" if module is None else f"script-module:{module}"

    @property
    def _needs(self) -> tuple[str, ...]:
        """Modules that the job's own Python environment must contain."""
        data = self.spec.workload.data if isinstance(self.spec.workload, BuiltinWorkload | FunctionWorkload) else None
        if isinstance(data, PreparedData):
            return (*_NEEDS, "numpy")
        if data is not None:
            return (*_NEEDS, "numpy", "fsspec", *(() if data.tokenizer == "byte" else ("tokenizers",)))
        return (*_NEEDS, "ray") if isinstance(self.spec.workload, RayTrainWorkload) else _NEEDS

    @property
    def _warmup(self) -> dict[str, Any]:
        if self.script is not None:
            return {}
        # The first sharded step of any model needs the same imports and dispatch.
        config = rank_config(self.spec)
        if not config.model:
            config = replace(config, model=TransformerModel().model_dump(mode="json"))
        warmup = WarmupConfig(config, is_tensor_parallel=self.spec.layout.tp > 1)
        return {"target": "regroup.workers.train.warmup:warm_up", "args": plain(warmup)}


def _secret_source(ref: SecretRef, project: str) -> SecretSource:
    mounted = ref.from_kubernetes and MountedSecret(ref.from_kubernetes.name, ref.from_kubernetes.key)
    return SecretSource(
        ref.from_project, ref.from_env, ref.from_file, mounted, project="" if ref.from_project is None else project
    )
