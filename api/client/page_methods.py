"""Methods of the client that return one page of a list, for programs that keep a cursor."""

from collections.abc import Iterator, Mapping, Sequence

from regroup.api.client.connection.requests import Page
from regroup.api.client.connection.transport import SyncTransport
from regroup.api.client.operations import audit, changes, hooks, job_queries, rank_queries, usage
from regroup.api.schemas.audit import AuditRecord
from regroup.api.schemas.history import Event, LogPart, LogPiece, Notice, NoticeList
from regroup.api.schemas.hooks import Delivery
from regroup.api.schemas.inspection.logs import LogMatches
from regroup.api.schemas.inspection.ranks import RankViewList
from regroup.api.schemas.jobs import JobSummary
from regroup.api.schemas.usage import UsageRow


class PageMethods:
    """The part of the client for single pages. The next page begins at `next_cursor` of the page before."""

    _transport: SyncTransport

    def job_page(
        self,
        *,
        state: Sequence[str] = (),
        project: str | None = None,
        name: str | None = None,
        author: str | None = None,
        labels: Mapping[str, str] | None = None,
        ids: Sequence[str] = (),
        cursor: str | None = None,
        size: int | None = None,
    ) -> Page[JobSummary]:
        """Return a page of `jobs`."""
        return self._transport.run(job_queries.jobs(state, project, name, author, labels, ids).page(cursor, size))

    def event_page(self, job: str, *, after: int = 0, size: int | None = None, project: str = "default") -> Page[Event]:
        """Return the first events numbered above `after`."""
        return self._transport.run(job_queries.events(job, project, after).page(None, size))

    def log_part(
        self,
        job: str,
        *,
        rank: int = 0,
        generation: int | None = None,
        stream: str = "stdout",
        offset: int = 0,
        limit: int = 65536,
        project: str = "default",
    ) -> LogPart:
        """Return up to `limit` bytes of the output of a rank in one generation (None: the newest), from `offset`."""
        request = job_queries.log_part(job, project, rank, generation, stream, offset, limit)
        return self._transport.run(request)

    def ranks(self, job: str, *, first: int = 0, limit: int = 1024, project: str = "default") -> RankViewList:
        """Return the ranks of the newest generation from number `first`: where each runs, and what it does now."""
        return self._transport.run(rank_queries.ranks(job, project, first, limit))

    def search_log(
        self,
        job: str,
        text: str,
        *,
        rank: int | None = None,
        generation: int | None = None,
        stream: str | None = None,
        is_case_sensitive: bool = False,
        limit: int = 100,
        cursor: str | None = None,
        project: str = "default",
    ) -> LogMatches:
        """Return lines of output with a text, of all ranks, generations and outputs that are not given."""
        request = rank_queries.search_log(
            job, text, project, rank, generation, stream, is_case_sensitive, limit, cursor
        )
        return self._transport.run(request)

    def follow_logs(
        self,
        job: str,
        *,
        ranks: Sequence[int] = (),
        streams: Sequence[str] = (),
        generation: int | None = None,
        tail_bytes: int = 8192,
        project: str = "default",
    ) -> Iterator[LogPiece]:
        """Yield the output of several ranks as it arrives (none given: the first 32), from near its end to its end."""
        request = rank_queries.follow_logs(job, project, ranks, streams, generation, tail_bytes)
        yield from self._transport.follow(request)

    def audit_page(
        self,
        *,
        project: str | None = None,
        actor: str | None = None,
        action: str | None = None,
        object: str | None = None,
        since_s: float | None = None,
        until_s: float | None = None,
        cursor: str | None = None,
        size: int | None = None,
    ) -> Page[AuditRecord]:
        """Return a page of `audit`."""
        filters = audit.filters_of(project, actor, action, object, since_s, until_s)
        return self._transport.run(audit.records(filters).page(cursor, size))

    def usage_page(
        self,
        *,
        group_by: Sequence[usage.GroupName] = ("project",),
        from_s: float | None = None,
        to_s: float | None = None,
        project: str | None = None,
        cursor: str | None = None,
        size: int | None = None,
    ) -> Page[UsageRow]:
        """Return a page of `usage`."""
        filters = usage.filters_of(group_by, from_s, to_s, project)
        return self._transport.run(usage.usage(filters).page(cursor, size))

    def delivery_page(
        self,
        project: str,
        hook_id: str,
        *,
        state: str | None = None,
        cursor: str | None = None,
        size: int | None = None,
    ) -> Page[Delivery]:
        """Return a page of `deliveries`."""
        return self._transport.run(hooks.deliveries(project, hook_id, state).page(cursor, size))

    def changes(self, *, after: int | None = None, limit: int | None = None) -> NoticeList:
        """Return notices of changes after a number; without one, only the number of the newest."""
        return self._transport.run(changes.changes(after, limit))

    def follow_changes(self, *, after: int | None = None) -> Iterator[Notice]:
        """Yield notices of changes, without an end, from now on or after a number.

        The first one is of kind `start`. One of kind `missed` tells that others were removed: read all objects again.
        """
        return self._transport.follow(changes.follow_changes(after))
