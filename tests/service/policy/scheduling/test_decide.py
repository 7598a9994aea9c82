"""The rules of the queue."""

from collections.abc import Sequence
from dataclasses import replace

from regroup.service.domain.topology import Level, Node
from regroup.service.policy.placement.link_speeds import GPU_LINKS, LinkSpeed
from regroup.service.policy.placement.place import Shortage
from regroup.service.policy.scheduling.decide import (
    Admission,
    SchedulingDecision,
    SchedulingPolicy,
    Wait,
    decide,
    queue_positions,
)
from regroup.service.policy.scheduling.entries import Preemptibility, Priority, RunningJob, WaitingJob
from regroup.service.policy.scheduling.fair_share import AdmissionOrder, aged_priority
from regroup.service.policy.scheduling.preemption import Requeue, Shrink
from regroup.service.policy.scheduling.quota import Quota, QuotaUsage, WaitCause
from tests.support.inputs.queue_inputs import demand, node, sizes

AGEING_S = 3600.0
RULE = SchedulingPolicy(ageing_s=AGEING_S, min_run_s=60.0, can_resize=True)


def waiting(name: str, *ranks: int, queued_s: float = 0.0, device: str = "cuda", **fields: object) -> WaitingJob:
    return replace(WaitingJob(name, name, sizes(*ranks, device=device), queued_s=queued_s), **fields)


def running(name: str, ranks: int, where: str, *smaller: int, device: str = "cuda", **fields: object) -> RunningJob:
    held = RunningJob(name, name, demand(ranks, device=device), ((where, ranks),), sizes(*smaller))
    return replace(held, allocated_at_s=-1000.0, **fields)


def outcomes(decisions: Sequence[SchedulingDecision]) -> dict[str, object]:
    """Return the decision on each job: its ranks, its reason to wait, its smaller size, or `suspend`."""

    def of(decision: SchedulingDecision) -> object:
        match decision:
            case Admission():
                return decision.layout.world_size
            case Wait():
                return decision.why.reason
            case Shrink():
                return decision.layout.world_size
            case Requeue():
                return "suspend"

    return {decision.job_id: of(decision) for decision in decisions}


def test_priority_and_fair_share_take_precedence_over_age() -> None:
    queue = [waiting("old", 1), waiting("urgent", 1, queued_s=9.0, priority=Priority.high)]
    assert [job.name for job in order(queue)] == ["urgent", "old"]
    queue = [waiting("a1", 4, project="a"), waiting("a2", 4, project="a"), waiting("b1", 4, project="b", queued_s=9.0)]
    assert list(outcomes(decide(queue, [node("n", 8)]))) == ["a1", "b1", "a2"], "b uses less after the admission of a1"
    weights = {"a": Quota(weight=3.0)}
    assert list(outcomes(decide(queue, [node("n", 8)], [running("r", 1, "x", project="b")], weights)))[:2] == [
        "a1",
        "b1",
    ]


def order(queue: Sequence[WaitingJob], now_s: float = 10.0, usage: QuotaUsage | None = None) -> list[WaitingJob]:
    return list(AdmissionOrder(queue, usage or QuotaUsage({}), now_s=now_s, ageing_s=AGEING_S))


def test_waiting_jobs_age_and_none_starves() -> None:
    old = waiting("old", 1, priority=Priority.low)
    late = waiting("late", 1, priority=Priority.critical, queued_s=3 * AGEING_S + 1)
    assert [job.name for job in order([old, late], 3 * AGEING_S + 2)] == ["old", "late"]
    assert aged_priority(old, now_s=3 * AGEING_S + 2, ageing_s=AGEING_S) == 3
    assert queue_positions([old, late], (), {}, now_s=0.0, rule=RULE)["late"] == 0


