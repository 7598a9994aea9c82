"""Services that the routes of the API use. The process that starts the server creates them."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from regroup.service.blobs.store import BlobStore
from regroup.service.cluster_state.clusters import ClusterState, list_clusters
from regroup.service.cluster_state.node_health import rule_of
from regroup.service.cluster_state.queue_positions import QueuePositions
from regroup.service.cluster_state.topology import Topology, TopologyState
from regroup.service.domain.credentials.keyring import Keys, no_keys
from regroup.service.domain.limits import Limit
from regroup.service.operations.access.audit import Audit
from regroup.service.operations.access.authentication import Authentication
from regroup.service.operations.access.external_tokens import ExternalTokens
from regroup.service.operations.access.identities import Identities
from regroup.service.operations.access.token_review import TokenReview
from regroup.service.operations.auto_layout import LayoutPlanner
from regroup.service.operations.capacity.drain_moves import DrainPredictor
from regroup.service.operations.capacity.queue import QueueList
from regroup.service.operations.capacity.what_if import Simulations
from regroup.service.operations.hooks.hooks import Hooks, rules_of
from regroup.service.operations.jobs import Jobs
from regroup.service.operations.log_followers import LogFollowers
from regroup.service.operations.nodes import Nodes
from regroup.service.operations.overview.overview import Overviews
from regroup.service.operations.probes import Probes
from regroup.service.operations.projects import Projects
from regroup.service.operations.reports.reliability import Reliability
from regroup.service.operations.reports.verdicts import ChaosVerdicts
from regroup.service.operations.secrets import Secrets
from regroup.service.operations.story.stories import Stories
from regroup.service.operations.streams.change_stream import ChangeStream
from regroup.service.operations.streams.followers import Followers
from regroup.service.operations.submissions import Submissions
from regroup.service.operations.usage import Usage
from regroup.service.policy.access.external import ClaimRules
from regroup.service.ports.cluster import Cluster
from regroup.service.settings import Settings
from regroup.service.spec.clusters import ClusterNames, names_of, read_clusters
from regroup.service.spec.prices import PriceTable, read_prices
from regroup.service.store.store import Store
from regroup.service.tasks.server_tasks import ServerTasks

Check = Callable[[], Awaitable[str]]
"""Readiness check: returns a description of the healthy part, or raises UnavailableError with the problem."""


async def no_metrics() -> bytes:
    """Return an empty Prometheus exposition."""
    return b""


@dataclass(frozen=True)
class Services:
    """Services of one control plane."""

    store: Store
    cluster: Cluster
    settings: Settings
    clock: Callable[[], float] = time.time
    """Unix seconds."""
    render_metrics: Callable[[], Awaitable[bytes]] = no_metrics
    """Prometheus text for `/metrics`."""
    checks: Mapping[str, Check] = field(default_factory=dict[str, Check])
    """Checks of `/readyz` in addition to the database and the cluster, for example the controller's lease."""
    tasks: ServerTasks = field(default_factory=ServerTasks)
    """Supervised tasks of the server, for `/livez`."""
    refusals: Counter[Limit] = field(default_factory=Counter[Limit])
    """Requests of this process that a limit refused."""
    keys: Keys = no_keys
    """Keys of stored secrets."""

    @cached_property
    def authentication(self) -> Authentication:
        """Identities of tokens."""
        return Authentication(self.store, self.clock)

    @cached_property
    def external_tokens(self) -> ExternalTokens:
        """Identities of tokens that other systems issue."""
        settings, rules, review = self.settings, None, None
        if settings.oidc_issuer:
            rules = ClaimRules(
                settings.oidc_issuer, settings.oidc_audience, settings.oidc_subject_claim, settings.oidc_groups_claim,
                frozenset(settings.oidc_operator_groups),
            )  # fmt: skip
        if settings.kubernetes_audience:
            groups = frozenset(settings.kubernetes_operator_groups)
            review = TokenReview("https://kubernetes.default.svc", settings.kubernetes_audience, groups)
        return ExternalTokens(self.store, rules, review, self.clock)

    @cached_property
    def identities(self) -> Identities:
        """Use cases of identities, members and tokens."""
        return Identities(self.store, self.authentication, self.external_tokens, self.clock)

    @property
    def hooks(self) -> Hooks:
        """Use cases of hooks."""
        return Hooks(self.store, rules_of(self.settings), self.clock, self.keys)

    @property
    def secrets(self) -> Secrets:
        """Use cases of secrets."""
        return Secrets(self.store, self.keys, self.clock)

    @property
    def audit(self) -> Audit:
        """Use cases of audit records."""
        return Audit(self.store, self.clock)

    @cached_property
    def positions(self) -> QueuePositions:
        """Positions of jobs in the queue."""
        return QueuePositions(self.store, self.clock, self.settings.ageing_s)

    @cached_property
    def queue_list(self) -> QueueList:
        """The queue in scheduling order."""
        return QueueList(self.store, self.positions, self.clock)

    @cached_property
    def followers(self) -> Followers:
        """Reader for all that follow jobs."""
        return Followers(self.store, self.tasks)

    @cached_property
    def changes(self) -> ChangeStream:
        """Reader for all that follow the changes of all objects."""
        return ChangeStream(self.store, self.tasks, self.clock)

    @cached_property
    def log_followers(self) -> LogFollowers:
        """Reader for all that follow the output of ranks."""
        return LogFollowers(self.store, self.cluster, self.tasks)

    @cached_property
    def jobs(self) -> Jobs:
        """Use cases of jobs."""
        return Jobs(self.store, self.clock, self.positions, self.followers)

    @cached_property
    def stories(self) -> Stories:
        """Use cases of stories of jobs."""
        return Stories(self.store, self.clock)

    @cached_property
    def submissions(self) -> Submissions:
        """Use cases that check and queue specs."""
        settings = self.settings
        return Submissions(
            self.store,
            self.clock,
            self.blobs,
            self.planner,
            self.jobs,
            storage_uri=settings.storage_uri,
            allow_faults=settings.allow_faults,
            prices=self.prices,
            most_queued=settings.queued_jobs_per_identity,
            refusals=self.refusals,
            rank_users=settings.rank_users,
            clusters=self.cluster_names,
        )

    @cached_property
    def planner(self) -> LayoutPlanner:
        """Planner of layouts."""
        return LayoutPlanner(self.store, self.cluster, rule_of(self.settings), self.clock)

    @property
    def nodes(self) -> Nodes:
        """Use cases of nodes."""
        return Nodes(self.store, self.cluster, rule_of(self.settings), self.clock)

    @property
    def drain_predictor(self) -> DrainPredictor:
        """Predictor of the moves that a drain causes."""
        return DrainPredictor(self.store, self.cluster, rule_of(self.settings))

    @property
    def simulations(self) -> Simulations:
        """Simulations of the queue."""
        return Simulations(self.store, self.cluster, self.settings, self.clock)

    @cached_property
    def cluster_names(self) -> ClusterNames:
        """Names of the clusters of this server."""
        return names_of(read_clusters(self.settings.clusters_file))

    async def clusters(self) -> list[ClusterState]:
        """Return all clusters of this server, the default one first."""
        return await list_clusters(self.cluster, self.cluster_names)

    @cached_property
    def overviews(self) -> Overviews:
        """Use case of the overview."""
        return Overviews(self.store, lambda: self.nodes, self.clusters, self.clock)

    @property
    def probes(self) -> Probes:
        """Use cases of probes."""
        return Probes(self.store, self.submissions, self.nodes, self.cluster_names)

    async def topology(self) -> TopologyState:
        """Return the topology of the cluster's nodes that placement uses.

        Raises:
            UnavailableError: the cluster or the database does not answer.
        """
        nodes, probes = await self.cluster.nodes(), await self.probes.newest()
        return await asyncio.to_thread(Topology(self.settings).state, nodes, probes)

    @property
    def projects(self) -> Projects:
        """Use cases of projects."""
        return Projects(self.store, self.clock, self.prices)

    @property
    def usage(self) -> Usage:
        """Use cases of usage."""
        return Usage(self.store, self.prices, self.clock)

    @property
    def reliability(self) -> Reliability:
        """Use cases of the reliability report."""
        return Reliability(self.store, self.clock)

    @property
    def verdicts(self) -> ChaosVerdicts:
        """Use cases of chaos rehearsals."""
        return ChaosVerdicts(self.store, self.clock)

    @property
    def prices(self) -> PriceTable | None:
        """Price table of the operator."""
        return read_prices(self.settings.prices)

    @property
    def blobs(self) -> BlobStore:
        """Store of code archives."""
        settings = self.settings
        return BlobStore(
            settings.blob_uri,
            limit_bytes=settings.upload_limit_bytes,
            quota_bytes=settings.blob_quota_bytes,
            retention_s=settings.blob_retention_s,
            clock=self.clock,
        )
