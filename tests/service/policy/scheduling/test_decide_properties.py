"""Properties of each pass over the queue, and equality with a plain algorithm."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from regroup.service.domain.topology import ANY_KIND, Node, NodeKind
from regroup.service.policy.placement.place import Demand, Placement, Shortage, place
from regroup.service.policy.scheduling.backfill import reserve_start
from regroup.service.policy.scheduling.capacity import Capacity, ranks_that_fit, total_of
from regroup.service.policy.scheduling.decide import Admission, SchedulingDecision, SchedulingPolicy, Wait, decide
from regroup.service.policy.scheduling.entries import JobReference, Preemptibility, Priority, RunningJob, WaitingJob
from regroup.service.policy.scheduling.fair_share import AdmissionOrder
from regroup.service.policy.scheduling.preemption import Requeue, Shrink
from regroup.service.policy.scheduling.quota import Quota, QuotaUsage
from tests.support.inputs.queue_inputs import demand, node, sizes

AGEING_S = 3600.0

_priorities = st.sampled_from(list(Priority))
_preemptibilities = st.sampled_from(list(Preemptibility))


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[Node], list[RunningJob]]:
    """Draw nodes, and jobs that run on them."""
    nodes: list[Node] = []
    running: list[RunningJob] = []
    for number in range(draw(st.integers(1, 5))):
        free = 8
        for index in range(draw(st.integers(0, 3))):
            ranks = draw(st.integers(1, 4))
            if ranks > free:
                break
            free -= ranks
            smaller = sizes(*range(draw(st.integers(1, ranks)), ranks))
            running.append(
                RunningJob(
                    f"r{number}.{index}", f"r{number}.{index}", demand(ranks), ((f"n{number}", ranks),), smaller,
                    project=draw(st.sampled_from("ab")), priority=draw(_priorities),
                    preemptibility=draw(_preemptibilities), allocated_at_s=-draw(st.integers(0, 200)),
                    ends_s=draw(st.none() | st.integers(1, 100)), is_releasing=draw(st.booleans()),
                )
            )  # fmt: skip
        nodes.append(node(f"n{number}", 8, free=free, image=draw(st.sampled_from(["", "", "x", "y"]))))
    return nodes, running


def _named(queue: Sequence[WaitingJob]) -> list[WaitingJob]:
    return [replace(job, job_id=f"q{number}", name=f"q{number}") for number, job in enumerate(queue)]


_queues = st.lists(
    st.builds(
        lambda least, more, segment, device, kind, **fields: WaitingJob(
            "",
            "",
            sizes(
                *(segment * count for count in range(least, least + more)), segment=segment, device=device, kind=kind
            ),
            **fields,
        ),
        st.integers(1, 6), st.integers(1, 3), st.sampled_from([1, 1, 2, 4]), st.sampled_from(["cuda", "cuda", "cpu"]),
        st.sampled_from([ANY_KIND, ANY_KIND, ANY_KIND, NodeKind(image="x")]),
        project=st.sampled_from("abc"), priority=_priorities, preemptibility=_preemptibilities,
        queued_s=st.integers(-8000, 0), max_duration_s=st.none() | st.integers(1, 120),
    ),
    max_size=8,
).map(_named)  # fmt: skip
_quotas = st.dictionaries(
    st.sampled_from("abc"),
    st.builds(
        Quota, st.integers(0, 12), st.none() | st.integers(0, 12), st.none() | st.integers(1, 20),
        st.sampled_from([0.5, 1.0, 3.0]),
    ),
)  # fmt: skip
_rules = st.builds(SchedulingPolicy, st.just(AGEING_S), st.just(60.0), st.booleans())


@settings(max_examples=60)
@given(clusters(), _queues, _quotas, _rules)
def test_no_device_is_shared_gangs_are_complete_and_each_job_has_a_decision(
    cluster: tuple[list[Node], list[RunningJob]],
    queue: list[WaitingJob],
    quotas: dict[str, Quota],
    rule: SchedulingPolicy,
) -> None:
    nodes, running = cluster
    decisions = decide(queue, nodes, running, quotas, rule=rule)
    admissions = {each.job_id: each for each in decisions if isinstance(each, Admission)}
    assert sorted([*admissions, *(each.job_id for each in decisions if isinstance(each, Wait))]) == sorted(
        job.job_id for job in queue
    )
    used = {each.id: 0 for each in nodes}
    for admission in admissions.values():
        assert sum(slot.ranks for slot in admission.placement.slots) == admission.demand.ranks, "the gang is incomplete"
        for slot in admission.placement.slots:
            used[slot.node.id] += slot.ranks
            assert slot.node.kind.satisfies(admission.demand.kind)
    assert all(used[each.id] <= each.free_cpus for each in nodes), "a device was allocated twice"
    jobs = {job.job_id: job for job in queue}
    use = _use(running)
    for job_id, admission in admissions.items():
        use[jobs[job_id].project] = use.get(jobs[job_id].project, 0) + admission.demand.ranks
        assert admission.demand in [size.demand for size in jobs[job_id].sizes], "the size is illegal"
    before = _use(running)
    for project, quota in quotas.items():
        limit = quota.limit if quota.limit is not None else 10**9
        assert use.get(project, 0) <= max(limit, before.get(project, 0)), "a limit was exceeded"
    _check_reserved_devices(nodes, admissions.values(), quotas, jobs, before)
    _check_preemptions(decisions, running)


def _use(running: Sequence[RunningJob]) -> dict[str, int]:
    use: dict[str, int] = {}
    for job in running:
        use[job.project] = use.get(job.project, 0) + job.demand.ranks
    return use


def _check_reserved_devices(
    nodes: Sequence[Node],
    admissions: Iterable[Admission],
    quotas: Mapping[str, Quota],
    jobs: Mapping[str, WaitingJob],
    use: dict[str, int],
) -> None:
    """Check that an admission beyond a guarantee left the devices free that are reserved for others."""
    free = sum(int(each.free_cpus) for each in nodes)
    has_guarantees = any(quota.guaranteed for quota in quotas.values())
    for admission in admissions:
        project = jobs[admission.job_id].project
        free, use[project] = free - admission.demand.ranks, use.get(project, 0) + admission.demand.ranks
        if has_guarantees and use[project] > quotas.get(project, Quota()).guaranteed:
            reserved = sum(max(0, each.reserved - use.get(name, 0)) for name, each in quotas.items() if name != project)
            assert free >= reserved, "devices reserved for others were lent"


def _check_preemptions(decisions: Sequence[SchedulingDecision], running: Sequence[RunningJob]) -> None:
    held = {job.job_id: job for job in running}
    preempted = [each.job_id for each in decisions if isinstance(each, Shrink | Requeue)]
    assert len(preempted) == len(set(preempted)), "a job has one decision"
    for each in decisions:
        if isinstance(each, Shrink | Requeue):
            job = held[each.job_id]
            assert job.preemptibility is not Preemptibility.none and not job.is_releasing and job.allocated_at_s <= -60
        if isinstance(each, Requeue):
            assert held[each.job_id].preemptibility is Preemptibility.full
        if isinstance(each, Shrink):
            released = sum(ranks for _, ranks in each.releases)
            assert (
                each.layout.world_size
                == held[each.job_id].demand.ranks - released
                >= held[each.job_id].smaller_sizes[0].ranks
            )


@settings(max_examples=60)
@given(clusters(), _queues)
def test_backfilled_jobs_delay_no_promised_start(
    cluster: tuple[list[Node], list[RunningJob]], queue: list[WaitingJob]
) -> None:
    """Compare a promised start with and without backfilled jobs, if all jobs end as expected."""
    nodes, running = cluster
    running = [replace(job, preemptibility=Preemptibility.none, is_releasing=False) for job in running]
    decisions = decide(queue, nodes, running)
    jobs = {job.job_id: job for job in queue}
    waiting = [each for each in decisions if isinstance(each, Wait) and each.why.reason is not Shortage.TOO_LARGE]
    for promise in (each for each in waiting[:1] if each.start_s is not None):
        at = decisions.index(promise)
        request = next(size.demand for size in reversed(jobs[promise.job_id].sizes) if _fits(size.demand, nodes))
        ahead = _admitted(decisions[:at], jobs)
        all_admitted = _admitted(decisions, jobs)
        alone, with_others = (
            reserve_start(
                JobReference("h", "h", "default"), request, _capacity_after(nodes, admitted), [*running, *admitted], ()
            ).start_s
            for admitted in (ahead, all_admitted)
        )
        assert alone == promise.start_s and with_others == promise.start_s


def _fits(request: Demand, nodes: Sequence[Node]) -> bool:
    return sum(ranks_that_fit(request, each, total_of(each)) for each in nodes) >= request.ranks


def _admitted(decisions: Sequence[SchedulingDecision], jobs: Mapping[str, WaitingJob]) -> list[RunningJob]:
    return [
        RunningJob(
            each.job_id, each.job_id, each.demand, tuple(_by_id(each.placement)),
            ends_s=jobs[each.job_id].max_duration_s,
        )
        for each in decisions
        if isinstance(each, Admission)
    ]  # fmt: skip


def _capacity_after(nodes: Sequence[Node], admitted: Sequence[RunningJob]) -> Capacity:
    capacity = Capacity(nodes)
    for job in admitted:
        for node_id, ranks in job.node_ranks:
            here = capacity[node_id]
            gpus = here.free_gpus - (ranks if job.demand.device == "cuda" else 0)
            capacity.lower_free(node_id, (here.free_cpus - ranks, gpus, 0))
    return capacity


@settings(max_examples=60)
@given(clusters(), _queues, st.booleans())
def test_decisions_equal_those_of_the_plain_algorithm(
    cluster: tuple[list[Node], list[RunningJob]], queue: list[WaitingJob], resizes: bool
) -> None:
    """Compare with an algorithm that calls `place` for each job and size, and tries each end for a promise."""
    nodes, running = cluster
    running = [replace(job, preemptibility=Preemptibility.none, is_releasing=False) for job in running]
    admissions = {
        each.job_id: (each.demand, each.placement)
        for each in decide(queue, nodes, running, rule=SchedulingPolicy(can_resize=resizes))
        if isinstance(each, Admission)
    }
    assert {
        job_id: (request, _by_id(placement)) for job_id, (request, placement) in admissions.items()
    } == _decide_plainly(queue, nodes, running, resizes)


_Promise = tuple[float | None, dict[str, tuple[float, float]], Demand, list[tuple[str, tuple[float, float]]]]
"""Start, free resources that remain on its nodes, demand, and resources that it uses there."""


def _by_id(placement: Placement) -> list[tuple[str, int]]:
    return [(slot.node.id, slot.ranks) for slot in placement.slots]


def _decide_plainly(
    queue: Sequence[WaitingJob], nodes: Sequence[Node], running: Sequence[RunningJob], resizes: bool
) -> dict[str, tuple[Demand, list[tuple[str, int]]]]:
    usage = QuotaUsage({})
    for job in running:
        usage.add(job.project, job.demand.ranks, job.non_preemptible_ranks)
    now = {each.id: (each.free_cpus, each.free_gpus) for each in nodes}
    promises: list[_Promise] = []
    found: dict[str, tuple[Demand, list[tuple[str, int]]]] = {}
    placed: list[RunningJob] = []
    for job in AdmissionOrder(queue, usage, now_s=0.0, ageing_s=SchedulingPolicy().ageing_s):
        legal = [size.demand for size in job.sizes if _fits(size.demand, nodes)]
        candidates = legal[::-1] if resizes else legal[-1:]
        for request in candidates:
            ends_before_promises = job.max_duration_s is not None and all(
                at is not None and job.max_duration_s <= at for at, *_ in promises
            )
            view = dict(now) if ends_before_promises else _without_promised(now, nodes, promises)
            outcome = place(request, _with(nodes, view))
            if isinstance(outcome, Placement):
                found[job.job_id] = request, _by_id(outcome)
                placed.append(RunningJob("", "", request, tuple(_by_id(outcome)), ends_s=job.max_duration_s))
                usage.add(job.project, request.ranks, job.non_preemptible_ranks(request.ranks))
                for node_id, ranks in _by_id(outcome):
                    less = (ranks, ranks if request.device == "cuda" else 0)
                    now[node_id] = _minus(now[node_id], less)
                    if not ends_before_promises:
                        for _, left, *_ in promises:
                            if node_id in left:
                                left[node_id] = _minus(left[node_id], less)
                break
        else:
            if candidates and not any(request.device == candidates[-1].device for _, _, request, _ in promises):
                promises.append(_promise(candidates[-1], nodes, now, [*running, *placed], promises))
    return found


def _minus(one: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    return one[0] - other[0], one[1] - other[1]


def _with(nodes: Sequence[Node], free: Mapping[str, tuple[float, float]]) -> list[Node]:
    return [replace(each, free_cpus=free[each.id][0], free_gpus=free[each.id][1]) for each in nodes if each.id in free]


def _without_promised(
    now: Mapping[str, tuple[float, float]],
    nodes: Sequence[Node],
    promises: Sequence[_Promise],
) -> dict[str, tuple[float, float]]:
    view = dict(now)
    for at, left, request, _ in promises:
        if at is None:
            view = {each.id: view[each.id] for each in nodes if each.id in view and not _fits_one(request, each)}
        for node_id, free in left.items():
            if node_id in view:
                view[node_id] = min(view[node_id][0], free[0]), min(view[node_id][1], free[1])
    return view


def _fits_one(request: Demand, each: Node) -> bool:
    return ranks_that_fit(request, each, total_of(each)) > 0


def _promise(
    request: Demand,
    nodes: Sequence[Node],
    now: Mapping[str, tuple[float, float]],
    running: Sequence[RunningJob],
    before: Sequence[_Promise],
) -> _Promise:
    for end_s in sorted({job.ends_s for job in running if job.ends_s is not None}):
        free = dict(now)
        for job in running:
            if job.ends_s is not None and job.ends_s <= end_s:
                for node_id, ranks in job.node_ranks:
                    gpus = ranks if job.demand.device == "cuda" else 0
                    free[node_id] = free[node_id][0] + ranks, free[node_id][1] + gpus
        for *_, admitted in before:
            for node_id, less in admitted:
                free[node_id] = _minus(free[node_id], less)
        outcome = place(request, _with(nodes, free))
        if isinstance(outcome, Placement):
            used = [(node_id, (ranks, ranks if request.device == "cuda" else 0)) for node_id, ranks in _by_id(outcome)]
            return end_s, {node_id: _minus(free[node_id], less) for node_id, less in used}, request, used
    return None, {}, request, []
