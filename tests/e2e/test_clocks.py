"""A clock is set by an hour while a job trains on its node, to and fro: that is told, and nothing comes of it."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from house.gates import Gates
from house.groups import faketime_library
from house.served import Served, assert_same_result, eventually

from regroup.service.runtime import local_ray
from regroup.service.settings import Settings

Spec = Callable[..., dict[str, Any]]
pytestmark = [pytest.mark.slow, pytest.mark.faketime]
AHEAD_AT, BACK_AT, BEHIND_AT, STEPS = 4, 12, 20, 30
HOUR_S = 3600.0
SEEN_WITHIN_S = 30.0
"""Agents look at their clock every few seconds."""


class Clock:
    """The clock of one node: a file that its programs look into."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.set(0.0)

    def set(self, offset_s: float) -> None:
        """So much ahead of the true time, from now on."""
        draft = self._path.with_suffix(".draft")
        draft.write_text(f"{offset_s:+.0f}s\n")
        draft.replace(self._path)

    def environment(self) -> dict[str, str]:
        """Of programs that have this clock; the ones that cannot be set stay true."""
        return {
            "LD_PRELOAD": str(faketime_library()), "FAKETIME_TIMESTAMP_FILE": str(self._path),
            "FAKETIME_CACHE_DURATION": "1", "DONT_FAKE_MONOTONIC": "1", "FAKETIME_DONT_RESET": "1",
        }  # fmt: skip


@pytest.fixture
def other(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Served, Clock]]:
    """A server with two nodes, the second of which has a clock of its own."""
    folder = tmp_path_factory.mktemp("clocks")
    server = Served(folder / "state", nodes=1)
    server.start()
    clock = Clock(folder / "clock")
    try:
        with monkeypatch.context() as there:
            for name, value in clock.environment().items():
                there.setenv(name, value)
            kind = Settings(state_dir=server.state, local_nodes=1, slots_per_node=2, local_gpus_per_node=0)
            assert local_ray.add_node(kind) == "local-2"
        assert "LD_PRELOAD" not in os.environ
        yield server, clock
    finally:
        server.down()


def test_nothing_expires_and_no_bit_is_another(other: tuple[Served, Clock], spec: Spec, tmp_path: Path) -> None:
    server, clock = other
    control = server.run(spec("calm", steps=STEPS))
    gates = Gates(tmp_path, AHEAD_AT, BACK_AT, BEHIND_AT)
    job = server.client.submit(spec("jumpy", steps=STEPS, **gates.parts))
    for number, (step, offset_s) in enumerate(((AHEAD_AT, HOUR_S), (BACK_AT, 0.0), (BEHIND_AT, -HOUR_S)), 1):
        eventually(lambda step=step: len(gates.ranks_at(step)) == 4, 120)
        clock.set(offset_s)
        eventually(lambda number=number: len(told(server, job.id)) == number, SEEN_WITHIN_S)
        gates.open(step)
    done = server.client.wait(job.id, timeout_s=120)
    assert_same_result(server, done, control)
    assert done.incidents == []
    assert told(server, job.id) == [pytest.approx(each, abs=5) for each in (HOUR_S, -HOUR_S, -HOUR_S)]
    assert {rank.node_name for rank in server.client.generations(job.id)[0].ranks} == {"local-1", "local-2"}
    rows = server.client.steps(job.id)
    assert all(0 <= row.duration_s < SEEN_WITHIN_S + 60 for row in rows if row.duration_s is not None)


def told(server: Served, job: str) -> list[float]:
    """By how many seconds the clock of a node was seen to be set, each time."""
    return [
        event.data["seconds"] for event in server.client.events(job) if event.data.get("kind") == "clock_set"
    ]  # fmt: skip
