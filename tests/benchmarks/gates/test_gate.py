"""Tests of the gate: one arm at a time, exactly the requested steps, and no order that favors an arm."""

import threading
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.gates.gate import GateClient, GateServer, rounds


def train(path: Path, arm: str, rank: int, log: list[tuple[str, int]]) -> threading.Thread:
    def loop() -> None:
        gate = GateClient(str(path), arm, rank)
        go_on = gate.wait()
        while go_on:
            log.append((arm, rank))
            go_on = gate.step_done()

    thread = threading.Thread(target=loop)
    thread.start()
    return thread


def test_only_the_admitted_arm_runs_and_only_the_requested_steps(tmp_path: Path) -> None:
    log: list[tuple[str, int]] = []
    with GateServer(tmp_path / "gate", patience_s=10) as gate:
        threads = [train(tmp_path / "gate", arm, rank, log) for arm in "ab" for rank in range(2)]
        gate.admit("a", 2)
        gate.admit("b", 2)
        assert gate.run_block("a", 3) > 0
        assert Counter(log) == {("a", 0): 3, ("a", 1): 3}
        gate.run_block("b", 1)
        gate.run_block("a", 2)
        assert Counter(log) == {("a", 0): 5, ("a", 1): 5, ("b", 0): 1, ("b", 1): 1}
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()


def test_the_error_names_an_arm_that_does_not_connect(tmp_path: Path) -> None:
    with GateServer(tmp_path / "gate", patience_s=0.05) as gate, pytest.raises(TimeoutError, match="arm bare: 0 of 4"):
        gate.admit("bare", 4)


def test_a_rank_that_disconnects_raises_an_error(tmp_path: Path) -> None:
    with GateServer(tmp_path / "gate", patience_s=10) as gate:
        client = GateClient(str(tmp_path / "gate"), "a", 0)
        gate.admit("a", 1)
        client.close()
        with pytest.raises(ConnectionError, match="rank 0"):
            gate.run_block("a", 1)


def test_every_arm_runs_once_per_round_and_all_orders_are_equally_frequent() -> None:
    plan = rounds(["x", "y", "z"], 60, shuffle_seed=1)
    assert all(sorted(order) == ["x", "y", "z"] for order in plan)
    assert set(Counter(map(tuple, plan)).values()) == {10}
    assert plan == rounds(["x", "y", "z"], 60, shuffle_seed=1)
