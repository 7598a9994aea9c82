"""Stragglers are reported only when they change."""

from regroup.service.domain.job_events import RankPlace
from regroup.service.domain.layout import Layout
from regroup.service.domain.rank_map import RankMap
from regroup.service.policy.recovery.restore_source import RestoreKind, RestoreSource
from regroup.service.ports.sync import SupervisorEvent
from regroup.service.supervisor.gang.straggler_monitor import StragglerMonitor
from regroup.service.supervisor.job_state.generations import Generation
from regroup.service.supervisor.job_state.journal import Journal
from regroup.workers.contract.rank_activity import RankActivity
from tests.support.doubles.memory_records import Records


def generation(number: int) -> Generation:
    places = tuple(RankPlace(rank, f"id-{rank}", f"node-{rank}", "10.0.0.1", 0, 0) for rank in range(3))
    return Generation(number, Layout(dp_shard=3), RankMap.of(places), RestoreSource(RestoreKind.NONE), "start")


def activities(*seconds: float, ready_s: float = 0.0) -> dict[int, RankActivity]:
    """Return the activity of ranks with these work times. `ready_s` is of the last rank."""
    last = len(seconds) - 1
    return {
        rank: RankActivity(20, "forward", 0.0, 0.0, 9, 0.1, 12, work_s, ready_s * (rank == last))
        for rank, work_s in enumerate(seconds)
    }


def test_a_change_is_reported_once_and_a_new_generation_has_no_straggler() -> None:
    events: list[SupervisorEvent] = []
    monitor = StragglerMonitor(Journal(Records(), "j", on_event=events.append))
    slow, even = activities(0.1, 0.1, 0.3), activities(0.1, 0.1, 0.1)
    for ranks in ({}, slow, slow, even, even, slow):
        monitor.poll(generation(1), ranks)
    monitor.poll(generation(2), {})
    assert [(event.generation, [each["rank"] for each in event.data["ranks"]]) for event in events] == [
        (1, [2]), (1, []), (1, [2]), (2, []),
    ]  # fmt: skip
    assert events[0].data["ranks"] == [
        {"rank": 2, "work_s": 0.3, "usual_s": 0.1, "is_crowded": False, "node": "node-2"}
    ]
    assert len({event.key for event in events}) == 4


def test_the_straggler_monitor_can_be_disabled() -> None:
    events: list[SupervisorEvent] = []
    StragglerMonitor(Journal(Records(), "j", on_event=events.append), is_disabled=True).poll(
        generation(1), activities(0.1, 0.1, 0.3)
    )
    assert events == []


def test_a_node_with_a_short_cpu_shortage_is_not_reported() -> None:
    events: list[SupervisorEvent] = []
    now_s = iter(range(0, 1000, 20))
    monitor = StragglerMonitor(Journal(Records(), "j", on_event=events.append), clock=lambda: float(next(now_s)))
    crowded, even = activities(0.1, 0.1, 0.1, ready_s=0.2), activities(0.1, 0.1, 0.1)
    for ranks in (even, crowded, crowded, even, crowded, crowded):
        monitor.poll(generation(1), ranks)
    assert [event.data["ranks"] for event in events] == [[]]
    monitor.poll(generation(1), crowded)
    (named,) = events[-1].data["ranks"]
    assert (named["rank"], named["is_crowded"]) == (2, True)
