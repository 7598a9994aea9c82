"""Clusters, jobs and failures for the simulator: read from files, or generated from a seed."""

import csv
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import ConfigDict, Field, ValidationError

from regroup.service.documents.document import DocumentError, in_file
from regroup.service.documents.yaml_text import parse_yaml
from regroup.service.domain.errors import FieldIssue, SpecError
from regroup.service.domain.layout import Layout
from regroup.service.domain.topology import Node
from regroup.service.policy.placement.place import Demand
from regroup.service.policy.scheduling.entries import Preemptibility, Priority, Size, WaitingJob
from regroup.service.policy.scheduling.quota import Quota
from regroup.service.simulator.budgets import Budgets
from regroup.service.simulator.simulator import Arrival, Outage
from regroup.service.spec.budget import UsageBudget
from regroup.service.spec.issues import find_issues
from regroup.service.spec.types import MAX_DURATION_S, MAX_RANKS, Name, SpecModel

P = TypeVar("P", bound=SpecModel)
_PRIORITIES: Sequence[Literal["low", "normal", "high", "critical"]] = ("low", "normal", "high", "critical")
MTTF_DEVICE_HOURS = 1.8 * 16_384
"""Device-hours between failures: a mean of 1.8 h at 16,384 GPUs, as Meta published for 150 million GPU-hours."""


Positive = Annotated[int, Field(ge=1, le=MAX_RANKS)]
Seconds = Annotated[float, Field(ge=0, le=MAX_DURATION_S)]
_Devices = Annotated[int, Field(ge=0, lt=2**53)]


class _Part(SpecModel):
    model_config = ConfigDict(str_strip_whitespace=True)


class ProjectPart(_Part):
    """Quota of one project."""

    guaranteed: _Devices = 0
    borrowable: _Devices | None = None
    limit: _Devices | None = None
    weight: float = Field(default=1.0, ge=1e-6, le=1e6)
    budget: UsageBudget | None = None
    """Device-hours or cost that its jobs may use together."""


class ClusterPart(_Part):
    """A cluster of identical nodes."""

    nodes: Annotated[int, Field(ge=1, le=100_000)]
    gpus_per_node: int = Field(default=8, ge=0, le=1024)
    cpus_per_node: Positive = 96
    nodes_per_domain: Positive = 1
    """Nodes that share one `ray.io/gpu-domain`."""
    nodes_per_zone: Positive = 512
    price: float | None = Field(default=None, ge=0, le=1e9)
    """Price of a device-hour, for budgets in money."""
    projects: dict[Name, ProjectPart] = {}


class JobPart(_Part):
    """A line of a job trace."""

    at_s: Seconds
    name: str
    ranks: Positive
    work_s: float = Field(gt=0, le=MAX_DURATION_S)
    """Duration of the work with `ranks` ranks, in seconds."""
    min_ranks: Positive | None = None
    """Ranks of the smallest size; `ranks` if absent. Each size in between is half of the next."""
    max_duration_s: float | None = Field(default=None, gt=0, le=MAX_DURATION_S)
    """`max_duration` of the job spec, in seconds."""
    project: Name = "default"
    priority: Literal["low", "normal", "high", "critical"] = "normal"
    preemptibility: Literal["none", "semi", "full"] = "full"
    device: Literal["cpu", "cuda"] = "cuda"
    cpus: Positive = 4
    segment: Positive = 1
    depends_on: str = ""
    """Names of jobs, separated by spaces."""
    budget_device_hours: float | None = Field(default=None, gt=0, le=1e12)
    """`budget.device_hours` of the job spec."""


class OutagePart(_Part):
    """A line of a failure trace."""

    at_s: Seconds
    node: str
    duration_s: float = Field(gt=0, le=MAX_DURATION_S)


def read_cluster(path: Path) -> ClusterPart:
    """Read a cluster from YAML or JSON.

    Raises:
        SpecError: the file cannot be read, or a field is wrong.
    """
    try:
        data = parse_yaml(path.read_bytes())
    except OSError as error:
        raise SpecError([FieldIssue("", f"cannot read the cluster: {error.strerror}", str(path))]) from error
    except DocumentError as error:
        raise in_file(error, path) from error
    return _valid(ClusterPart, data, str(path))


def nodes_of(cluster: ClusterPart) -> list[Node]:
    """Return the nodes of a cluster, named from `n00000`, with all resources free."""
    return [
        Node(
            name := f"n{number:05d}",
            name,
            "",
            labels={
                "ray.io/availability-zone": f"z{number // cluster.nodes_per_zone}",
                "ray.io/gpu-domain": f"d{number // cluster.nodes_per_domain:05d}",
            },
            cpus=cluster.cpus_per_node,
            gpus=cluster.gpus_per_node,
            free_cpus=cluster.cpus_per_node,
            free_gpus=cluster.gpus_per_node,
        )
        for number in range(cluster.nodes)
    ]


def quotas_of(cluster: ClusterPart) -> dict[str, Quota]:
    """Return the quota of each project of a cluster."""
    return {name: Quota(**part.model_dump(exclude={"budget"})) for name, part in cluster.projects.items()}


def budgets_of(cluster: ClusterPart) -> Budgets:
    """Return the budgets of the projects of a cluster.

    Raises:
        SpecError: a budget is in money, and the cluster has no price.
    """
    budgets = {name: part.budget for name, part in cluster.projects.items() if part.budget is not None}
    for name, budget in budgets.items():
        if budget.cost is not None and cluster.price is None:
            issue = FieldIssue.at(
                ("projects", name, "budget", "cost"), "needs the `price` of a device-hour", budget.cost
            )
            raise SpecError([issue])
    return Budgets(budgets, cluster.price)