def test_backfill_never_delays_the_first_job() -> None:
    nodes = [node("a", 8, free=4), node("b", 8, free=0)]
    held = [running("r", 4, "a", ends_s=100.0, preemptibility=Preemptibility.none), running("s", 8, "b")]
    queue = [
        waiting("head", 8, preemptibility=Preemptibility.none),
        waiting("long", 2, queued_s=1.0),
        waiting("late", 2, queued_s=2.0, max_duration_s=101.0),
        waiting("short", 2, queued_s=3.0, max_duration_s=100.0),
    ]
    decisions = decide(queue, nodes, held, rule=RULE)
    assert outcomes(decisions) == {
        "head": Shortage.RESOURCES,
        "long": Shortage.PRIORITY,
        "late": Shortage.PRIORITY,
        "short": 2,
    }
    assert isinstance(decisions[0], Wait) and decisions[0].start_s == 100.0
    unknown = decide(queue, nodes, [replace(job, ends_s=None) for job in held], rule=RULE)
    assert outcomes(unknown)["short"] is Shortage.PRIORITY, "without an estimated start, no job is backfilled"


def test_a_job_without_a_time_limit_may_use_devices_that_the_head_leaves() -> None:
    nodes = [node("a", 8, free=3), node("b", 8, free=0)]
    held = [running("r", 5, "a", ends_s=100.0), running("s", 8, "b", ends_s=200.0)]
    queue = [waiting("head", 5), waiting("long", 3, queued_s=1.0), waiting("cpu", 1, queued_s=2.0, device="cpu")]
    assert outcomes(decide(queue, nodes, held))["long"] == 3, "the head needs 5 of 8 devices"


def test_cpu_jobs_do_not_wait_for_a_head_that_needs_gpus_of_other_nodes() -> None:
    cpu_only = Node("c", "c", "::1", cpus=4, free_cpus=4)
    queue = [waiting("head", 8), waiting("cpu", 4, queued_s=1.0, device="cpu")]
    assert outcomes(decide(queue, [node("a", 8, free=1), cpu_only], [running("r", 7, "a")])) == {
        "head": Shortage.RESOURCES, "cpu": 4,
    }  # fmt: skip


def test_a_project_at_its_limit_blocks_only_itself_and_shows_the_numbers() -> None:
    queue = [waiting("a1", 4, project="a"), waiting("a2", 1, project="a", queued_s=1.0), waiting("b", 2, project="b")]
    decisions = decide(queue, [node("n", 8)], [running("r", 6, "x", project="a")], {"a": Quota(limit=8)})
    assert outcomes(decisions) == {"b": 2, "a1": WaitCause.PROJECT_LIMIT, "a2": Shortage.PRIORITY}
    (why,) = (each.why for each in decisions if isinstance(each, Wait) and each.job_id == "a1")
    assert why.message == "needs 4 devices; project 'a' uses 6 of at most 8"
    never = decide(
        [waiting("huge", 9, project="a"), waiting("one", 1, project="a")], [node("n", 16)], (), {"a": Quota(limit=8)}
    )
    assert outcomes(never) == {"huge": WaitCause.PROJECT_LIMIT, "one": 1}, (
        "a job above the limit of its project blocks no other job"
    )


def test_reserved_devices_are_not_lent_and_firm_jobs_do_not_borrow() -> None:
    quotas = {"a": Quota(guaranteed=6, borrowable=2)}
    queue = [waiting("b", 5, project="b")]
    assert outcomes(decide(queue, [node("n", 8)], (), quotas)) == {"b": WaitCause.PROJECT_QUOTA}
    assert outcomes(decide([waiting("b", 4, project="b")], [node("n", 8)], (), quotas)) == {"b": 4}
    firm = waiting("firm", 3, project="b", preemptibility=Preemptibility.none)
    assert outcomes(decide([firm], [node("n", 8)], (), {"a": Quota(guaranteed=6)})) == {"firm": WaitCause.PROJECT_QUOTA}
    assert outcomes(decide([replace(firm, sizes=sizes(2))], [node("n", 8)], (), {"a": Quota(guaranteed=6)})) == {
        "firm": 2
    }


