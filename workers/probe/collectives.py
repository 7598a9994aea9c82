"""The five collectives of training: timed, and what comes out of them compared with what must.

Sent are whole numbers below 61, so that sums are exact in 32-bit floats for any number of ranks that there is.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch import distributed as dist

from regroup.workers.probe.timing import Clock

_PRIME = 61


@dataclass(frozen=True)
class Checked:
    """One collective at one size."""

    name: str
    size_bytes: int
    """Of the whole tensor: what is reduced or sent to one, gathered in all, exchanged by one."""
    seconds: float
    """On the rank that took longest."""
    is_right: bool
    """Here."""


@dataclass(frozen=True)
class _Case:
    run: Callable[[], object]
    found: Tensor
    expected: Tensor


def measure(clock: Clock, device: torch.device, group: dist.ProcessGroup, size_bytes: int) -> list[Checked]:
    """All five among the ranks of `group`, on tensors of about so many bytes; other groups do theirs beside it."""
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
        found.copy_(own)  # else the sums would grow from call to call
        dist.all_reduce(found, group=group)

    return _Case(run, found, _sums(each * ranks, ranks, device))


def _all_gather(group: dist.ProcessGroup, each: int, device: torch.device) -> _Case:
    ranks, rank = group.size(), group.rank()
    own, found = _sent(each, rank, device), torch.empty(each * ranks, device=device)
    expected = torch.cat([_sent(each, other, device) for other in range(ranks)])

    def run() -> None:
        dist.all_gather_single(found, own, group=group)

    return _Case(run, found, expected)


def _reduce_scatter(group: dist.ProcessGroup, each: int, device: torch.device) -> _Case:
    ranks, rank = group.size(), group.rank()
    own, found = _sent(each * ranks, rank, device), torch.empty(each, device=device)
    expected = _sums(each * ranks, ranks, device)[rank * each : (rank + 1) * each]

    def run() -> None:
        dist.reduce_scatter_single(found, own, group=group)

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
    """What is sent under a key: no two neighbouring keys, or places, are alike."""
    return _residues(count, device).add_(13 * key).remainder_(_PRIME).to(torch.float32)


def _sums(count: int, ranks: int, device: torch.device) -> Tensor:
    """The sum of what `ranks` ranks send under their numbers."""
    residues, keys = torch.arange(_PRIME, device=device), torch.arange(ranks, device=device)
    totals = ((residues[:, None] + 13 * keys[None, :]) % _PRIME).sum(dim=1).to(torch.float32)
    return totals[_residues(count, device)]


def _residues(count: int, device: torch.device) -> Tensor:
    return torch.arange(count, device=device).mul_(7).remainder_(_PRIME)
