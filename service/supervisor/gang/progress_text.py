"""Sums and text of the bytes that the nodes of a job read from or write to durable storage. Pure."""

from collections.abc import Collection

from regroup.service.domain.byte_text import bytes_text, part_text
from regroup.workers.contract.storage_progress import StorageProgress


def add_up(found: Collection[StorageProgress]) -> StorageProgress:
    """Return the progress of several nodes together. The rate is that of the nodes that have not ended."""
    return StorageProgress(
        sum(each.done_bytes for each in found),
        sum(each.total_bytes for each in found),
        sum(each.bytes_per_s for each in found if each.done_bytes < each.total_bytes),
    )


def describe(activity: str, whole: StorageProgress, reporting: int, nodes: int) -> str:
    """Return the progress for people.

    Args:
        activity: present work of the job.
        whole: sums over the nodes that report.
        reporting: number of nodes that report.
        nodes: number of all nodes.
    """
    rate = f", {bytes_text(whole.bytes_per_s)}/s" if whole.done_bytes < whole.total_bytes else ""
    others = f" ({reporting} of {nodes} nodes have begun)" if reporting < nodes else ""
    return f"{activity}: {part_text(whole.done_bytes, whole.total_bytes)}{rate}{others}"
