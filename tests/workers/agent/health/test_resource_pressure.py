"""What goes short on a node is told when it does, and when it no longer is; not again and again in between."""

from pathlib import Path

from regroup.workers.agent.health.resource_pressure import Readings, ResourcePressure, read

GIB, MIB = 2**30, 2**20


def readings(memory: int = 50 * GIB, disk: int = GIB, gpus: tuple[str, ...] = ()) -> Readings:
    return Readings(memory, 100 * GIB, {"/tmp": disk}, gpus)


def test_what_is_short_is_told_once_and_once_more_when_it_is_well_again() -> None:
    well = ResourcePressure()
    assert well.changes(readings()) == []
    assert well.changes(readings(memory=GIB)) == [("memory", "1024 MiB of 100.0 GiB of memory are free")]
    assert well.changes(readings(memory=GIB // 2)) == []
    assert well.changes(readings(memory=4 * GIB)) == [], "it goes to and fro about the bound"
    assert well.changes(readings(memory=7 * GIB, disk=3 * MIB)) == [
        ("memory", ""), ("disk", "3 MiB are free for /tmp"),
    ]  # fmt: skip
    assert well.changes(readings(memory=7 * GIB)) == [("disk", "")]


def test_a_broken_gpu_is_told() -> None:
    well = ResourcePressure()
    assert well.changes(readings(gpus=("GPU 0 is lost", "GPU 1 is lost"))) == [
        ("device", "GPU 0 is lost; GPU 1 is lost")
    ]


def test_a_look_at_this_machine(tmp_path: Path) -> None:
    now = read((tmp_path, tmp_path), ())
    assert 0 < now.free_memory_bytes <= now.memory_bytes and now.free_bytes[str(tmp_path)] > 0
    assert now.broken_gpus == () and len(now.free_bytes) == 1
