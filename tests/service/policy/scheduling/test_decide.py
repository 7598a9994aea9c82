"""The queue, rule by rule."""

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
    queue_position,
)
from regroup.service.policy.scheduling.entries import Preemptibility, Priority, RunningJob, WaitingJob
from regroup.service.policy.scheduling.fair_share import AdmissionOrder, aged_priority
from regroup.service.policy.scheduling.preemption import Shrink, Suspend
from regroup.service.policy.scheduling.quota import Quota, QuotaUsage, WaitCause
from tests.support.inputs.queue_inputs import demand, node, sizes

AGEING_S = 3600.0
RULE = SchedulingPolicy(ageing_s=AGEING_S, min_run_s=60.0, can_resize=True)


def waits(name: str, *ranks: int, queued_s: float = 0.0, device: str = "cuda", **fields: object) -> WaitingJob:
    return replace(WaitingJob(name, name, sizes(*ranks, device=device), queued_s=queued_s), **fields)


def runs(name: str, ranks: int, where: str, *smaller: int, device: str = "cuda", **fields: object) -> RunningJob:
    held = RunningJob(name, name, demand(ranks, device=device), ((where, ranks),), sizes(*smaller))
    return replace(held, allocated_at_s=-1000.0, **fields)


def told(decisions: Sequence[SchedulingDecision]) -> dict[str, object]:
    """What each job is told: its ranks, why it waits, the size it shrinks to, or `suspend`."""

    def of(decision: SchedulingDecision) -> object:
        match decision:
            case Admission():
                return decision.layout.world_size
            case Wait():
                return decision.why.reason
            case Shrink():
                return decision.layout.world_size
            case Suspend():
                return "suspend"

    return {decision.job_id: of(decision) for decision in decisions}


def test_priority_comes_before_age_and_share_before_age() -> None:
    queue = [waits("old", 1), waits("urgent", 1, queued_s=9.0, priority=Priority.high)]
    assert [job.name for job in order(queue)] == ["urgent", "old"]
    queue = [waits("a1", 4, project="a"), waits("a2", 4, project="a"), waits("b1", 4, project="b", queued_s=9.0)]
    assert list(told(decide(queue, [node("n", 8)]))) == ["a1", "b1", "a2"], "b holds less when a1 has had its turn"
    weighty = {"a": Quota(weight=3.0)}
    assert list(told(decide(queue, [node("n", 8)], [runs("r", 1, "x", project="b")], weighty)))[:2] == ["a1", "b1"]


def order(queue: Sequence[WaitingJob], now_s: float = 10.0, books: QuotaUsage | None = None) -> list[WaitingJob]:
    return list(AdmissionOrder(queue, books or QuotaUsage({}), now_s=now_s, ageing_s=AGEING_S))


def test_who_waits_rises_and_nothing_starves() -> None:
    old = waits("old", 1, priority=Priority.low)
    late = waits("late", 1, priority=Priority.critical, queued_s=3 * AGEING_S + 1)
    assert [job.name for job in order([old, late], 3 * AGEING_S + 2)] == ["old", "late"]
    assert aged_priority(old, now_s=3 * AGEING_S + 2, ageing_s=AGEING_S) == 3
    assert queue_position("late", [old, late], (), {}, now_s=0.0, rule=RULE) == 0


def test_a_later_job_goes_first_only_where_it_makes_the_first_no_later() -> None:
    nodes = [node("a", 8, free=4), node("b", 8, free=0)]
    held = [runs("r", 4, "a", ends_s=100.0, preemptibility=Preemptibility.none), runs("s", 8, "b")]
    queue = [
        waits("head", 8, preemptibility=Preemptibility.none),
        waits("long", 2, queued_s=1.0),
        waits("late", 2, queued_s=2.0, max_duration_s=101.0),
        waits("short", 2, queued_s=3.0, max_duration_s=100.0),
    ]
    decisions = decide(queue, nodes, held, rule=RULE)
    assert told(decisions) == {
        "head": Shortage.RESOURCES,
        "long": Shortage.PRIORITY,
        "late": Shortage.PRIORITY,
        "short": 2,
    }
    assert isinstance(decisions[0], Wait) and decisions[0].start_s == 100.0
    unknown = decide(queue, nodes, [replace(job, ends_s=None) for job in held], rule=RULE)
    assert told(unknown)["short"] is Shortage.PRIORITY, "where the start cannot be told, nobody goes first"


