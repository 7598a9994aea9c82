"""All tools of the MCP server, in the order in which clients list them."""

from collections.abc import Sequence

from regroup.api.mcp.calls.tool import Tool
from regroup.api.mcp.tools import (
    access,
    cluster,
    commands,
    history,
    hooks,
    job_changes,
    jobs,
    metrics,
    nodes,
    projects,
    ranks,
)

TOOLS: Sequence[Tool] = tuple(
    tool
    for module in (jobs, history, metrics, ranks, job_changes, commands, nodes, projects, hooks, access, cluster)
    for tool in vars(module).values()
    if isinstance(tool, Tool)
)
