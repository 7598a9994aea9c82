"""Preparation of nodes for a job while it trains elsewhere: agent, Python environment, data and preflight."""

from collections.abc import Callable

from regroup.service.ports.agents import AgentError
from regroup.service.supervisor.gang import Gang
from regroup.service.supervisor.job_config import JobConfig
from regroup.service.supervisor.preflight import check_nodes
from regroup.workers.contract.agent_records import AgentErrorKind
from regroup.workers.contract.messages import Note

READY_TIMEOUT_S = 120.0


async def prepare_nodes(payload: JobConfig, gang: Gang, note: Callable[[str, Note], None]) -> None:
    """Prepare the nodes of `gang`, which are new to the job. The job's own gang shares the facts.

    Args:
        note: receives the notes of the nodes.

    Raises:
        AgentLostError, AgentError: a node is not up in time, cannot do what the spec asks for, or is unfit.
    """
    await gang.start_agents(READY_TIMEOUT_S)
    await gang.check_storage()
    await gang.prepare_data(payload.data_sources)
    unfit = await check_nodes(payload, gang, note) if payload.preflight else ()
    if (worst := next((each for each in unfit if each.is_excluded), None)) is not None:
        raise AgentError(worst.node_id, gang.configs[worst.node_id].node_name, AgentErrorKind.PREFLIGHT, worst.message)
