"""Work whose cost grows with the job is done less often in a larger job."""

import pytest

from regroup.service.supervisor.gang.liveness import UNREPORTED_S
from regroup.service.supervisor.job_state.pace import Pace, report_interval_s


def test_work_is_due_at_once_and_then_after_each_interval() -> None:
    now = [0.0]
    pace = Pace(2.0, lambda: now[0])
    found = list[bool]()
    for now[0] in (0.0, 1.0, 2.0, 2.5, 4.0):
        found.append(pace.is_due())
    assert found == [True, False, True, False, True]


def test_work_without_an_interval_is_always_due() -> None:
    pace = Pace(0.0, lambda: 1.0)
    assert pace.is_due() and pace.is_due()


@pytest.mark.parametrize(("nodes", "seconds"), [(1, 1.0), (256, 1.0), (1024, 4.0), (2048, 8.0), (100_000, 8.0)])
def test_agents_of_a_large_job_report_less_often(nodes: int, seconds: float) -> None:
    assert report_interval_s(nodes) == seconds
    assert 2 * report_interval_s(nodes) < UNREPORTED_S, "one lost report does not make an agent count as lost"
