"""Questions that several tests ask."""

from regroup.service.domain.hardware import find_device
from regroup.service.planner.model_shape import PRESETS
from regroup.service.planner.types import Cluster, Work


def cluster(name: str, gpus: int) -> Cluster:
    """So many of a device, in its usual nodes."""
    device = find_device(name)
    assert device is not None
    return Cluster(device, gpus, device.domain, device.network_bytes_s)


def work(model: str, batch: int, sequence: int, precision: str = "bf16") -> Work:
    """A preset's step."""
    return Work(PRESETS[model], batch, sequence, precision)