def test_a_job_without_an_end_may_use_what_the_first_leaves() -> None:
    nodes = [node("a", 8, free=3), node("b", 8, free=0)]
    held = [runs("r", 5, "a", ends_s=100.0), runs("s", 8, "b", ends_s=200.0)]
    queue = [waits("head", 5), waits("long", 3, queued_s=1.0), waits("cpu", 1, queued_s=2.0, device="cpu")]
    assert told(decide(queue, nodes, held))["long"] == 3, "5 of 8 are the head's then, 3 are not"


def test_cpu_jobs_do_not_wait_for_a_head_that_wants_gpus_elsewhere() -> None:
    cpu_only = Node("c", "c", "::1", cpus=4, free_cpus=4)
    queue = [waits("head", 8), waits("cpu", 4, queued_s=1.0, device="cpu")]
    assert told(decide(queue, [node("a", 8, free=1), cpu_only], [runs("r", 7, "a")])) == {
        "head": Shortage.RESOURCES, "cpu": 4,
    }  # fmt: skip


def test_a_project_at_its_limit_waits_with_the_numbers_and_blocks_only_itself() -> None:
    queue = [waits("a1", 4, project="a"), waits("a2", 1, project="a", queued_s=1.0), waits("b", 2, project="b")]
    decisions = decide(queue, [node("n", 8)], [runs("r", 6, "x", project="a")], {"a": Quota(limit=8)})
    assert told(decisions) == {"b": 2, "a1": WaitCause.PROJECT_LIMIT, "a2": Shortage.PRIORITY}
    (why,) = (each.why for each in decisions if isinstance(each, Wait) and each.job_id == "a1")
    assert why.message == "needs 4 devices; project 'a' uses 6 of at most 8"
    never = decide(
        [waits("huge", 9, project="a"), waits("one", 1, project="a")], [node("n", 16)], (), {"a": Quota(limit=8)}
    )
    assert told(never) == {"huge": WaitCause.PROJECT_LIMIT, "one": 1}, "what no change of use helps blocks nobody"


def test_what_is_kept_free_is_not_lent_and_what_is_firm_does_not_borrow() -> None:
    quotas = {"a": Quota(guaranteed=6, borrowable=2)}
    queue = [waits("b", 5, project="b")]
    assert told(decide(queue, [node("n", 8)], (), quotas)) == {"b": WaitCause.PROJECT_QUOTA}
    assert told(decide([waits("b", 4, project="b")], [node("n", 8)], (), quotas)) == {"b": 4}
    firm = waits("firm", 3, project="b", preemptibility=Preemptibility.none)
    assert told(decide([firm], [node("n", 8)], (), {"a": Quota(guaranteed=6)})) == {"firm": WaitCause.PROJECT_QUOTA}
    assert told(decide([replace(firm, sizes=sizes(2))], [node("n", 8)], (), {"a": Quota(guaranteed=6)})) == {"firm": 2}


def test_quotas_below_what_is_held_take_nothing_by_themselves() -> None:
    held = [runs("r", 8, "n", project="a")]
    decisions = decide(
        [waits("more", 1, project="a")], [node("n", 16, free=8)], held, {"a": Quota(guaranteed=2, limit=4)}
    )
    assert told(decisions) == {"more": WaitCause.PROJECT_LIMIT}


