"""Methods of the blocking client for nodes, projects and `apply`."""

from collections.abc import Mapping, Sequence
from typing import Any

from regroup.api.client.connection.transport import SyncTransport
from regroup.api.client.operations import apply, capacity, nodes, projects, server
from regroup.api.client.operations.apply_steps import ApplyStep
from regroup.api.schemas.capacity.queue import Queue
from regroup.api.schemas.capacity.size_starts import SizeStart
from regroup.api.schemas.capacity.what_if import WhatIf
from regroup.api.schemas.drains import Drain
from regroup.api.schemas.nodes import ClusterState, Node
from regroup.api.schemas.projects import Project, ProjectSettings
from regroup.api.schemas.setup import Setup
from regroup.api.schemas.summaries.overview import Overview
from regroup.api.schemas.topology import Topology


class ClusterMethods:
    """The part of the client for what belongs to no job."""

    _transport: SyncTransport

    def overview(self) -> Overview:
        """Return what runs, what waits and why, what needs a person, and the incidents of the last day."""
        return self._transport.run(server.overview())

    def nodes(self) -> list[Node]:
        """List the nodes: free capacity, jobs, health."""
        return self._transport.run(nodes.nodes())

    def clusters(self) -> list[ClusterState]:
        """List the clusters that jobs can name, the default one first."""
        return self._transport.run(nodes.clusters())

    def topology(self) -> Topology:
        """Return the topology of the cluster as placement uses it."""
        return self._transport.run(nodes.topology())

    def cordon(self, node: str, *, reason: str = "") -> Node:
        """Place no new ranks on a node until it is uncordoned. Running jobs continue."""
        return self._transport.run(nodes.cordon(node, reason))

    def uncordon(self, node: str, *, reason: str = "") -> Node:
        """End the cordon or quarantine of a node and clear its faults."""
        return self._transport.run(nodes.uncordon(node, reason))

    def drain(
        self, node: str, *, deadline_s: float | str = 600.0, reason: str = "on request", also: Sequence[str] = ()
    ) -> Drain:
        """Drain a node. Its jobs move to other nodes, or save their next step and queue.

        Args:
            node: Name or id of the node.
            deadline_s: Time until the node goes away, in seconds or as a text such as `15m`.
            reason: Text for people, shown with every job that is relocated.
            also: Other nodes that leave at the same time. They are not drained; the predicted moves avoid them.
        """
        return self._transport.run(nodes.drain(node, deadline_s, reason, also))

    def undrain(self, node: str) -> None:
        """End the drain of a node, so that it accepts ranks again."""
        return self._transport.run(nodes.undrain(node))

    def drain_status(self, node: str) -> Drain:
        """Return the deadline of a drain and the jobs still on the node. Raises ApiError if there is no drain."""
        return self._transport.run(nodes.drain_status(node))

    def wait_for_drain(self, node: str) -> Drain:
        """Wait until a draining node is empty or its deadline has passed: then `jobs` lists the jobs still on it."""
        return self._transport.run(nodes.wait_for_drain(node))

    def queue(self, *, project: str | None = None, offset: int = 0, limit: int = 200) -> Queue:
        """Return the queued jobs in scheduling order: why each waits, and its predicted start."""
        return self._transport.run(capacity.queue(project, offset, limit))

    def what_if(self, scenario: Mapping[str, Any]) -> WhatIf:
        """Simulate the queue of now with and without a change. Changes nothing.

        Args:
            scenario: Fields of `WhatIfRequest` in the API: `add_nodes`, `drain`, `quotas`, `cancel`, `add_jobs`.
        """
        return self._transport.run(capacity.what_if(scenario))

    def job_starts(self, job: str, *, project: str = "default") -> list[SizeStart]:
        """Predict when a queued job starts with its requested size, and with smaller ones."""
        return self._transport.run(capacity.job_starts(job, project))

    def projects(self) -> list[Project]:
        """List the projects that have settings or unfinished jobs."""
        return self._transport.run(projects.projects())

    def project(self, name: str) -> Project:
        """Return a project. A project without settings has no limits."""
        return self._transport.run(projects.project(name))

    def set_project(self, name: str, settings: ProjectSettings | Mapping[str, Any]) -> Project:
        """Create or replace a project. Omitted settings get their defaults. Running jobs continue."""
        return self._transport.run(projects.set_project(name, settings))

    def delete_project(self, name: str) -> None:
        """Delete the settings of a project that has no unfinished jobs."""
        return self._transport.run(projects.delete_project(name))

    def apply(self, setup: Setup, *, prune: bool = False, replace_secrets: bool = False) -> list[ApplyStep]:
        """Bring identities, projects, members and secrets into the state of a file, and return the changes.

        Args:
            prune: Also remove members of the file's projects that the file does not list.
            replace_secrets: Also set the secrets of the file that exist.
        """
        return self._transport.run(
            apply.apply(setup, prune=prune, replace_secrets=replace_secrets, trial=self._transport.is_trial)
        )
