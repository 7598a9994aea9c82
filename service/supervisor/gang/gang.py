"""A job's agents as one gang: a generation forms on all of them and ends on all of them."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from regroup.service.policy.recovery.restore_source import NodeSet, RestoreKind, replicas_agree
from regroup.service.ports.agents import AgentError, AgentLostError, Agents
from regroup.service.supervisor.gang import held_shards
from regroup.service.supervisor.gang.calls import gather_all
from regroup.service.supervisor.gang.formation import common_of, restore_of, starts_of
from regroup.service.supervisor.gang.node_facts import NodeFacts
from regroup.service.supervisor.gang.prepared_generation import PreparedGeneration
from regroup.service.supervisor.gang.shard_holders import holders_by_node
from regroup.service.supervisor.job_state.generations import Generation, PinnedSet
from regroup.service.supervisor.job_state.project_secrets import ProjectSecrets
from regroup.workers.contract.agent_api import AgentApi
from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.contract.agent_records import (
    AgentErrorKind,
    AgentStatus,
    Dataset,
    DataSources,
    DeathProof,
    Manifest,
    SavedShards,
    TransferAddress,
)
from regroup.workers.contract.codec import plain
from regroup.workers.contract.messages import Join
from regroup.workers.contract.rank_starts import RankStarts

ENVIRONMENT_TIMEOUT_S = 4000.0
"""Longer than the time limit of pip in an agent, so that the agent can report what pip was doing."""
END_TIMEOUT_S = 15.0
FORM_TIMEOUT_S = 60.0
RESTORE_TIMEOUT_S = 1800.0
"""Nodes that restore a checkpoint open it, and check its files, before their ranks are formed."""
CALL_TIMEOUT_S = 15.0
SHUTDOWN_TIMEOUT_S = 60.0
SCAN_TIMEOUT_S = 120.0
REMOVE_TIMEOUT_S = 600.0
T = TypeVar("T")


@dataclass
class Gang:
    """The agents of one job, one per node, in rank order."""

    agents: Agents
    configs: Mapping[str, AgentConfig]
    """Node id → its agent's config."""
    on_phase: Callable[[str, float | None, str], None] = lambda phase, fraction, message: None
    """Receives the progress of the start: phase, fraction (0 to 1 or None) and message."""
    node_facts: NodeFacts = field(default_factory=NodeFacts)
    """Facts about these nodes and about others to which the job may move."""
    missing: set[str] = field(default_factory=set[str])
    """Nodes whose agents have not answered since their last start."""
    former: dict[str, str] = field(default_factory=dict[str, str])
    """Node id → name of the nodes that the job has left and whose agents may still store its state."""
    secrets: ProjectSecrets = field(default_factory=ProjectSecrets)
    """The project's secrets that the job uses."""
    prepared: PreparedGeneration | None = None
    """The next generation, if its ranks are being formed or wait for their state."""

    def with_configs(self, configs: Mapping[str, AgentConfig], former: Mapping[str, str] | None = None) -> "Gang":
        """Return a gang of the same job on other nodes. Both gangs share the facts about nodes."""
        return Gang(
            self.agents,
            configs,
            node_facts=self.node_facts,
            former=dict(former or {}),
            secrets=self.secrets,
            prepared=self.prepared,
        )

    @property
    def unprepared_nodes(self) -> list[str]:
        """Nodes that have not yet proved that they have the job's data."""
        return [node for node in self.configs if node not in self.node_facts.datasets]

    async def start_agents(self, timeout_s: float) -> None:
        """Start every agent and its zygote. Only check the agents that were up before.

        Args:
            timeout_s: time limit of each call, in seconds, without the installation of the Python environment.

        Raises:
            AgentLostError: an agent is not up in time.
            AgentError: a preload, a secret or the environment of the spec is missing or invalid.
        """

        self.missing = set(self.configs)

        async def one(config: AgentConfig) -> None:
            if config.node_id in self.node_facts.descriptions and await self._is_alive(config.node_id):
                self.missing.discard(config.node_id)
                return
            await self.agents.start(config)
            agent = self.agents.agent(config.node_id, timeout_s=timeout_s)
            status = await agent.status()
            self.missing.discard(config.node_id)
            if self.secrets.names:
                self.node_facts.secrets_versions[config.node_id] = status.secrets_version
                await self._send_secrets(config.node_id)
            if config.requirements:
                self.on_phase("environment", None, f"installing requirements on {config.node_name}")
                await self.agents.agent(config.node_id, timeout_s=ENVIRONMENT_TIMEOUT_S).install_environment()
            self.node_facts.descriptions[config.node_id] = await agent.start_zygote()

        await gather_all(one(config) for config in self.configs.values())

    async def prepare_data(self, sources: DataSources | None) -> None:
        """Compare the sources on all nodes, prepare the data once, and fetch it on every unprepared node.

        A job without `sources` has no data.

        Raises:
            AgentError: data is missing; the error names node and path.
        """
        nodes = self.unprepared_nodes
        if sources is None or not nodes:
            self.node_facts.datasets.update((node, {}) for node in nodes)
            return
        prepared = self.node_facts.prepared_data = self.node_facts.prepared_data or await self._prepare(sources)
        try:
            found = await gather_all(self.agents.agent(node, timeout_s=3600).fetch_data(prepared) for node in nodes)
        except AgentError:
            self.node_facts.prepared_data = None  # the data may be gone, so the next attempt prepares it again
            raise
        self.node_facts.datasets.update(zip(nodes, found, strict=True))

    async def form_ranks(self, generation: Generation, join: Join) -> None:
        """Start a generation's ranks on all nodes. `join` contains the fields that are the same for all ranks.

        Raises:
            AgentLostError, AgentError: a node could not start its ranks.
        """
        source, nodes = generation.source, generation.nodes
        prepared, self.prepared = self.prepared, None
        if prepared is not None and not prepared.fits(generation, join, self.secrets.version):
            await prepared.discard()
            prepared = None
        first = self.agents.agent(nodes[0], timeout_s=FORM_TIMEOUT_S)
        starting = [] if prepared is not None else [first.start_store(generation.number, False)]
        holders, *store = await gather_all((holders_by_node(generation, self.transfer_addresses), *starting))
        restore = restore_of(source)
        common = common_of(generation, join, store[0], restore) if store else b""
        starts = self.starts_of(generation)

        async def one(node: str) -> None:
            mine = holders.get(node, b"")
            is_slow = source.kind is RestoreKind.CHECKPOINT or mine
            agent = self.agents.agent(node, timeout_s=RESTORE_TIMEOUT_S if is_slow else FORM_TIMEOUT_S)
            if prepared is not None:
                await agent.begin_ranks(generation.number, restore, mine)
                return
            await self._send_secrets(node)
            await agent.form_ranks(common, starts[node], mine)

        await gather_all(one(node) for node in nodes)

    async def prepare_ranks(self, prepared: PreparedGeneration) -> None:
        """Form the ranks of the next generation while the present one trains. Their nodes are those of this gang.

        Raises:
            AgentLostError, AgentError, TimeoutError: as of `PreparedGeneration.form`.
        """
        for node in prepared.generation.nodes:
            await self._send_secrets(node)
        await prepared.form(self.starts_of(prepared.generation))

    async def settle_prepared(self, statuses: Mapping[str, AgentStatus]) -> None:
        """Kill prepared ranks that are not complete, or that an earlier supervisor left.

        Args:
            statuses: node → status of its agent.
        """
        if self.prepared is not None and not self.prepared.is_on(statuses):
            await self.prepared.discard()
            self.prepared = None
        if self.prepared is None:
            left = {node: status.prepared for node, status in statuses.items() if status.prepared}
            agents = {node: self.agents.agent(node, timeout_s=CALL_TIMEOUT_S) for node in left}
            await gather_all(agents[node].discard_ranks(number) for node, number in left.items())

    def starts_of(self, generation: Generation) -> dict[str, RankStarts]:
        """Return node → the ranks of a generation that start there."""
        names = {node: self.configs[node].node_name for node in generation.nodes}
        return starts_of(generation, names, self.node_facts.datasets)

    async def kill_ranks(
        self, number: int, lost: Sequence[str] = (), *, for_restore: bool = False
    ) -> dict[str, DeathProof | None]:
        """Kill all ranks up to a generation.

        Nodes that the job has left receive no call: their ranks died before the job left.

        Args:
            number: the generation.
            lost: nodes that receive no call.
            for_restore: the proofs list the state in the memory of the nodes, so that no further call is needed.

        Returns:
            Node → proof of death, or None if its agent gave none.
        """

        async def one(node: str) -> DeathProof | None:
            if node in lost:
                return None
            try:
                return await self.agents.agent(node, timeout_s=END_TIMEOUT_S).kill_ranks(number, for_restore)
            except AgentLostError:
                return None

        nodes = list(self.configs)
        return dict(zip(nodes, await asyncio.gather(*(one(node) for node in nodes)), strict=True))

    async def list_shards(self) -> list[NodeSet]:
        """Return the sets of training state in the memory of the nodes that answer."""
        return await held_shards.find(self.agents, (*self.configs, *self.former), lambda agent: agent.list_shards())

    async def scan_checkpoints(self, *, by_all: bool = False) -> tuple[Sequence[Manifest], set[str]]:
        """Scan durable storage. Return the manifests of finished checkpoints and the URIs of unfinished ones.

        Args:
            by_all: scan from every node, and exclude checkpoints that any node is writing.

        Raises:
            AgentError: storage did not answer.
        """
        nodes = list(self.configs) if by_all else [self._first_node]
        scans = await gather_all(self.agents.agent(node, timeout_s=SCAN_TIMEOUT_S).scan_checkpoints() for node in nodes)
        return scans[0].finished, set.intersection(*(set(scan.unfinished) for scan in scans))

    async def remove_checkpoint(self, uri: str) -> None:
        """Remove a checkpoint from durable storage.

        Raises:
            AgentError: storage did not answer.
        """
        await self.agents.agent(self._first_node, timeout_s=REMOVE_TIMEOUT_S).remove_checkpoint(uri)

    async def save_checkpoint(
        self,
        generation: Generation,
        pinned: PinnedSet,
        uri: str,
        base: str,
        manifest: Callable[[list[Any]], dict[str, Any]],
    ) -> tuple[Manifest, Sequence[SavedShards]]:
        """Write a pinned set below `uri`, then its metadata, and last its manifest.

        Args:
            generation: generation that pinned the set.
            pinned: the set.
            uri: folder of the checkpoint.
            base: finished checkpoint whose unchanged parts are not written again; empty: none.
            manifest: function that returns the manifest of some files.

        Returns:
            The manifest, and what each node wrote.

        Raises:
            AgentLostError, AgentError: nothing was saved. Retention removes the incomplete files.
        """
        written = await gather_all(
            self.agents.agent(node, timeout_s=3600).save_checkpoint(
                generation.number,
                pinned.step,
                [place.rank for place in generation.on(node)],
                uri,
                pinned.differing,
                base,
            )
            for node in generation.nodes
        )
        files = list({file.name: plain(file) for item in written for file in item.files}.values())
        parts = [item.part for item in written]
        if not replicas_agree([digests for part in parts for digests in part.pop("alike", ())]):
            message = "replicas of the same state differ between ranks; this set is not saved as a checkpoint"
            raise AgentError(
                self._first_node, self.configs[self._first_node].node_name, AgentErrorKind.REPLICAS, message
            )
        agent = self.agents.agent(generation.nodes[0], timeout_s=3600)
        return await agent.finish_checkpoint(uri, parts, manifest(files)), written

    async def stop_ranks(self, generation: Generation, reason: str, *, save: bool) -> None:
        """Request that all ranks end at a step on which they agree. `save`: retain that step for a checkpoint.

        Raises:
            AgentLostError, AgentError: a node did not receive the request.
        """
        agents = (self.agents.agent(node, timeout_s=CALL_TIMEOUT_S) for node in generation.nodes)
        await gather_all(agent.stop_ranks(generation.number, reason, save) for agent in agents)

    async def release_restore_source(self, *, mirrors: bool) -> None:
        """Release the snapshots of other ranks from which this generation was restored, on every node that answers.

        Without `mirrors`, also release the mirrors that nodes stored for each other before.
        """
        await self.call_reachable(lambda agent: agent.release_restore_source(mirrors))

    async def call_reachable(self, call: Callable[[AgentApi], Awaitable[None]]) -> None:
        """Make the same call on every node that answers."""

        async def one(node: str) -> None:
            with contextlib.suppress(AgentLostError):
                await call(self.agents.agent(node, timeout_s=CALL_TIMEOUT_S))

        await asyncio.gather(*(one(node) for node in self.configs))

    async def call_all(self, call: Callable[[AgentApi], Awaitable[T]], *, timeout_s: float) -> dict[str, T]:
        """Make the same call on every node. Return node → result."""
        nodes = list(self.configs)
        results = await gather_all(call(self.agents.agent(node, timeout_s=timeout_s)) for node in nodes)
        return dict(zip(nodes, results, strict=True))

    async def kill_agents(self, nodes: Iterable[str]) -> None:
        """Kill these agents, and forget the facts about their nodes."""
        killed = list(nodes)
        self.node_facts.forget(killed)
        await asyncio.gather(*(self.agents.kill(node) for node in killed), return_exceptions=True)

    async def transfer_addresses(self, nodes: Iterable[str]) -> dict[str, TransferAddress]:
        """Return the address of each agent's transfer server. A restarted agent has a new address."""
        requested = sorted(set(nodes))
        found = await gather_all(
            self.agents.agent(node, timeout_s=CALL_TIMEOUT_S).transfer_address() for node in requested
        )
        return dict(zip(requested, found, strict=True))

    async def shut_down_all(self) -> None:
        """Stop every agent."""
        await self.shut_down([*self.configs, *self.former])

    async def shut_down(self, nodes: Iterable[str]) -> None:
        """Stop these agents gracefully if they answer. Kill the others."""

        async def one(node: str) -> None:
            try:
                await self.agents.agent(node, timeout_s=SHUTDOWN_TIMEOUT_S).shutdown()
            except AgentLostError:
                pass
            finally:
                self.node_facts.forget([node])
                await self.agents.kill(node)

        await asyncio.gather(*(one(node) for node in nodes))

    async def _send_secrets(self, node: str) -> None:
        """Send the project's secrets to an agent that does not have their newest values. Wait for the first values.

        A supervisor that restarted has no values until the controller sends them. Agents keep those that they have.
        """
        if not self.secrets.names or (self.secrets.is_missing and self.node_facts.secrets_versions.get(node)):
            return
        if self.secrets.is_missing:
            names = ", ".join(sorted(self.secrets.names))
            self.on_phase("secrets", None, f"waiting for secrets of the project: {names}")
        found = await self.secrets.wait()
        if self.node_facts.secrets_versions.get(node) != found.version:
            agent = self.agents.agent(node, timeout_s=CALL_TIMEOUT_S)
            await agent.receive_secrets(found.version, found.values)
            self.node_facts.secrets_versions[node] = found.version

    async def _is_alive(self, node: str) -> bool:
        try:
            await self.agents.agent(node, timeout_s=CALL_TIMEOUT_S).status()
        except AgentLostError:
            self.node_facts.forget([node])
            return False
        return True

    async def _prepare(self, sources: DataSources) -> Dataset:
        """Let one node prepare the data, if all nodes have the same sources."""
        nodes = list(self.configs)
        listings = await gather_all(self.agents.agent(node, timeout_s=120).list_sources(sources) for node in nodes)
        for node, listing in zip(nodes, listings, strict=True):
            differing = sorted(set(listings[0].files.items()) ^ set(listing.files.items()))
            if differing:
                raise AgentError(
                    node,
                    self.configs[node].node_name,
                    AgentErrorKind.DATA,
                    f"{differing[0][0]!r} differs from the same path on node "
                    f"{self.configs[nodes[0]].node_name}; put the data where every node can read it",
                )
        self.on_phase("data", None, "preparing data")
        places = {node: listing.place for node, listing in zip(nodes, listings, strict=True) if listing.place}
        agent = self.agents.agent(nodes[0], timeout_s=24 * 3600)
        return await agent.prepare_data(replace(sources, places=places))

    @property
    def _first_node(self) -> str:
        return next(iter(self.configs))
