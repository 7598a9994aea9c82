"""Requests to an autoscaler while jobs wait."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from regroup.service.domain.layout import Layout
from regroup.service.domain.topology import Level, NodeKind
from regroup.service.policy.placement.demand import Demand, Shortage
from regroup.service.policy.scheduling.autoscaler_request import (
    MAX_BUNDLES,
    SOLVED_BY_NODES,
    Bundle,
    NodeRequest,
    build_node_request,
    bundles_of,
)
from regroup.service.policy.scheduling.entries import RunningJob, Size, WaitingJob
from regroup.service.policy.scheduling.quota import WaitCause

PAIRS = Demand(8, 2, "cuda", 4, 2**30)
ONES = Demand(3, 1, "cpu", 2)


def waiting(name: str, *demands: Demand, queued_s: float = 0.0) -> WaitingJob:
    sizes = tuple(Size(Layout(dp_shard=demand.ranks), demand) for demand in demands)
    return WaitingJob(name, name, sizes, queued_s=queued_s)


def test_groups_of_ranks_on_one_node_become_one_bundle() -> None:
    assert bundles_of(PAIRS) == [Bundle(8, 2, 2**31)] * 4
    assert bundles_of(ONES) == [Bundle(2)] * 3
    assert bundles_of(replace(PAIRS, required=Level.NODE)) == [Bundle(32, 8, 2**33)]
    assert bundles_of(replace(PAIRS, segment_within=Level.GPU_DOMAIN)) == [Bundle(4, 1, 2**30)] * 8
    assert Bundle(8, 2, 2**31).to_ray() == {"CPU": 8.0, "GPU": 2.0, "memory": 2.0**31}
    assert Bundle(2).to_ray() == {"CPU": 2.0} and Bundle(2).labels() == {}
    of_a_kind = bundles_of(replace(PAIRS, kind=NodeKind("H100", "cu130")))[0]
    assert of_a_kind.labels() == {"ray.io/accelerator-type": "H100", "regroup.io/image": "cu130"}


def test_a_request_includes_running_jobs_and_is_empty_if_no_job_waits() -> None:
    running = [RunningJob("r", "r", replace(ONES, ranks=5), (("n1", 4), ("n2", 1)))]
    leaving = [RunningJob("l", "l", ONES, (("n3", 3),), is_releasing=True)]
    assert build_node_request([], [*running, *leaving], now_s=100.0, after_s=0.0) == NodeRequest()
    request = build_node_request(
        [(waiting("w", ONES), Shortage.RESOURCES)], [*running, *leaving], now_s=100.0, after_s=0.0
    )
    assert request == NodeRequest((Bundle(2), Bundle(2), Bundle(2), Bundle(2), Bundle(8)), frozenset({"w"}))


def test_a_request_is_for_the_target_size_of_a_job() -> None:
    request = build_node_request(
        [(waiting("w", replace(ONES, ranks=1), ONES), Shortage.TOO_LARGE)], [], now_s=9.0, after_s=9.0
    )
    assert request.bundles == (Bundle(2),) * 3
    assert (
        build_node_request([(waiting("w", ONES, queued_s=1.0), Shortage.RESOURCES)], [], now_s=9.0, after_s=9.0)
        == NodeRequest()
    )


def test_a_request_is_limited_and_contains_only_complete_jobs() -> None:
    large = replace(ONES, ranks=MAX_BUNDLES)
    request = build_node_request(
        [(waiting("a", ONES), Shortage.RESOURCES), (waiting("b", large), Shortage.RESOURCES),
         (waiting("c", ONES), Shortage.PRIORITY)],
        [], now_s=9.0, after_s=0.0,
    )  # fmt: skip
    assert request == NodeRequest((Bundle(2),) * 6, frozenset({"a", "c"}))


REASONS = st.sampled_from([*Shortage, *WaitCause])


@settings(max_examples=60)
@given(st.lists(st.tuples(REASONS, st.integers(1, 9), st.floats(0, 100)), max_size=12), st.floats(0, 100))
def test_a_request_contains_only_jobs_that_more_nodes_would_start(
    jobs: list[tuple[Shortage | WaitCause, int, float]], after_s
):
    line = [
        (waiting(f"j{number}", replace(ONES, ranks=ranks), queued_s=queued_s), reason)
        for number, (reason, ranks, queued_s) in enumerate(jobs)
    ]
    request = build_node_request(line, [], now_s=100.0, after_s=after_s)
    expected = {
        job.job_id: job for job, reason in line if reason in SOLVED_BY_NODES and 100.0 - job.queued_s >= after_s
    }
    assert request.jobs == expected.keys()
    assert len(request.bundles) == sum(job.sizes[-1].ranks for job in expected.values())
