"""CUDA devices of this machine, divided between the nodes of a local Ray cluster."""

import pytest

from regroup.service.local import node_devices
from regroup.service.settings import Settings


@pytest.mark.parametrize(
    ("visible", "requested", "expected"),
    [
        ("4,5,6,7", None, [(2, "4,5"), (2, "6,7")]),
        ("4,5,6,7", 1, [(1, "4"), (1, "5")]),
        ("4,5,6,7", 0, [(0, None), (0, None)]),
        ("0", None, [(0, None), (0, None)]),
        ("", 8, [(8, None), (8, None)]),
    ],
)
def test_nodes_share_the_devices_of_the_machine_evenly(
    visible: str, requested: int | None, expected: list[tuple[int, str | None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    settings = Settings(local_nodes=2, local_gpus_per_node=requested)
    dealt = [node_devices.divide_devices(settings, index) for index in range(2)]
    assert [(count, environment.get("CUDA_VISIBLE_DEVICES")) for count, environment in dealt] == expected
