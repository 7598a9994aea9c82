"""Facts about the nodes of a job, from their agents."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from regroup.workers.contract.agent_records import Dataset, NodeDescription


@dataclass
class NodeFacts:
    """Facts about nodes whose agents answered the last inspection."""

    prepared_data: Dataset | None = None
    """The prepared data of the job. A node that joins uses it instead of reading all sources again."""
    descriptions: dict[str, NodeDescription] = field(default_factory=dict[str, NodeDescription])
    """Node id → facts that its agent reported when it came up."""
    datasets: dict[str, Dataset] = field(default_factory=dict[str, Dataset])
    """Node id → the job's data there, empty for a job without data."""
    storage_seen: dict[str, str] = field(default_factory=dict[str, str])
    """Node id → name, of the nodes that can write to durable storage and share it."""
    storage_deferred: set[str] = field(default_factory=set[str])
    """Nodes that joined although durable storage failed there."""
    passed_preflight: set[str] = field(default_factory=set[str])
    """Nodes that passed the preflight."""
    secrets_versions: dict[str, str] = field(default_factory=dict[str, str])
    """Node id → version of the project's secrets that its agent has."""

    def forget(self, nodes: Iterable[str]) -> None:
        """Forget the nodes of lost agents. Their next agents must prove everything again."""
        for node in nodes:
            self.descriptions.pop(node, None)
            self.datasets.pop(node, None)
            self.storage_seen.pop(node, None)
            self.storage_deferred.discard(node)
            self.passed_preflight.discard(node)
            self.secrets_versions.pop(node, None)
