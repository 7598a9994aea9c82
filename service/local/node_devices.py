"""CUDA devices of this machine, divided between the nodes of a local Ray cluster."""

import os
from pathlib import Path

from regroup.service.settings import Settings


def divide_devices(settings: Settings, index: int) -> tuple[int, dict[str, str]]:
    """Return the number of a node's CUDA devices, and the environment that shows only those to the node.

    The environment is empty if the machine has fewer devices than the settings declare.
    """
    visible = _visible_devices()
    requested = settings.local_gpus_per_node
    count = len(visible) // max(1, settings.local_nodes) if requested is None else requested
    if count and count * settings.local_nodes <= len(visible):
        return count, {"CUDA_VISIBLE_DEVICES": ",".join(visible[index * count : (index + 1) * count])}
    return count, {}


def _visible_devices() -> list[str]:
    """Return the devices of this machine that the server's own environment allows."""
    allowed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if allowed is not None:
        return [device for device in allowed.split(",") if device.strip() not in ("", "-1")]
    return [str(number) for number in range(len(list(Path("/proc/driver/nvidia/gpus").glob("*"))))]
