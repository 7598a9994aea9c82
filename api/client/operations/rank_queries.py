"""Requests that read what the ranks of a job do, and search in what they print."""

from collections.abc import Sequence

from regroup.api.client.connection.requests import Params, Request, to_model, url_path
from regroup.api.client.connection.streams import EventStream
from regroup.api.schemas.history import LogPiece
from regroup.api.schemas.inspection.logs import LogMatches
from regroup.api.schemas.inspection.ranks import RankViewList


def ranks(job: str, project: str, first: int, limit: int) -> Request[RankViewList]:
    """List the ranks of the newest generation."""
    params: Params = {"project": project, "first": first, "limit": limit}
    return Request("GET", url_path("jobs", job, "ranks"), to_model(RankViewList), params=params)


def search_log(
    job: str,
    text: str,
    project: str,
    rank: int | None,
    generation: int | None,
    stream: str | None,
    is_case_sensitive: bool,
    limit: int,
    cursor: str | None,
) -> Request[LogMatches]:
    """Search the output of the ranks."""
    where: Params = {"rank": rank, "generation": generation, "stream": stream, "case": is_case_sensitive}
    params: Params = {"project": project, "text": text, **where, "limit": limit, "cursor": cursor}
    return Request("GET", url_path("jobs", job, "logs", "search"), to_model(LogMatches), params=params)


def follow_logs(
    job: str, project: str, ranks: Sequence[int], streams: Sequence[str], generation: int | None, tail_bytes: int
) -> EventStream[LogPiece]:
    """Follow the output of several ranks."""
    params: Params = {
        "project": project, "rank": [str(rank) for rank in ranks], "stream": list(streams), "generation": generation,
        "tail_bytes": tail_bytes,
    }  # fmt: skip
    return EventStream(url_path("jobs", job, "logs", "merged"), LogPiece.model_validate_json, params)
