"""Tools that read what the ranks of a job do, and search in what they print."""

from typing import Annotated, Literal

from pydantic import Field

from regroup.api.mcp.calls.caller import Caller
from regroup.api.mcp.calls.parameters import MAX_PAGE, Cursor, Job, Project, Rank
from regroup.api.mcp.calls.tool import reads
from regroup.api.schemas.inspection.logs import LogMatches
from regroup.api.schemas.inspection.ranks import RankViewList

OnlyRank = Annotated[Rank | None, Field(description="Only this rank; null for all")]
AnyGeneration = Annotated[int | None, Field(ge=1, lt=2**31, description="Only this generation; null for all")]
AnyStream = Annotated[Literal["stdout", "stderr"] | None, Field(description="Only this output; null for both")]


@reads("List ranks")
async def list_ranks(
    caller: Caller,
    job: Job,
    first: Rank = 0,
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE, description="Largest number of ranks")] = 50,
    project: Project = "default",
) -> RankViewList:
    """List the ranks of a job: node, step, phase, and the time that each works and waits in a step."""
    return await caller.client.ranks(job, first=first, limit=limit, project=project)


@reads("Search the output of ranks")
async def search_log(
    caller: Caller,
    job: Job,
    text: Annotated[str, Field(min_length=1, max_length=200, description="Text that a line must contain")],
    rank: OnlyRank = None,
    generation: AnyGeneration = None,
    stream: AnyStream = None,
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE, description="Largest number of lines")] = 20,
    cursor: Cursor = None,
    project: Project = "default",
) -> LogMatches:
    """Search the output of all ranks and generations for lines with a text. `offset` is a place for `read_log`."""
    return await caller.client.search_log(
        job, text, rank=rank, generation=generation, stream=stream, limit=limit, cursor=cursor, project=project
    )