def read_jobs(path: Path) -> list[Arrival]:
    """Read a job trace: CSV with the columns of `JobPart`.

    Raises:
        SpecError: a line is wrong, `depends_on` names an unknown job, or jobs wait for each other in a cycle.
    """
    parts = [_valid(JobPart, row, f"{path}:{number}") for number, row in _rows(path)]
    names = {part.name for part in parts}
    if len(names) < len(parts):
        raise SpecError([FieldIssue("name", "the names of the jobs in a trace must be unique", str(path))])
    for part in parts:
        if unknown := [name for name in part.depends_on.split() if name not in names]:
            message = f"job {part.name!r} depends on a job which is not in the trace"
            raise SpecError([FieldIssue("depends_on", message, unknown[0])])
    if cycle := _find_cycle({part.name: part.depends_on.split() for part in parts}):
        raise SpecError([FieldIssue("depends_on", "these jobs wait for each other in a cycle", " → ".join(cycle))])
    return [arrival(part) for part in parts]


def arrival(part: JobPart) -> Arrival:
    """Return a job of the trace as an arrival for the simulator."""
    sizes = [part.ranks]
    while part.min_ranks is not None and sizes[0] % (2 * part.segment) == 0 and sizes[0] // 2 >= part.min_ranks:
        sizes.insert(0, sizes[0] // 2)
    legal = tuple(
        Size(
            Layout(dp_shard=ranks // part.segment, tp=part.segment),
            Demand(ranks, part.segment, part.device, part.cpus),
        )
        for ranks in sizes
    )
    job = WaitingJob(
        part.name, part.name, legal, part.project, Priority[part.priority], Preemptibility(part.preemptibility),
        part.at_s, part.max_duration_s, tuple(part.depends_on.split()),
    )  # fmt: skip
    own = part.budget_device_hours
    return Arrival(part.at_s, job, part.work_s, None if own is None else UsageBudget(device_hours=own))


def read_outages(path: Path, nodes: Sequence[Node]) -> list[Outage]:
    """Read a failure trace: CSV with `at_s,node,duration_s`.

    Raises:
        SpecError: a line is wrong; its number is in the error.
    """
    names = {node.id for node in nodes}
    found: list[Outage] = []
    for number, row in _rows(path):
        part = _valid(OutagePart, row, f"{path}:{number}")
        if part.node not in names:
            raise SpecError([FieldIssue("node", "the cluster has no such node", part.node)])
        found.append(Outage(part.at_s, part.node, part.duration_s))
    return found


def failures(nodes: Sequence[Node], until_s: float, repair_s: float, rng: random.Random) -> list[Outage]:
    """Generate failures at the published rate (`MTTF_DEVICE_HOURS`), on random nodes that have not failed already."""
    devices = sum(node.gpus or node.cpus for node in nodes)
    found: list[Outage] = []
    back_s: dict[str, float] = {}
    at_s = 0.0
    while (at_s := at_s + rng.expovariate(devices / (MTTF_DEVICE_HOURS * 3600.0))) < until_s:
        node = rng.choice(nodes).id
        if at_s >= back_s.get(node, 0.0):
            back_s[node] = at_s + repair_s
            found.append(Outage(at_s, node, repair_s))
    return found


def jobs(devices: int, until_s: float, load: float, rng: random.Random) -> list[Arrival]:
    """Generate jobs that request the fraction `load` of the cluster.

    Most jobs are small and short. A few large ones use most device-hours.
    """
    found: list[Arrival] = []
    requested = 0.0
    while requested < load * devices * until_s:
        ranks = min(devices // 4, rng.choices([1, 4, 8, 32, 128, 512, 2048], [20, 15, 30, 15, 12, 6, 2])[0])
        work_s = min(3 * 86400.0, rng.lognormvariate(8.0, 1.4))
        requested += ranks * work_s
        part = JobPart(
            at_s=rng.uniform(0, until_s), name=f"j{len(found)}", ranks=ranks, work_s=work_s,
            max_duration_s=work_s * 1.5 + 600, project=f"p{rng.randrange(8)}", segment=8 if ranks >= 128 else 1,
            priority=rng.choices(_PRIORITIES, [3, 5, 2, 0.2])[0],
        )  # fmt: skip
        found.append(arrival(part))
    return found


def _rows(path: Path) -> list[tuple[int, dict[str, str]]]:
    try:
        with path.open(newline="") as file:
            reader = csv.DictReader(file)
            return [
                (reader.line_num, {name: value for name, value in row.items() if value not in ("", None)})
                for row in reader
            ]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise SpecError([FieldIssue("", f"cannot read the trace: {error}", str(path))]) from error


def _valid(part: type[P], data: object, place: str) -> P:
    try:
        return part.model_validate(data)
    except ValidationError as error:
        issues = find_issues(error, data)
        raise SpecError([replace(issue, path=f"{place} {issue.path}".rstrip()) for issue in issues]) from error


def _find_cycle(dependencies: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the names along a cycle, with the first one repeated at its end; empty if there is none."""
    clear = set[str]()
    for start in dependencies:
        path: list[str] = []
        ahead = [[start]]
        while ahead:
            if not ahead[-1]:
                ahead.pop()
                if path:
                    clear.add(path.pop())
                continue
            name = ahead[-1].pop()
            if name in path:
                return [*path[path.index(name) :], name]
            if name not in clear:
                path.append(name)
                ahead.append(list(dependencies[name]))
    return []
