"""A shortage on a node is reported when it begins and when it ends, and not in between."""

from pathlib import Path

from regroup.workers.agent.health.resource_pressure import Readings, ResourcePressure, read

GIB, MIB = 2**30, 2**20


def readings(memory: int = 50 * GIB, disk: int = GIB, gpus: tuple[str, ...] = ()) -> Readings:
    return Readings(memory, 100 * GIB, {"/tmp": disk}, gpus)


def test_a_shortage_is_reported_once_when_it_begins_and_once_when_it_ends() -> None:
    pressure = ResourcePressure()
    assert pressure.changes(readings()) == []
    assert pressure.changes(readings(memory=GIB)) == [("memory", "only 1024 MiB of 100.0 GiB of memory are free")]
    assert pressure.changes(readings(memory=GIB // 2)) == []
    assert pressure.changes(readings(memory=4 * GIB)) == [], "memory oscillates around the bound"
    assert pressure.changes(readings(memory=7 * GIB, disk=3 * MIB)) == [
        ("memory", ""), ("disk", "only 3 MiB are free for /tmp"),
    ]  # fmt: skip
    assert pressure.changes(readings(memory=7 * GIB)) == [("disk", "")]


def test_a_faulty_gpu_is_reported() -> None:
    pressure = ResourcePressure()
    assert pressure.changes(readings(gpus=("GPU 0 is lost", "GPU 1 is lost"))) == [
        ("device", "GPU 0 is lost; GPU 1 is lost")
    ]


def test_resources_of_this_machine_are_read(tmp_path: Path) -> None:
    now = read((tmp_path, tmp_path), ())
    assert 0 < now.free_memory_bytes <= now.memory_bytes and now.free_bytes[str(tmp_path)] > 0
    assert now.broken_gpus == () and len(now.free_bytes) == 1
