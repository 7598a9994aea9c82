"""The NVIDIA driver, through NVML: a typed surface over `nvidia-ml-py`. It creates no CUDA context."""

import ctypes
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

try:
    import pynvml
except ModuleNotFoundError:  # a job's own interpreter may have torch and nothing else
    pynvml = None


class NvmlError(Exception):
    """A call that the driver refused, or a driver that does not answer."""


@dataclass(frozen=True)
class NvLink:
    """An NVLink that is up."""

    to_switch: bool
    bus: str
    """PCI bus ID of the GPU at the other end; empty if unknown, or for a switch."""


@dataclass(frozen=True)
class RemappedRows:
    """Broken memory rows of a GPU that the driver replaces by spare rows."""

    has_failed: bool
    """No spare rows are left."""
    is_pending: bool
    """The replacement needs a reset."""


class Gpu:
    """One GPU. Queries that its driver does not support return an empty value."""

    def __init__(self, index: int, handle: Any) -> None:
        self.index, self.handle = index, handle

    def bus(self) -> str:
        """Return the PCI bus ID; empty if unknown."""
        with suppress(_library().NVMLError):
            return _bus_id(_library().nvmlDeviceGetPciInfo_v3(self.handle))
        return ""

    def uuid(self) -> str:
        """Return the UUID, `GPU-…`; empty if unknown."""
        with suppress(_library().NVMLError):
            return str(_library().nvmlDeviceGetUUID(self.handle))
        return ""

    def links(self) -> list[NvLink]:
        """Return the NVLinks that are up and lead to a GPU or to a switch."""
        nvml, found = _library(), list[NvLink]()
        for number in range(nvml.NVML_NVLINK_MAX_LINKS):
            with suppress(nvml.NVMLError):
                if not nvml.nvmlDeviceGetNvLinkState(self.handle, number):
                    continue
                kind = nvml.nvmlDeviceGetNvLinkRemoteDeviceType(self.handle, number)
                if kind == nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
                    found.append(NvLink(True, ""))
                elif kind == nvml.NVML_NVLINK_DEVICE_TYPE_GPU:
                    found.append(NvLink(False, _bus_id(nvml.nvmlDeviceGetNvLinkRemotePciInfo(self.handle, number))))
        return found

    def fabric(self) -> str:
        """Return cluster and clique of the NVLink fabric; empty without one."""
        nvml = _library()
        info = nvml.c_nvmlGpuFabricInfo_t()
        try:
            nvml.nvmlDeviceGetGpuFabricInfo(self.handle, ctypes.byref(info))
        except nvml.NVMLError:  # older drivers lack this query
            return ""
        uuid = bytes(info.clusterUuid).hex()
        is_complete = info.status == nvml.NVML_SUCCESS and info.state == nvml.NVML_GPU_FABRIC_STATE_COMPLETED
        return f"{uuid}.{info.cliqueId}" if is_complete and uuid.strip("0") else ""

    def remapped_rows(self) -> RemappedRows:
        """Return the state of broken memory rows."""
        with suppress(_library().NVMLError):
            _, _, pending, failure = _library().nvmlDeviceGetRemappedRows(self.handle)
            return RemappedRows(bool(failure), bool(pending))
        return RemappedRows(False, False)

    def uncorrected_errors(self) -> int:
        """Return the number of uncorrectable memory errors since the driver was loaded."""
        nvml = _library()
        with suppress(nvml.NVMLError):
            kinds = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
            return int(nvml.nvmlDeviceGetTotalEccErrors(self.handle, *kinds))
        return 0


@contextmanager
def driver() -> Generator[bool]:
    """Use the driver inside the context, which is False on a node without its library.

    Raises:
        NvmlError: The driver does not answer.
    """
    if pynvml is None:
        yield False
        return
    nvml = _library()
    try:
        nvml.nvmlInit()
    except nvml.NVMLError_LibraryNotFound:
        yield False
        return
    except nvml.NVMLError as error:
        raise NvmlError(f"the NVIDIA driver does not answer: {error}") from error
    try:
        yield True
    finally:
        with suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


def gpu(index: int) -> Gpu:
    """Return a GPU.

    Raises:
        NvmlError: The driver returns no handle for it.
    """
    nvml = _library()
    try:
        return Gpu(index, nvml.nvmlDeviceGetHandleByIndex(index))
    except nvml.NVMLError as error:
        raise NvmlError(f"GPU {index} is lost: the driver returns no handle for it ({error})") from error


def index_of(name: str) -> int:
    """Return the index of a GPU that `CUDA_VISIBLE_DEVICES` names: by a number, or by the beginning of its UUID.

    Raises:
        NvmlError: No GPU or several have such a UUID, or it names a part of a GPU (MIG).
    """
    if name.isdecimal():
        return int(name)
    if name.startswith("MIG-"):
        raise NvmlError(
            f"{name} is a part of a GPU (MIG), and ranks get whole GPUs: turn MIG off on this node, or leave the part "
            "out of CUDA_VISIBLE_DEVICES of the node"
        )
    with driver() as has_driver:
        found = [device.index for device in gpus() if device.uuid().startswith(name)] if has_driver else []
    if len(found) != 1:
        raise NvmlError(
            f"CUDA_VISIBLE_DEVICES of this node has {name!r}, and {len(found)} of its GPUs have such a UUID: "
            "use the index or the whole UUID"
        )
    return found[0]


def gpus() -> list[Gpu]:
    """Return every GPU for which the driver returns a handle."""
    nvml, found = _library(), list[Gpu]()
    with suppress(nvml.NVMLError):
        for index in range(nvml.nvmlDeviceGetCount()):
            with suppress(NvmlError):
                found.append(gpu(index))
    return found


def broken(indexes: Iterable[int]) -> tuple[list[str], list[str]]:
    """Return the failures of these GPUs and notes for people; both are empty without a driver."""
    failures, notes = list[str](), list[str]()
    try:
        with driver() as has_driver:
            for index in indexes if has_driver else ():
                _inspect(index, failures, notes)
    except NvmlError as error:
        failures.append(str(error))
    return failures, notes


def _inspect(index: int, failures: list[str], notes: list[str]) -> None:
    try:
        device = gpu(index)
    except NvmlError as error:
        failures.append(str(error))
        return
    rows = device.remapped_rows()
    if rows.has_failed:
        failures.append(f"GPU {index} has broken memory rows and no spare rows left: replace the GPU")
    elif rows.is_pending:
        failures.append(f"GPU {index} needs a reset to remap broken memory rows")
    if count := device.uncorrected_errors():
        notes.append(f"GPU {index} has had {count} uncorrectable memory errors since its driver was loaded")


def _bus_id(pci: Any) -> str:
    """Return the bus ID in the format of /sys: the domain has four digits there and eight in NVML."""
    return f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.0"


def _library() -> Any:
    assert pynvml is not None, "nothing calls the driver outside driver()"
    return pynvml
