"""The hang detector after a restart of the supervisor: durations of first steps come from the agents."""

import pytest

from regroup.service.domain.job_events import RankPlace
from regroup.service.domain.layout import Layout
from regroup.service.domain.rank_map import RankMap
from regroup.service.policy.detection.hang import hang_policy_for
from regroup.service.policy.recovery.restore_source import RestoreKind, RestoreSource
from regroup.service.supervisor.gang.gang import Gang
from regroup.service.supervisor.gang.hang_detector import HangDetector
from regroup.service.supervisor.job_state.generation_monitor import GenerationMonitor
from regroup.service.supervisor.job_state.generations import Generation
from regroup.workers.contract.activity_report import ActivityReport, RankRecord, pack
from regroup.workers.contract.messages import AgentReport
from regroup.workers.contract.rank_activity import RankActivity
from tests.support.doubles.supervised_job import FakeNodes


@pytest.mark.parametrize(("earlier_first_s", "is_found"), [(0.0, False), (0.2, True)])
async def test_the_duration_of_an_earlier_first_step_comes_from_the_agents(
    earlier_first_s: float, is_found: bool
) -> None:
    place = RankPlace(0, "node-0", "n0", "h", 0, 0)
    monitor = GenerationMonitor(
        Generation(3, Layout(dp_shard=1), RankMap.of((place,)), RestoreSource(RestoreKind.NONE), "rank_exit")
    )
    detector = HangDetector(Gang(FakeNodes({}), {}), hang_policy_for("builtin", None, None))
    activity = RankActivity(5, "forward", 600.0, 600.0, 0, 0.0, earlier_first_s=earlier_first_s)
    records = pack([RankRecord(0, True, activity)])
    detector.table.receive(AgentReport("node-0", "boot", 3, (0,), (), ActivityReport(records=records)))
    assert (await detector.poll(monitor) is not None) is is_found
