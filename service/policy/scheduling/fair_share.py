"""Order the queue: guarantees first, then priority, then the project with the smallest weighted share, then age.

A waiting job rises by one priority class in each `ageing_s`, without limit. Every job is therefore ahead of all later
jobs at some time, whatever their class and project. Ageing only orders the queue; it preempts no running job.
"""

import heapq
from collections.abc import Iterator, Sequence

from regroup.service.policy.scheduling.entries import WaitingJob
from regroup.service.policy.scheduling.quota import QuotaUsage

_Key = tuple[bool, int, float, float, str]


class AdmissionOrder:
    """Iterator over the queue in admission order. Usage that is added during the iteration counts for the jobs that
    follow."""

    def __init__(self, queue: Sequence[WaitingJob], usage: QuotaUsage, *, now_s: float, ageing_s: float) -> None:
        self._books = usage
        lines: dict[tuple[str, int], list[WaitingJob]] = {}
        for job in queue:
            lines.setdefault((job.project, aged_priority(job, now_s=now_s, ageing_s=ageing_s)), []).append(job)
        self._lines = {
            place: sorted(jobs, key=lambda job: (job.queued_s, job.job_id), reverse=True)
            for place, jobs in lines.items()
        }
        self._heap = [(self._key(place), place) for place in self._lines]
        heapq.heapify(self._heap)

    def __iter__(self) -> Iterator[WaitingJob]:
        while self._heap:
            key, place = self._heap[0]
            if (now := self._key(place)) != key:  # the project's usage grew after the push: keys only grow
                heapq.heapreplace(self._heap, (now, place))
                continue
            job = self._lines[place].pop()
            if self._lines[place]:
                heapq.heapreplace(self._heap, (self._key(place), place))
            else:
                heapq.heappop(self._heap)
            yield job

    def _key(self, place: tuple[str, int]) -> _Key:
        project, class_now = place
        first = self._lines[place][-1]
        borrows = self._books.would_borrow(project, first.min_ranks)
        return borrows, -class_now, self._books.weighted_share(project), first.queued_s, first.job_id


def aged_priority(job: WaitingJob, *, now_s: float, ageing_s: float) -> int:
    """Return the priority class of a job, including its ageing."""
    return int(job.priority) + int(max(0.0, now_s - job.queued_s) // ageing_s)
