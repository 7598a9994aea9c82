"""When ranks are held to hang: what a supervisor that has restarted still knows of how long things take."""

import pytest

from regroup.service.domain.job_events import RankPlace
from regroup.service.domain.layout import Layout
from regroup.service.policy.detection.hang import hang_policy_for
from regroup.service.policy.recovery.restore_source import RestoreKind, RestoreSource
from regroup.service.supervisor.gang import Gang
from regroup.service.supervisor.generation_monitor import GenerationMonitor
from regroup.service.supervisor.generations import Generation
from regroup.service.supervisor.hang_detector import HangDetector
from regroup.workers.contract.messages import AgentReport
from regroup.workers.contract.rank_activity import RankActivity
from tests.support.doubles.supervised_job import FakeNodes


@pytest.mark.parametrize(("known_s", "is_found"), [(0.0, False), (0.2, True)])
async def test_how_long_a_first_step_took_is_asked_of_the_agents(known_s: float, is_found: bool) -> None:
    place = RankPlace(0, "node-0", "n0", "h", 0, 0)
    watch = GenerationMonitor(Generation(3, Layout(dp_shard=1), (place,), RestoreSource(RestoreKind.NONE), "rank_exit"))
    standstill = HangDetector(Gang(FakeNodes({}), {}), hang_policy_for("builtin", None, None))
    dwell = RankActivity(5, "forward", 600.0, 600.0, 0, 0.0, earlier_first_s=known_s)
    standstill.receive_report(AgentReport("node-0", "boot", 3, (0,), (), {}, {"0": dwell}))
    assert (await standstill.poll(watch) is not None) is is_found
