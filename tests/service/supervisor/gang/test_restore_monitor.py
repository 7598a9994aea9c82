"""Progress of a restore from a checkpoint over all nodes, as the phase of the job."""

import pytest

from regroup.service.domain.job_events import RankPlace
from regroup.service.domain.layout import Layout
from regroup.service.domain.rank_map import RankMap
from regroup.service.policy.recovery.restore_source import RestoreKind, RestoreSource
from regroup.service.supervisor.gang.restore_monitor import RestoreMonitor
from regroup.service.supervisor.job_state.event_log import EventLog
from regroup.service.supervisor.job_state.generation_monitor import GenerationMonitor
from regroup.service.supervisor.job_state.generations import Generation
from regroup.service.supervisor.job_state.journal import Journal
from regroup.service.supervisor.job_state.pace import Pace
from regroup.service.supervisor.job_state.supervisor_state import SupervisorState
from regroup.workers.contract.messages import AgentReport, Restored
from regroup.workers.contract.storage_progress import StorageProgress
from tests.support.doubles.memory_records import Records

GIGA = 1_000_000_000


class Rig:
    """A job of two nodes with one rank each."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.journal = Journal(Records(), "j")
        state = SupervisorState(EventLog(self.journal, 1), is_script=False)
        self.restores = RestoreMonitor(state, Pace(1.0, lambda: self.now_s))
        self.monitor = self.generation(1)

    def generation(self, number: int) -> GenerationMonitor:
        places = tuple(RankPlace(rank, node, node, "h", 0, 0) for rank, node in enumerate("ab"))
        source = RestoreSource(RestoreKind.CHECKPOINT, 8)
        return GenerationMonitor(Generation(number, Layout(dp_shard=2), RankMap.of(places), source, "start"))

    def receive(self, node: str, done: float, bytes_per_s: float = 2e8, generation: int = 1) -> None:
        progress = StorageProgress(int(done * GIGA), 2 * GIGA, bytes_per_s)
        self.restores.receive(AgentReport(node, "boot", generation, (), (), restore=progress))

    async def shown(self) -> list[tuple[float, str]]:
        """Return fraction and message of the progress so far."""
        self.restores.poll(self.monitor)
        self.now_s += 1
        events = await self.journal.since("", 0, 0)
        return [(event.data["fraction"], event.data["message"]) for event in events if event.type == "phase"]


@pytest.fixture
def rig() -> Rig:
    return Rig()


async def test_bytes_and_rates_of_all_nodes_are_summed(rig: Rig) -> None:
    assert await rig.shown() == []
    rig.receive("a", 0.2)
    begun = "restoring state from checkpoint: 0.2 of 2.0 GB, 200 MB/s (1 of 2 nodes have begun)"
    assert await rig.shown() == [(0.1, begun)]
    rig.receive("b", 1.0, 1.1e8)
    both = (0.3, "restoring state from checkpoint: 1.2 of 4.0 GB, 310 MB/s")
    assert await rig.shown() == [(0.1, begun), both]
    events = [event.data for event in await rig.journal.since("", 0, 0)]
    figures = events[-1]["phase"], events[-1]["done_bytes"], events[-1]["total_bytes"], events[-1]["bytes_per_s"]
    assert figures == ("restoring", 1_200_000_000, 4 * GIGA, 3.1e8)
    assert await rig.shown() == [(0.1, begun), both], "nothing has changed"


async def test_a_silent_storage_has_the_rate_zero(rig: Rig) -> None:
    for node in "ab":
        rig.receive(node, 1.0, 0.0)
    assert (await rig.shown())[0][1] == "restoring state from checkpoint: 2.0 of 4.0 GB, 0 B/s"


async def test_the_rate_is_that_of_the_nodes_that_still_read(rig: Rig) -> None:
    rig.receive("a", 2.0, 5e8)
    rig.receive("b", 1.0, 1e8)
    assert (await rig.shown())[0][1].endswith("3.0 of 4.0 GB, 100 MB/s")


async def test_nothing_is_shown_of_another_generation_or_after_the_restore(rig: Rig) -> None:
    rig.receive("a", 0.5)
    rig.receive("b", 0.5, generation=2)
    assert await rig.shown() == [], "the reports are of a newer generation"
    rig.monitor = rig.generation(2)
    rig.receive("a", 1.5)
    (only,) = await rig.shown()
    assert only[1].startswith("restoring state from checkpoint: 0.5 of 2.0 GB")
    for rank in range(2):
        rig.monitor.receive("a", Restored(rank, 2, 8, 1.0))
    rig.receive("a", 2.0, generation=2)
    assert await rig.shown() == [only]


async def test_updates_are_at_least_a_second_apart(rig: Rig) -> None:
    rig.receive("a", 0.5)
    await rig.shown()
    rig.now_s -= 0.5
    rig.receive("a", 0.6)
    assert len(await rig.shown()) == 1
