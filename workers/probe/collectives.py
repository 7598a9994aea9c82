"""Time and correctness of the five collectives of training.

The values are integers below 61, so sums are exact in 32-bit floats for any realistic number of ranks.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch import distributed as dist

from regroup.workers.probe.timing import Clock
from regroup.workers.torch_internals.collectives import all_gather_single, reduce_scatter_single

_PRIME = 61


@dataclass(frozen=True)
class Checked:
    """One collective at one size."""

    name: str
    size_bytes: int
    """Bytes of the global tensor: reduced or broadcast, gathered in total, or exchanged by one rank."""
    seconds: float
    """Time on the slowest rank."""
    is_right: bool
    """True if the result on this rank is right."""


@dataclass(frozen=True)
class _Case:
    run: Callable[[], object]
    found: Tensor
    expected: Tensor


def measure(clock: Clock, device: torch.device, group: dist.ProcessGroup, size_bytes: int) -> list[Checked]:
    """Measure all five collectives in `group`, on tensors of about this size. Other groups do the same at the same
    time."""
    checked: list[Checked] = []
    for name, prepare in _CASES.items():
        ranks = group.size()
        each = max(1, size_bytes // 4 // ranks)
        case = prepare(group, each, device)
        case.run()
        is_right = bool(torch.equal(case.found, case.expected))
        checked.append(Checked(name, each * ranks * 4, clock.slowest_s(case.run), is_right))
    return checked


def _all_reduce(group: dist.ProcessGroup, each: int, device: torch.device) -> _Case:
    ranks, rank = group.size(), group.rank()
    own, found = _sent(each * ranks, rank, device), torch.empty(each * ranks, device=device)

    def run() -> None:
        found.copy_(own)  # otherwise the sums would grow from call to call
        dist.all_reduce(found, group=group)

    return _Case(run, found, _sums(each * ranks, ranks, device))


def _all_gather(group: dist.ProcessGroup, each: int, device: torch.device) -> _Case:
    ranks, rank = group.size(), group.rank()
    own, found = _sent(each, rank, device), torch.empty(each * ranks, device=device)
    expected = torch.cat([_sent(each, other, device) for other in range(ranks)])

    def run() -> None:
        all_gather_single(found, own, group)

    return _Case(run, found, expected)


def _reduce_scatter(group: dist.ProcessGroup, each: int, device: torch.device) -> _Case:
    ranks, rank = group.size(), group.rank()
    own, found = _sent(each * ranks, rank, device), torch.empty(each, device=device)
    expected = _sums(each * ranks, ranks, device)[rank * each : (rank + 1) * each]

    def run() -> None:
        reduce_scatter_single(found, own, group)

    return _Case(run, found, expected)


def _broadcast(group: dist.ProcessGroup, each: int, device: torch.device) -> _Case:
    ranks, rank = group.size(), group.rank()
    expected = _sent(each * ranks, 0, device)
    found = expected.clone() if rank == 0 else torch.zeros(each * ranks, device=device)

    def run() -> None:
        dist.broadcast(found, group=group, group_src=0)

    return _Case(run, found, expected)


def _all_to_all(group: dist.ProcessGroup, each: int, device: torch.device) -> _Case:
    ranks, rank = group.size(), group.rank()
    own = torch.cat([_sent(each, rank + 3 * to, device) for to in range(ranks)])
    expected = torch.cat([_sent(each, sender + 3 * rank, device) for sender in range(ranks)])
    found = torch.empty(each * ranks, device=device)

    def run() -> None:
        dist.all_to_all_single(found, own, group=group)

    return _Case(run, found, expected)


_CASES: dict[str, Callable[[dist.ProcessGroup, int, torch.device], _Case]] = {
    "all_reduce": _all_reduce,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "broadcast": _broadcast,
    "all_to_all": _all_to_all,
}


def _sent(count: int, key: int, device: torch.device) -> Tensor:
    """Return the values sent under a key. Neighboring keys and positions have different values."""
    return _residues(count, device).add_(13 * key).remainder_(_PRIME).to(torch.float32)


def _sums(count: int, ranks: int, device: torch.device) -> Tensor:
    """Return the sum of the values that `ranks` ranks send under their rank numbers."""
    residues, keys = torch.arange(_PRIME, device=device), torch.arange(ranks, device=device)
    totals = ((residues[:, None] + 13 * keys[None, :]) % _PRIME).sum(dim=1).to(torch.float32)
    return totals[_residues(count, device)]


def _residues(count: int, device: torch.device) -> Tensor:
    return torch.arange(count, device=device).mul_(7).remainder_(_PRIME)