def test_room_is_made_by_shrinking_before_anybody_is_suspended() -> None:
    nodes = [node("n", 8, free=0)]
    held = [
        runs("elastic", 4, "n", 1, 2, 3, priority=Priority.low),
        runs("whole", 4, "n", priority=Priority.low),
    ]
    urgent = waits("urgent", 2, priority=Priority.high)
    assert told(decide([urgent], nodes, held, rule=RULE)) == {"elastic": 2, "urgent": WaitCause.PREEMPTION}
    larger = replace(urgent, sizes=sizes(6))
    assert told(decide([larger], nodes, held, rule=RULE)) == {
        "elastic": 2,
        "whole": "suspend",
        "urgent": WaitCause.PREEMPTION,
    }
    stiff = replace(RULE, can_resize=False)
    assert told(decide([urgent], nodes, held, rule=stiff))["urgent"] is WaitCause.PREEMPTION
    assert list(told(decide([urgent], nodes, held, rule=stiff)).values()).count("suspend") == 1


def test_nobody_is_asked_who_need_not_or_cannot_give() -> None:
    urgent = waits("urgent", 2, priority=Priority.high)
    nodes = [node("n", 8, free=0)]
    for held in (
        runs("r", 8, "n", priority=Priority.high),
        runs("r", 8, "n", preemptibility=Preemptibility.none),
        runs("r", 8, "n", preemptibility=Preemptibility.semi),
        replace(runs("r", 8, "n"), allocated_at_s=-1.0),
    ):
        assert told(decide([urgent], nodes, [held], rule=RULE)) == {"urgent": Shortage.RESOURCES}
    mine = {"other": Quota(guaranteed=8)}
    held = runs("r", 8, "n", project="other")
    assert told(decide([urgent], nodes, [held], mine, rule=RULE)) == {"urgent": Shortage.RESOURCES}, (
        "a guarantee is one"
    )


def test_a_guarantee_is_taken_back_whatever_the_priority_of_who_borrowed() -> None:
    quotas = {"a": Quota(guaranteed=4)}
    held = [runs("loan", 8, "n", project="b", priority=Priority.critical)]
    asks = waits("mine", 4, project="a", priority=Priority.low)
    assert told(decide([asks], [node("n", 8, free=0)], held, quotas, rule=RULE)) == {
        "loan": "suspend", "mine": WaitCause.PREEMPTION,
    }  # fmt: skip
    again = [asks, waits("loan", 8, project="b", priority=Priority.critical)]
    first = next(iter(told(decide(again, [node("n", 8)], (), quotas, rule=RULE))))
    assert first == "mine", "and is not taken away again"


def test_who_was_told_to_go_is_waited_for_and_nobody_else_is_asked() -> None:
    held = [replace(runs("a", 4, "n"), is_releasing=True), runs("b", 4, "n")]
    urgent = waits("urgent", 4, priority=Priority.high)
    decisions = decide([urgent], [node("n", 8, free=0)], held, now_s=5.0, rule=RULE)
    assert told(decisions) == {"urgent": WaitCause.PREEMPTION}
    assert isinstance(decisions[0], Wait) and decisions[0].start_s == 5.0


def test_a_job_comes_after_others() -> None:
    queue = [waits("later", 1, pending_dependencies=("first",)), waits("free", 1)]
    decisions = decide(queue, [node("n")])
    assert told(decisions) == {"free": 1, "later": WaitCause.DEPENDENCY}
    assert any(
        isinstance(each, Wait) and "first, which has not succeeded yet" in each.why.message for each in decisions
    )


def test_a_look_ends_when_it_has_weighed_enough() -> None:
    queue = [waits(f"j{number}", 1, queued_s=number) for number in range(5)]
    assert len(decide(queue, [node("n"), node("m")], rule=replace(RULE, max_nodes_weighed=2))) == 2


def test_a_job_is_placed_by_the_speed_of_links_that_was_measured() -> None:
    nodes = [node("a", 4), node("b", 4)]
    slow = {"cuda": {**GPU_LINKS, Level.GPU_DOMAIN: LinkSpeed(1e6, 1.0)}}
    predicted = [
        decision.placement.choice.communication_s
        for links in ({}, slow)
        for decision in decide([waits("wide", 8)], nodes, rule=replace(RULE, links=links))
        if isinstance(decision, Admission) and decision.placement.choice
    ]
    assert len(predicted) == 2 and predicted[1] > 100 * predicted[0]
