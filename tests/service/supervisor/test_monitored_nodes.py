"""What a node says of its devices and its memory, as a watch takes it in."""

from regroup.service.domain.job_events import RankPlace
from regroup.service.domain.layout import Layout
from regroup.service.domain.states import Reason
from regroup.service.policy.detection.node_quarantine import NodeEventKind, node_event_kind_of
from regroup.service.policy.recovery.restore_source import RestoreKind, RestoreSource
from regroup.service.supervisor.generation_monitor import GenerationMonitor
from regroup.service.supervisor.generations import Generation
from regroup.workers.contract.messages import Exited, Note


def condition(what: str, message: str) -> Note:
    return Note(1, "condition", {"node": "n", "what": what, "message": message}, 1.0)


def watch() -> GenerationMonitor:
    places = tuple(RankPlace(rank, node, node, "h", 0, 0) for rank, node in enumerate("ab"))
    return GenerationMonitor(Generation(1, Layout(dp_shard=2), places, RestoreSource(RestoreKind.NONE), "start"))


def test_a_rank_dies_of_the_device_that_its_nodes_driver_has_given_up() -> None:
    seen = watch()
    seen.receive("b", condition("device", "GPU 1 is lost"))
    assert not seen.is_broken, "it may compute on"
    seen.receive("b", Exited(1, 1, -6, 2.0))
    cause = seen.classify()
    assert (cause.reason, cause.node_id) == (Reason.RANK_EXIT, "b")
    assert cause.summary == "rank 1 killed by signal 6; GPU 1 is lost"
    assert node_event_kind_of(cause.reason, cause.evidence) is NodeEventKind.DEVICE


def test_what_is_well_again_and_other_nodes_devices_say_nothing() -> None:
    seen = watch()
    seen.receive("a", condition("device", "GPU 0 is lost"))
    seen.receive("b", condition("device", ""))
    seen.receive("b", condition("disk", "3 MiB are free"))
    seen.receive("b", Exited(1, 1, -6, 2.0))
    assert seen.classify().node_id == "b" and seen.classify().evidence is None
    assert seen.short_of_memory == {}
    seen.receive("b", condition("memory", "9 MiB are free"))
    assert seen.short_of_memory == {"b": "9 MiB are free"}
