"""A digest of all parameters: two runs have the same one only if their parameters are bitwise equal."""

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
    """Digest and size of one whole parameter."""

    sha256: str
    numel: int


def digests(parameters: Iterable[tuple[str, nn.Parameter]]) -> dict[str, ParameterDigest]:
    """Return the digest of every parameter by canonical name, including those of other pipeline stages. A collective;
    the result is equal on all ranks. Gathers one parameter at a time."""
    own: dict[str, ParameterDigest] = {}
    for name, parameter in sorted(parameters, key=lambda named: named[0]):
        value = _whole(parameter.detach()).cpu().contiguous()
        digest = hashlib.sha256(f"{value.dtype}:{tuple(value.shape)};".encode())
        if value.nbytes:  # read the memory directly: a job's own Python may lack numpy
            digest.update((ctypes.c_char * value.nbytes).from_address(value.data_ptr()))
        own[name] = ParameterDigest(digest.hexdigest(), value.numel())
    if not dist.is_initialized():
        return own
    every = [json.loads(some) for some in gathered(json.dumps(own).encode())]
    return {name: ParameterDigest(*digest) for some in every for name, digest in some.items()}


def digest_of(parameters: Mapping[str, ParameterDigest]) -> str:
    """Return the SHA-256 of the parameters' digests."""
    lines = [f"{name}:{found.sha256}" for name, found in sorted(parameters.items())]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def gathered(own: bytes) -> list[bytes]:
    """Return the bytes of every rank, on each rank. A collective. torch's object collectives need numpy."""
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