def test_a_quota_below_the_current_use_preempts_no_job() -> None:
    held = [running("r", 8, "n", project="a")]
    decisions = decide(
        [waiting("more", 1, project="a")], [node("n", 16, free=8)], held, {"a": Quota(guaranteed=2, limit=4)}
    )
    assert outcomes(decisions) == {"more": WaitCause.PROJECT_LIMIT}


def test_a_job_that_two_others_preempt_has_one_decision() -> None:
    """Let two jobs of different device types preempt one job. A rank with a GPU holds a CPU, too."""
    nodes, fixed = [node("n", 8, free=3)], running("fixed", 2, "n", preemptibility=Preemptibility.none)
    queue = [waiting("first", 4), waiting("second", 2, device="cpu")]
    flexible = running("r", 3, "n", 1, 2, priority=Priority.low, preemptibility=Preemptibility.semi)
    shrink, *waits = decide(queue, nodes, [fixed, flexible], rule=RULE)
    why = "preempted by job 'first', priority normal; preempted by job 'second', priority normal"
    assert isinstance(shrink, Shrink)
    assert (shrink.layout.world_size, shrink.releases, shrink.why) == (1, (("n", 2),), why)
    assert [each.why.message for each in waits if isinstance(each, Wait)] == [
        "preempting job 'r' to free devices for this job"
    ] * 2
    stiff = replace(flexible, smaller_sizes=sizes(2), preemptibility=Preemptibility.full)
    assert decide(queue, nodes, [fixed, stiff], rule=RULE)[0] == Requeue("r", why), "it releases everything"


def test_jobs_shrink_before_any_job_is_suspended() -> None:
    nodes = [node("n", 8, free=0)]
    held = [
        running("elastic", 4, "n", 1, 2, 3, priority=Priority.low),
        running("whole", 4, "n", priority=Priority.low),
    ]
    urgent = waiting("urgent", 2, priority=Priority.high)
    assert outcomes(decide([urgent], nodes, held, rule=RULE)) == {"elastic": 2, "urgent": WaitCause.PREEMPTION}
    larger = replace(urgent, sizes=sizes(6))
    assert outcomes(decide([larger], nodes, held, rule=RULE)) == {
        "elastic": 2,
        "whole": "suspend",
        "urgent": WaitCause.PREEMPTION,
    }
    stiff = replace(RULE, can_resize=False)
    assert outcomes(decide([urgent], nodes, held, rule=stiff))["urgent"] is WaitCause.PREEMPTION
    assert list(outcomes(decide([urgent], nodes, held, rule=stiff)).values()).count("suspend") == 1


def test_protected_jobs_are_not_preempted() -> None:
    urgent = waiting("urgent", 2, priority=Priority.high)
    nodes = [node("n", 8, free=0)]
    for held in (
        running("r", 8, "n", priority=Priority.high),
        running("r", 8, "n", preemptibility=Preemptibility.none),
        running("r", 8, "n", preemptibility=Preemptibility.semi),
        replace(running("r", 8, "n"), allocated_at_s=-1.0),
    ):
        assert outcomes(decide([urgent], nodes, [held], rule=RULE)) == {"urgent": Shortage.RESOURCES}
    mine = {"other": Quota(guaranteed=8)}
    held = running("r", 8, "n", project="other")
    assert outcomes(decide([urgent], nodes, [held], mine, rule=RULE)) == {"urgent": Shortage.RESOURCES}, (
        "guaranteed devices are not preempted"
    )


def test_a_guarantee_preempts_borrowers_of_any_priority() -> None:
    quotas = {"a": Quota(guaranteed=4)}
    held = [running("loan", 8, "n", project="b", priority=Priority.critical)]
    guaranteed = waiting("mine", 4, project="a", priority=Priority.low)
    assert outcomes(decide([guaranteed], [node("n", 8, free=0)], held, quotas, rule=RULE)) == {
        "loan": "suspend", "mine": WaitCause.PREEMPTION,
    }  # fmt: skip
    again = [guaranteed, waiting("loan", 8, project="b", priority=Priority.critical)]
    first = next(iter(outcomes(decide(again, [node("n", 8)], (), quotas, rule=RULE))))
    assert first == "mine", "the guaranteed job stays ahead"


