"""Progress of the checkpoint that is being written, over all nodes: only of that one, and only if it takes long."""

import pytest

from regroup.service.ports.sync import SaveStatus
from regroup.service.supervisor.gang.save_monitor import SaveMonitor
from regroup.workers.contract.messages import AgentReport
from regroup.workers.contract.storage_progress import SaveProgress, StorageProgress

GIGA = 1_000_000_000


class Rig:
    """A monitor with a clock that a test sets, and reports of its nodes."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.saves = SaveMonitor(lambda: self.now_s)

    def receive(self, node: str, done: float, bytes_per_s: float = 2e8, generation: int = 1, step: int = 40) -> None:
        progress = StorageProgress(int(done * GIGA), 2 * GIGA, bytes_per_s)
        self.saves.receive(AgentReport(node, "boot", 7, (), (), save=SaveProgress(generation, step, progress)))

    def message(self) -> str:
        """Return what is shown a second later; empty: nothing."""
        self.now_s += 1
        found = self.saves.status()
        return found.message if found is not None else ""


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_bytes_and_rates_of_all_nodes_are_summed(rig: Rig) -> None:
    with rig.saves.follow(1, 40, ["a", "b"]):
        rig.now_s += 5
        assert rig.message() == "", "no node has begun"
        rig.receive("a", 0.2)
        assert rig.message() == "writing checkpoint of step 40: 0.2 of 2.0 GB, 200 MB/s (1 of 2 nodes have begun)"
        rig.receive("b", 1.0, 1.1e8)
        whole = "writing checkpoint of step 40: 1.2 of 4.0 GB, 310 MB/s"
        assert rig.message() == whole
        assert rig.saves.status() == SaveStatus(40, 1, whole, 1_200_000_000, 4 * GIGA, 3.1e8)


def test_a_short_save_is_never_shown(rig: Rig) -> None:
    with rig.saves.follow(1, 40, ["a"]):
        rig.receive("a", 0.2)
        assert rig.message() == ""
        assert rig.message() != "", "it takes two seconds"


def test_nothing_is_shown_after_the_end_or_a_failure(rig: Rig) -> None:
    with pytest.raises(OSError, match="full"), rig.saves.follow(1, 40, ["a"]):
        rig.receive("a", 0.2)
        rig.now_s += 2
        assert rig.message() != ""
        raise OSError("full")
    assert rig.message() == ""
    rig.receive("a", 2.0)
    with rig.saves.follow(1, 50, ["a"]):
        rig.now_s += 2
        assert rig.message() == "", "the report was about the save before"


def test_reports_about_other_saves_and_of_other_nodes_do_not_count(rig: Rig) -> None:
    with rig.saves.follow(2, 40, ["a"]):
        rig.now_s += 2
        rig.receive("a", 0.2, generation=1)
        rig.receive("a", 0.2, generation=2, step=36)
        rig.receive("former", 0.2, generation=2)
        rig.saves.receive(AgentReport("a", "boot", 2, (), ()))
        assert rig.message() == ""
        rig.receive("a", 0.2, generation=2)
        assert rig.message() != ""


def test_the_status_changes_at_most_once_per_second(rig: Rig) -> None:
    with rig.saves.follow(1, 40, ["a"]):
        rig.now_s += 2
        rig.receive("a", 0.2)
        first = rig.saves.status()
        rig.receive("a", 0.4)
        rig.now_s += 0.5
        assert rig.saves.status() == first
        rig.now_s += 0.6
        assert "0.4 of 2.0 GB" in rig.message()
