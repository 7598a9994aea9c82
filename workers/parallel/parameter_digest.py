"""One number that two runs share only if their parameters are bitwise alike."""

import ctypes
import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed.tensor import DTensor


class ParameterDigest(NamedTuple):
    """Of one whole parameter."""

    sha256: str
    numel: int


def digests(parameters: Iterable[tuple[str, nn.Parameter]]) -> dict[str, ParameterDigest]:
    """Every parameter of the model by canonical name, those of other pipeline stages too. Collective; alike on all
    ranks. Parameters are gathered one at a time."""
    own: dict[str, ParameterDigest] = {}
    for name, parameter in sorted(parameters, key=lambda named: named[0]):
        value = _whole(parameter.detach()).cpu().contiguous()
        digest = hashlib.sha256(f"{value.dtype}:{tuple(value.shape)};".encode())
        if value.nbytes:  # as memory: a job's own Python need not have numpy
            digest.update((ctypes.c_char * value.nbytes).from_address(value.data_ptr()))
        own[name] = ParameterDigest(digest.hexdigest(), value.numel())
    if not dist.is_initialized():
        return own
    every = [json.loads(some) for some in gathered(json.dumps(own).encode())]
    return {name: ParameterDigest(*digest) for some in every for name, digest in some.items()}


def digest_of(parameters: Mapping[str, ParameterDigest]) -> str:
    """sha256 over the parameters' own."""
    lines = [f"{name}:{found.sha256}" for name, found in sorted(parameters.items())]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def gathered(own: bytes) -> list[bytes]:
    """The bytes of every rank, on each of them; a collective. torch's own way for objects needs numpy."""
    on_host = "gloo" in dist.get_backend_config()
    device = torch.device("cpu") if on_host else torch.device("cuda", torch.cuda.current_device())
    size = torch.tensor([len(own)], device=device)
    sizes = [torch.zeros_like(size) for _ in range(dist.get_world_size())]
    dist.all_gather(sizes, size)
    padded = torch.zeros(max(int(each) for each in sizes), dtype=torch.uint8, device=device)
    padded[: len(own)] = torch.frombuffer(bytearray(own), dtype=torch.uint8)
    parts = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(parts, padded)
    return [bytes(part[: int(each)].tolist()) for part, each in zip(parts, sizes, strict=True)]


def _whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
