"""The sentence about the state of the server."""

from collections import Counter

import pytest

from regroup.service.domain.states import JobState
from regroup.service.operations.overview.device_use import DeviceClass, DeviceUse
from regroup.service.operations.overview.summary import describe_health

EMPTY = dict.fromkeys(DeviceClass, 0.0)


@pytest.mark.parametrize(
    ("states", "used", "sentence"),
    [
        ([], 0, "0 jobs run on 0 of 32 GPUs."),
        ([JobState.RUNNING], 1, "1 job runs on 1 of 32 GPUs."),
        ([JobState.RUNNING, JobState.RECOVERING], 24, "2 jobs run on 24 of 32 GPUs."),
        ([JobState.QUEUED, JobState.SUSPENDED], 0, "0 jobs run on 0 of 32 GPUs; 1 job waits; 1 job is suspended."),
    ],
)
def test_jobs_and_devices_are_counted(states: list[JobState], used: float, sentence: str) -> None:
    devices = DeviceUse("cuda", {**EMPTY, DeviceClass.PRODUCTIVE: used, DeviceClass.IDLE: 32 - used})
    assert describe_health(Counter(states), [], devices, 0) == sentence


def test_a_reader_without_nodes_gets_no_devices() -> None:
    assert describe_health({JobState.RUNNING: 1}, [], None, 2) == "1 job runs; 2 clusters do not answer."