def test_a_pending_release_prevents_further_preemptions() -> None:
    held = [replace(running("a", 4, "n"), is_releasing=True), running("b", 4, "n")]
    urgent = waiting("urgent", 4, priority=Priority.high)
    decisions = decide([urgent], [node("n", 8, free=0)], held, now_s=5.0, rule=RULE)
    assert outcomes(decisions) == {"urgent": WaitCause.PREEMPTION}
    assert isinstance(decisions[0], Wait) and decisions[0].start_s == 5.0


def test_a_job_waits_for_its_dependencies() -> None:
    queue = [waiting("later", 1, pending_dependencies=("first",)), waiting("free", 1)]
    decisions = decide(queue, [node("n")])
    assert outcomes(decisions) == {"free": 1, "later": WaitCause.DEPENDENCY}
    assert any(
        isinstance(each, Wait) and "first, which has not succeeded yet" in each.why.message for each in decisions
    )


def test_a_pass_ends_at_its_limit_of_weighed_nodes() -> None:
    queue = [waiting(f"j{number}", 1, queued_s=number) for number in range(5)]
    assert len(decide(queue, [node("n"), node("m")], rule=replace(RULE, max_nodes_weighed=2))) == 2


def test_equal_jobs_that_do_not_fit_are_tried_once_and_do_not_use_up_the_pass() -> None:
    nodes = [node("n", 16, free=8), node("m", 16, free=8)]
    held = [running("r", 8, "n", ends_s=100.0), running("s", 8, "m", ends_s=100.0)]
    on_one_node = tuple(replace(size, demand=replace(size.demand, required=Level.NODE)) for size in sizes(12))
    queue = [
        replace(waiting(f"j{number}", 12, queued_s=number, max_duration_s=10.0), sizes=on_one_node)
        for number in range(20)
    ]
    last = waiting("last", 1, queued_s=99.0, max_duration_s=10.0)
    decisions = decide([*queue, last], nodes, held, rule=replace(RULE, max_nodes_weighed=12))
    assert len(decisions) == 21, "each try weighs two nodes"
    assert outcomes(decisions)["last"] == 1


def test_placement_uses_the_measured_speed_of_links() -> None:
    nodes = [node("a", 4), node("b", 4)]
    slow = {"cuda": {**GPU_LINKS, Level.GPU_DOMAIN: LinkSpeed(1e6, 1.0)}}
    predicted = [
        decision.placement.choice.communication_s
        for links in ({}, slow)
        for decision in decide([waiting("wide", 8)], nodes, rule=replace(RULE, links=links))
        if isinstance(decision, Admission) and decision.placement.choice
    ]
    assert len(predicted) == 2 and predicted[1] > 100 * predicted[0]


def test_messages_name_jobs_of_other_projects_by_id_only() -> None:
    ahead = replace(waiting("secret", 3, project="b"), job_id="job_1")
    _, second = decide([ahead, waiting("second", 1)], [node("n", 4, free=2)])
    assert (
        isinstance(second, Wait) and second.why.message == "job job_1 of another project is ahead and waits for devices"
    )

    low = running("low", 4, "n", project="a", priority=Priority.low)
    for project, text in (("a", "job 'urgent'"), ("b", "job job_2 of another project")):
        urgent = replace(waiting("urgent", 4, project=project, priority=Priority.high), job_id="job_2")
        requeue, wait = decide([urgent], [node("n", 4, free=0)], [low], rule=RULE, now_s=0.0)
        assert isinstance(requeue, Requeue) and requeue.why == f"preempted by {text}, priority high"
        victim = "job 'low'" if project == "a" else "job low of another project"
        assert isinstance(wait, Wait) and wait.why.message == f"preempting {victim} to free devices for this job"
