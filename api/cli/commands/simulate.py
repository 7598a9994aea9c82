"""The command simulate: run a cluster and its queue on traces."""

from pathlib import Path
from typing import Annotated

import typer

from regroup.api.cli.common.options import AsJson
from regroup.api.cli.common.output import print_json, print_message, print_table

Cluster = Annotated[Path, typer.Argument(metavar="CLUSTER", help="Nodes and projects, YAML; see docs/guides/queue.md.")]
Jobs = Annotated[
    Path | None, typer.Option("--jobs", metavar="CSV", help="Trace of submitted jobs.  [default: generated]")
]
Failures = Annotated[
    Path | None,
    typer.Option("--failures", metavar="CSV", help="Trace of node failures.  [default: generated at a published rate]"),
]
Days = Annotated[float, typer.Option("--days", metavar="N", min=0.001, max=366, help="Simulated time, in days.")]
Load = Annotated[
    float,
    typer.Option("--load", metavar="SHARE", min=0.01, max=10, help="Share of the cluster that generated jobs request."),
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", help="Random seed of the generated traces.")]


def simulate(
    cluster: Cluster,
    jobs: Jobs = None,
    failures: Failures = None,
    days: Days = 7.0,
    load: Load = 0.8,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Simulate a cluster, its projects and its jobs: waits, utilisation, goodput. Needs no server."""
    import random

    from regroup.service.simulator import traces
    from regroup.service.simulator.simulator import simulate as run

    described, until_s, rng = traces.read_cluster(cluster), days * 86400.0, random.Random(seed)
    nodes = traces.nodes_of(described)
    devices = sum(int(node.gpus or node.cpus) for node in nodes)
    arrivals = traces.jobs(devices, until_s, load, rng) if jobs is None else traces.read_jobs(jobs)
    out = traces.failures(nodes, until_s, 4 * 3600.0, rng) if failures is None else traces.read_outages(failures, nodes)
    if not as_json:
        print_message(f"{devices} devices, {len(arrivals)} jobs, {len(out)} failures, {days:g} days")
    report = run(nodes, arrivals, out, traces.quotas_of(described), traces.budgets_of(described), until_s=until_s)
    if as_json:
        print_json(report)
        return
    print(
        f"{report.finished} of {report.jobs} jobs finished, {report.never_started} never started; {report.suspended} "
        f"preemptions; utilisation {report.utilisation:.1%}, goodput {report.goodput:.2%}; "
        f"{report.fragmentation:.1%} of the free devices were on partly used nodes"
    )
    if report.project_device_hours or report.budget_suspensions:
        used = ", ".join(f"{name} {hours:,.0f}" for name, hours in report.project_device_hours.items())
        print(f"{report.budget_suspensions} jobs were suspended at a budget; device-hours: {used or '-'}")
    rows = [
        (group, str(of.jobs), f"{of.p50_s:.0f}", f"{of.p95_s:.0f}", f"{of.max_s:.0f}")
        for group, of in report.waits.items()
    ]
    print_table(("FIRST WAIT (S)", "JOBS", "P50", "P95", "MAX"), rows)
