"""Who straggles is told when it changes, and no oftener."""

from regroup.service.domain.job_events import RankPlace
from regroup.service.domain.layout import Layout
from regroup.service.policy.recovery.restore_source import RestoreKind, RestoreSource
from regroup.service.ports.sync import SupervisorEvent
from regroup.service.supervisor.generations import Generation
from regroup.service.supervisor.journal import Journal
from regroup.service.supervisor.straggler_monitor import StragglerMonitor
from regroup.workers.contract.messages import RankActivity
from tests.support.doubles.memory_records import Records


def generation(number: int) -> Generation:
    places = tuple(RankPlace(rank, f"id-{rank}", f"node-{rank}", "10.0.0.1", 0, 0) for rank in range(3))
    return Generation(number, Layout(dp_shard=3), places, RestoreSource(RestoreKind.NONE), "start")


def works(*seconds: float, ready_s: float = 0.0) -> dict[int, RankActivity]:
    """`ready_s`: of the last one."""
    last = len(seconds) - 1
    return {
        rank: RankActivity(20, "forward", 0.0, 0.0, 9, 0.1, 12, work_s, ready_s * (rank == last))
        for rank, work_s in enumerate(seconds)
    }


def test_a_change_is_told_once_and_another_generation_begins_without_blame() -> None:
    told: list[SupervisorEvent] = []
    pacing = StragglerMonitor(Journal(Records(), "j", on_event=told.append))
    slow, even = works(0.1, 0.1, 0.3), works(0.1, 0.1, 0.1)
    for seen in ({}, slow, slow, even, even, slow):
        pacing.poll(generation(1), seen)
    pacing.poll(generation(2), {})
    assert [(event.generation, [each["rank"] for each in event.data["ranks"]]) for event in told] == [
        (1, [2]), (1, []), (1, [2]), (2, []),
    ]  # fmt: skip
    assert told[0].data["ranks"] == [{"rank": 2, "work_s": 0.3, "usual_s": 0.1, "is_crowded": False, "node": "node-2"}]
    assert len({event.key for event in told}) == 4


def test_in_a_rehearsal_nobody_may_be_named() -> None:
    told: list[SupervisorEvent] = []
    StragglerMonitor(Journal(Records(), "j", on_event=told.append), is_disabled=True).poll(
        generation(1), works(0.1, 0.1, 0.3)
    )
    assert told == []


def test_a_node_that_is_crowded_for_a_while_is_not_worth_a_word() -> None:
    told: list[SupervisorEvent] = []
    now_s = iter(range(0, 1000, 20))
    pacing = StragglerMonitor(Journal(Records(), "j", on_event=told.append), clock=lambda: float(next(now_s)))
    crowded, even = works(0.1, 0.1, 0.1, ready_s=0.2), works(0.1, 0.1, 0.1)
    for seen in (even, crowded, crowded, even, crowded, crowded):
        pacing.poll(generation(1), seen)
    assert [event.data["ranks"] for event in told] == [[]]
    pacing.poll(generation(1), crowded)
    (named,) = told[-1].data["ranks"]
    assert (named["rank"], named["is_crowded"]) == (2, True)
