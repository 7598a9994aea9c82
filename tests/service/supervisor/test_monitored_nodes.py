"""Conditions of devices and memory in the generation monitor."""

from regroup.service.domain.job_events import RankPlace
from regroup.service.domain.layout import Layout
from regroup.service.domain.rank_map import RankMap
from regroup.service.domain.states import Reason
from regroup.service.policy.detection.node_quarantine import NodeEventKind, node_event_kind_of
from regroup.service.policy.recovery.restore_source import RestoreKind, RestoreSource
from regroup.service.supervisor.job_state.generation_monitor import GenerationMonitor
from regroup.service.supervisor.job_state.generations import Generation
from regroup.workers.contract.messages import Exited, Note


def condition(what: str, message: str) -> Note:
    return Note(1, "condition", {"node": "n", "what": what, "message": message}, 1.0)


def make_monitor() -> GenerationMonitor:
    places = tuple(RankPlace(rank, node, node, "h", 0, 0) for rank, node in enumerate("ab"))
    return GenerationMonitor(
        Generation(1, Layout(dp_shard=2), RankMap.of(places), RestoreSource(RestoreKind.NONE), "start")
    )


def test_a_lost_device_of_a_node_is_the_cause_of_the_death_of_its_rank() -> None:
    monitor = make_monitor()
    monitor.receive("b", condition("device", "GPU 1 is lost"))
    assert not monitor.is_broken, "the rank may still compute"
    monitor.receive("b", Exited(1, 1, -6, 2.0))
    cause = monitor.classify()
    assert (cause.reason, cause.node_id) == (Reason.RANK_EXIT, "b")
    assert cause.summary == "rank 1 killed by signal 6; GPU 1 is lost"
    assert node_event_kind_of(cause.reason, cause.evidence) is NodeEventKind.DEVICE


def test_resolved_conditions_and_devices_of_other_nodes_are_not_the_cause() -> None:
    monitor = make_monitor()
    monitor.receive("a", condition("device", "GPU 0 is lost"))
    monitor.receive("b", condition("device", ""))
    monitor.receive("b", condition("disk", "3 MiB are free"))
    monitor.receive("b", Exited(1, 1, -6, 2.0))
    assert monitor.classify().node_id == "b" and monitor.classify().evidence is None
    assert monitor.short_of_memory == {}
    monitor.receive("b", condition("memory", "9 MiB are free"))
    assert monitor.short_of_memory == {"b": "9 MiB are free"}
