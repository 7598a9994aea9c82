"""The simulator, and the invariants of the queue at each moment of a simulation."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from regroup.service.domain.topology import Node
from regroup.service.policy.scheduling.decide import SchedulingPolicy
from regroup.service.policy.scheduling.entries import Preemptibility, Priority, RunningJob, WaitingJob
from regroup.service.policy.scheduling.quota import Quota
from regroup.service.simulator.simulator import Arrival, Costs, Outage, simulate
from tests.support.inputs.queue_inputs import node, sizes

FREE = Costs(start_s=0.0, suspend_s=1.0, restart_s=10.0, lost_s=5.0)


def arrival(name: str, at_s: float, work_s: float, *ranks: int, **fields: object) -> Arrival:
    job = WaitingJob(name, name, sizes(*ranks), queued_s=at_s, max_duration_s=work_s)
    return Arrival(at_s, replace(job, **fields), work_s)


def test_jobs_run_one_after_another_and_the_totals_are_correct() -> None:
    report = simulate([node("n", 8)], [arrival("a", 0, 100, 8), arrival("b", 0, 100, 8)], until_s=400.0, costs=FREE)
    assert (report.finished, report.jobs, report.never_started) == (2, 2, 0)
    assert report.utilisation == (100 + 100) / 400 and report.goodput == 1.0
    assert report.waits["all"].max_s == 120.0, (
        "passes are 10 s apart: starts at 10 s and, after the end at 110 s, at 120 s"
    )


def test_a_failure_costs_work_and_a_restart_on_a_spare_or_in_the_queue() -> None:
    arrivals = [arrival("a", 0, 100, 8)]
    spare = simulate([node("n"), node("o")], arrivals, [Outage(60, "n", 1e6)], until_s=300.0, costs=FREE)
    assert spare.finished == 1 and spare.failures == 1
    assert abs(spare.utilisation - 115 / (300 * 2)) < 1e-9, "5 s of repeated work and 10 s for the restart"
    assert abs(spare.goodput - 100 / 115) < 1e-9
    alone = simulate([node("n")], arrivals, [Outage(60, "n", 100)], until_s=300.0, costs=FREE)
    assert alone.finished == 1 and abs(alone.utilisation - 105 / 300) < 1e-9


def test_a_suspended_job_resumes_its_work() -> None:
    arrivals = [
        arrival("low", 0, 1000, 8, priority=Priority.low),
        arrival("high", 700, 100, 8, priority=Priority.high),
    ]
    report = simulate([node("n", 8)], arrivals, until_s=2000.0, costs=FREE)
    assert (report.finished, report.suspended) == (2, 1) and report.goodput > 0.999


def test_low_jobs_are_not_starved_by_a_stream_of_higher_ones() -> None:
    stream = [arrival(f"s{number}", 40.0 * number, 100, 4, priority=Priority.critical) for number in range(400)]
    waiting = arrival("low", 1, 50, 8, priority=Priority.low, max_duration_s=None)
    ageing = SchedulingPolicy(ageing_s=600.0)
    report = simulate([node("n", 8)], [*stream, waiting], until_s=16000.0, costs=FREE, rule=ageing)
    assert report.waits["priority low"].max_s < 5000
    without_ageing = simulate(
        [node("n", 8)], [*stream, waiting], until_s=16000.0, costs=FREE, rule=SchedulingPolicy(ageing_s=1e9)
    )
    assert "priority low" not in without_ageing.waits, "without ageing it never starts"


def test_a_job_starts_after_its_dependencies() -> None:
    report = simulate(
        [node("n", 8)],
        [arrival("then", 0, 10, 1, pending_dependencies=("first",)), arrival("first", 0, 100, 1)],
        until_s=300,
        costs=FREE,
    )
    assert report.finished == 2 and report.waits["all"].max_s == 120.0


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.booleans())
def test_no_device_is_shared_gangs_are_complete_and_quotas_hold(seed: int, resizes: bool) -> None:
    rng = random.Random(seed)
    nodes = [node(f"n{number}") for number in range(rng.randint(1, 4))]
    arrivals: list[Arrival] = []
    for number in range(rng.randint(1, 25)):
        most = rng.choice([1, 2, 4, 8, 12])
        arrivals.append(
            arrival(
                f"j{number}", rng.uniform(0, 3000), rng.uniform(10, 2000), *range(rng.randint(1, most), most + 1),
                project=rng.choice("ab"), priority=rng.choice(list(Priority)),
                preemptibility=rng.choice(list(Preemptibility)),
            )
        )  # fmt: skip
    outages = [Outage(rng.uniform(0, 3000), rng.choice(nodes).id, 500.0) for _ in range(rng.randint(0, 1))]
    quotas = {"a": Quota(guaranteed=4, limit=16), "b": Quota(limit=20)}
    legal = {arrival.job.job_id: {size.ranks for size in arrival.job.sizes} for arrival in arrivals}

    def check(now_s: float, present: Sequence[Node], running: Sequence[RunningJob]) -> None:
        used, use = Counter[str](), Counter[str]()
        for job in running:
            assert sum(ranks for _, ranks in job.node_ranks) == job.demand.ranks in legal[job.job_id], (
                "the gang is incomplete"
            )
            use[job.project] += job.demand.ranks
            for node_id, ranks in job.node_ranks:
                used[node_id] += ranks
        assert all(each.free_gpus == each.gpus - used[each.id] >= 0 for each in present), "a device is allocated twice"
        assert all(use[name] <= (quota.limit or 0) for name, quota in quotas.items()), "a limit is exceeded"

    rule = SchedulingPolicy(ageing_s=600.0, min_run_s=60.0, can_resize=resizes)
    report = simulate(
        nodes, arrivals, outages, quotas, until_s=200_000.0, rule=rule, costs=FREE, pass_interval_s=20.0, observe=check
    )
    fits = [arrival for arrival in arrivals if _can_ever_start(arrival.job, 8 * len(nodes), quotas)]
    assert report.finished == len(fits), "each job that can ever start finishes"
    assert 0.0 <= report.goodput <= 1.0 + 1e-9 and report.utilisation <= 1.0


def _can_ever_start(job: WaitingJob, devices: int, quotas: dict[str, Quota]) -> bool:
    quota = quotas[job.project]
    unreserved = max(0, devices - sum(each.guaranteed for each in quotas.values()))
    return any(
        size.ranks <= min(devices, quota.limit or devices)
        and max(0, job.non_preemptible_ranks(size.ranks) - quota.guaranteed) <= unreserved
        for size in job.sizes
    )
