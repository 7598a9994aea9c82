"""Each planned fault is real, happens where the spec says, and costs no more than it must."""

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from regroup.workers.contract.rank_config import FaultConfig, FaultPoint, RankConfig
from regroup.workers.rank.faults import process_faults
from tests.support.inputs.rank_configs import changed, fault


@pytest.mark.parametrize(("do", "code"), [("segfault", -signal.SIGSEGV), ("abort", -signal.SIGABRT)])
def test_a_rank_ends_by_the_real_signal_and_no_bit_is_lost(agent: Any, config: RankConfig, do: str, code: int) -> None:
    whole = agent.run(config, 2, "signals-whole")
    faulty_config = changed(config, faults=[fault(1, 3, do, "backward")])
    faulty = agent.run(faulty_config, 2, f"signals-{do}", show_errors=False)
    assert faulty.codes[1] == code
    at = {"source": "memory", "step": 2, "generation": 1}
    after = agent.run(faulty_config, 2, f"signals-{do}", generation=2, restore=at, faults_fired=[0])
    assert after.result == whole.result


def test_out_of_memory_is_a_kill_by_the_kernel_that_leaves_no_cgroup(agent: Any, config: RankConfig) -> None:
    faulty = agent.run(changed(config, faults=[fault(0, 2, "oom")]), 1, "oom", show_errors=False)
    if faulty.errors:
        assert "fault 0 of the spec: oom at step 2 in forward: not possible on this node: " in faulty.errors[0]
        pytest.skip(faulty.errors[0])
    assert faulty.codes == [-signal.SIGKILL]
    deadline = time.monotonic() + 10
    while left := oom_cgroups():
        assert time.monotonic() < deadline, left
        time.sleep(0.02)


def oom_cgroups() -> list[str]:
    """Return the control groups of the fault that exist. A folder that disappears during the search is ignored."""
    folders = os.walk("/sys/fs/cgroup")
    return [name for _, names, _ in folders for name in names if name.startswith("regroup-oom-")]


def test_a_fault_of_a_node_is_injected_by_its_first_rank(agent: Any, config: RankConfig) -> None:
    config = changed(
        config,
        faults=[FaultConfig(FaultPoint(2, node=number), "raise") for number in (1, 0)],
    )
    faulty = agent.run(config, 2, "by-node", show_errors=False)
    assert [due["index"] for due in faulty.of("FaultDue")] == [1]
    assert "PlannedFaultError: fault 1 of the spec: raise at step 2 in forward" in faulty.errors


def test_a_sleeping_rank_continues_where_it_was(agent: Any, config: RankConfig) -> None:
    whole = agent.run(config, 2, "awake")
    config = changed(config, faults=[fault(1, 3, "sleep", duration_s=4.0), fault(0, 4, "hold_gil", duration_s=4.0)])
    slept = agent.run(config, 2, "slept")
    assert slept.result == whole.result and slept.codes == [0, 0]
    # A busy machine slows a step too, but not by this much.
    assert [row["step"] for row in slept.rows if row["duration_s"] > 3.9] == [3, 4]


def test_connections_that_end_cost_a_start_and_no_bit(agent: Any, config: RankConfig) -> None:
    whole = agent.run(config, 2, "connected")
    config = changed(config, faults=[fault(1, 3, "cut_traffic")])
    faulty = agent.run(config, 2, "cut-off", show_errors=False)
    assert all(code != 0 for code in faulty.codes)
    assert {each["error"]["error_class"] for each in faulty.of("Failed")} == {"collateral"}, "no rank is the cause"
    at = {"source": "memory", "step": 2, "generation": 1}
    after = agent.run(config, 2, "cut-off", generation=2, restore=at, faults_fired=[0])
    assert after.result == whole.result


def test_lost_packets_cost_time_and_no_bit(agent: Any, config: RankConfig) -> None:
    whole = agent.run(config, 2, "heard-well")
    config = changed(
        config,
        faults=[
            fault(1, 2, "lose_traffic", share=0.1, duration_s=5.0),
            fault(0, 4, "lose_traffic", share=1, duration_s=1.5),
        ],
    )
    faulty = agent.run(config, 2, "heard-badly")
    assert faulty.result == whole.result and faulty.codes == [0, 0]
    assert max(row["duration_s"] for row in faulty.rows) > 1.0


def test_a_flipped_byte_makes_the_newest_set_unusable_and_the_one_before_serves(agent: Any, config: RankConfig) -> None:
    whole = agent.run(config, 2, "kept-well")
    config = changed(config, faults=[fault(1, 3, "flip_snapshot"), fault(0, 3, "sigkill", "backward")])
    agent.run(config, 2, "flipped", show_errors=False)

    def resumed(step: int) -> Any:
        at = {"source": "memory", "step": step, "generation": 1}
        return agent.run(config, 2, "flipped", generation=2, restore=at, faults_fired=[0, 1], show_errors=False)

    with pytest.raises(LookupError, match="no set of rank 1"):
        resumed(2)
    assert resumed(1).result == whole.result


def test_there_is_no_snapshot_to_flip_in_the_first_step(agent: Any, config: RankConfig) -> None:
    config = changed(config, faults=[fault(0, 1, "flip_snapshot")])
    assert "this rank has no snapshot yet" in agent.run(config, 1, "too-soon", show_errors=False).errors[0]


def test_a_slow_rank_works_so_many_times_as_much_until_its_last_slow_step() -> None:
    slowdown = process_faults.Slowdown(3.0, until_step=5)
    work(0.05)
    before_s = time.thread_time()
    assert slowdown.apply(4)
    assert 0.09 < time.thread_time() - before_s < 0.2, "twice as much again"
    work(0.05)
    before_s = time.thread_time()
    assert not slowdown.apply(5)
    assert time.thread_time() - before_s < 0.02


def work(seconds: float) -> None:
    until_s = time.thread_time() + seconds
    while time.thread_time() < until_s:
        pass


def test_while_the_gil_is_held_no_other_thread_runs() -> None:
    ticks: list[float] = []
    end = threading.Event()

    def tick() -> None:
        while not end.is_set():
            ticks.append(time.monotonic())
            time.sleep(0.005)

    ticking = threading.Thread(target=tick)
    ticking.start()
    began_s = time.monotonic()
    process_faults.block_gil(0.5)
    ended_s = time.monotonic()
    end.set()
    ticking.join()
    assert ended_s - began_s >= 0.5
    assert len([at for at in ticks if began_s + 0.05 < at < ended_s - 0.05]) == 0


def test_a_loop_computes_without_end() -> None:
    child = os.fork()
    if child == 0:
        process_faults.loop()
    try:
        deadline = time.monotonic() + 30
        while ticks_of(child) < 20:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def ticks_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11])
