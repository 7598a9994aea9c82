"""The start configuration of a job, which the controller sends to a new supervisor and to the first agents."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from regroup.service.domain.job_events import EventType
from regroup.service.domain.layout import Layout
from regroup.service.policy.recovery.restore_source import SavedCheckpoint
from regroup.service.ports.assignment import NodeAssignment
from regroup.service.ports.sync import SupervisorEvent
from regroup.service.spec.job import JobSpec
from regroup.workers.contract.archive_rules import ArchiveLimits


@dataclass(frozen=True)
class StartConfig:
    """A job with its nodes, layout and storage locations."""

    job_id: str
    spec: JobSpec
    nodes: tuple[NodeAssignment, ...]
    layout: Layout
    storage_uri: str
    datasets_uri: str
    blob_uri: str = ""
    code_limit_bytes: int = ArchiveLimits.unpacked_bytes
    allow_faults: bool = False
    attempt: int = 0
    """Number of times that the job has released its gang and queued again."""
    resume: SavedCheckpoint | None = None
    ifname: str = ""
    port_first: int = 0
    port_last: int = 0
    """First and last port on which the job may listen; 0: any port."""
    preflight: bool = False
    """True if nodes are checked before ranks start there."""
    generations: Mapping[int, int] = field(default_factory=dict[int, int])
    """Generation number → start step, as in the database when the controller created the supervisor."""
    incidents: tuple[SupervisorEvent, ...] = ()
    """The newest incidents of the database at that time. A new cluster has no records of them."""
    rank_users: str = ""
    """Range of user ids for the processes of jobs; the user of the agents if empty."""
    page_url: str = ""
    """Address of the job's page; empty if the address of the server is not known."""

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "job_id": self.job_id,
            "spec": self.spec.model_dump(mode="json"),
            "nodes": [node.to_json() for node in self.nodes],
            "layout": self.layout.to_json(),
            "storage_uri": self.storage_uri,
            "datasets_uri": self.datasets_uri,
            "blob_uri": self.blob_uri,
            "code_limit_bytes": self.code_limit_bytes,
            "allow_faults": self.allow_faults,
            "attempt": self.attempt,
            "resume": None if self.resume is None else {"uri": self.resume.uri, "step": self.resume.step},
            "ifname": self.ifname,
            "port_range": [self.port_first, self.port_last] if self.port_last else None,
            "preflight": self.preflight,
            "generations": list(self.generations.items()),
            "incidents": [dict(incident.data) for incident in self.incidents],
            "rank_users": self.rank_users,
            "page_url": self.page_url,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Parse the output of `to_json`."""
        ports = data.get("port_range") or (0, 0)
        resume = data.get("resume")
        return cls(
            data["job_id"],
            JobSpec.model_validate(data["spec"]),
            with_devices(NodeAssignment.from_json(node) for node in data["nodes"]),
            Layout(**data["layout"]),
            data["storage_uri"],
            data["datasets_uri"],
            data.get("blob_uri") or "",
            int(data.get("code_limit_bytes", ArchiveLimits.unpacked_bytes)),
            bool(data.get("allow_faults")),
            int(data.get("attempt", 0)),
            SavedCheckpoint(resume["uri"], 0, int(resume["step"])) if resume else None,
            data.get("ifname") or "",
            int(ports[0]),
            int(ports[1]),
            bool(data.get("preflight")),
            {int(number): int(start) for number, start in data.get("generations") or ()},
            stored_incidents(data.get("incidents") or ()),
            data.get("rank_users") or "",
            data.get("page_url") or "",
        )


def with_devices(nodes: Iterable[NodeAssignment]) -> tuple[NodeAssignment, ...]:
    """Return the nodes with a device index for each rank."""
    return tuple(node if node.devices else replace(node, devices=tuple(range(node.ranks))) for node in nodes)


def stored_incidents(found: Iterable[Mapping[str, Any]]) -> tuple[SupervisorEvent, ...]:
    """Return incidents of the database as events of an earlier supervisor, which are not sent again."""
    return tuple(_stored_incident(data) for data in found)


def _stored_incident(data: Mapping[str, Any]) -> SupervisorEvent:
    times = data.get("times") or {}
    generation = int(data.get("generation") or 0)
    return SupervisorEvent(0, str(data["id"]), EventType.INCIDENT, generation, float(times.get("seen_s", 0.0)), data)
