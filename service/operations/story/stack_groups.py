"""Ranks that are in the same place, from their stacks. The smallest group is usually the cause of a hang. Pure."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

_THREAD = re.compile(r"^(?:Current thread|Thread) 0x[0-9a-f]+.*$", re.MULTILINE)
_ADDRESS = re.compile(r"0x[0-9a-f]+")
MAX_GROUPS, MAX_CHARACTERS = 20, 16_000


@dataclass(frozen=True)
class StackGroup:
    """Ranks whose main threads have the same stack."""

    ranks: tuple[int, ...]
    is_outlier: bool
    """True if fewer ranks are in this place than in another, or if it has the rank at fault."""
    place: str
    """Newest call of the main thread; empty if the rank did not answer."""
    text: str
    """Stacks of all threads of its first rank."""


def group_stacks(texts: Mapping[int, str], at_fault: Collection[int] = ()) -> tuple[StackGroup, ...]:
    """Return groups of ranks, the outliers first, then the largest.

    Args:
        texts: rank → stacks of all its threads.
        at_fault: ranks that the incident names. They are the outliers if the sizes of the groups do not decide.
    """
    by_stack: dict[str, list[int]] = {}
    for rank, text in sorted(texts.items()):
        by_stack.setdefault(main_stack(text), []).append(rank)
    sizes = [len(ranks) for ranks in by_stack.values()]
    groups = [
        StackGroup(
            tuple(ranks),
            _is_outlier(ranks, sizes, at_fault),
            _newest_call(stack),
            texts[ranks[0]][-MAX_CHARACTERS:],
        )
        for stack, ranks in by_stack.items()
    ]
    return tuple(sorted(groups, key=lambda each: (not each.is_outlier, -len(each.ranks), each.ranks))[:MAX_GROUPS])


def main_stack(text: str) -> str:
    """Return the stack of the main thread without addresses: `faulthandler` writes it last."""
    parts = _THREAD.split(text)
    return _ADDRESS.sub("0x", parts[-1]).strip()


def _is_outlier(ranks: Collection[int], sizes: Collection[int], at_fault: Collection[int]) -> bool:
    if len(sizes) < 2:
        return False
    if min(sizes) < max(sizes):
        return len(ranks) == min(sizes)
    return any(rank in at_fault for rank in ranks)


def _newest_call(stack: str) -> str:
    found = re.search(r'File "([^"]+)", line (\d+) in (.+)', stack)
    return "" if found is None else f"{found[3].strip()} ({found[1].rsplit('/', 1)[-1]}:{found[2]})"
