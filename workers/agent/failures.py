"""Classification of errors into failures that the caller of an agent can act on."""

import traceback
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

from regroup.workers.agent.exec_sessions import ExecRefused
from regroup.workers.agent.generation_fence import StaleGeneration
from regroup.workers.agent.ranks.prepared_ranks import MemoryShortage
from regroup.workers.agent.slices.saved_state import StateLostError
from regroup.workers.agent.transfer.shard_store import NoMemoryError, TransferError
from regroup.workers.contract.agent_api import AgentFailedError
from regroup.workers.contract.agent_records import AgentErrorKind, AgentFailure
from regroup.workers.contract.error_classes import DataError
from regroup.workers.environment.code_archive import CodeError
from regroup.workers.environment.interpreter import PythonUnfit
from regroup.workers.os.node_facts import SecretMissing
from regroup.workers.os.start_errors import StartError
from regroup.workers.storage.fsspec_storage import StorageError, StorageUnavailable
from regroup.workers.zygote.client import TaskDied, TaskFailed, ZygoteDied, ZygoteRefused

_Result = TypeVar("_Result")
_BY_TYPE: tuple[tuple[type[Exception], AgentErrorKind], ...] = (
    (DataError, AgentErrorKind.DATA),
    (StorageError, AgentErrorKind.STORAGE),
    (StorageUnavailable, AgentErrorKind.STORAGE_UNAVAILABLE),
    (FileNotFoundError, AgentErrorKind.FILE),
    (PermissionError, AgentErrorKind.FILE),
    (NoMemoryError, AgentErrorKind.NO_MEMORY),
    (MemoryShortage, AgentErrorKind.NO_MEMORY),
    (TransferError, AgentErrorKind.TRANSFER),
    (StateLostError, AgentErrorKind.TRANSFER),
    (ExecRefused, AgentErrorKind.COMMAND),
)
"""Exception type → kind; the first match counts."""
_BY_TASK_ERROR = {cls.__name__: kind for cls, kind in _BY_TYPE}
_OF_THE_NODE = (OSError, ZygoteDied, TaskDied)


async def guarded(
    work: Awaitable[_Result],
    classify: Callable[[Exception], AgentFailure | None],
    node_name: str,
    hide: Callable[[str], str],
) -> _Result:
    """Await work of a node's agent. `hide` removes secrets from a text.

    Raises:
        AgentFailedError: `classify` returned a failure for the error, or the agent failed already. Any other error is
            raised unchanged, unless it has a secret.
    """
    try:
        return await work
    except AgentFailedError as error:
        raise failed(error.failure, node_name, hide) from None
    except Exception as error:
        if (failure := classify(error)) is not None:
            raise failed(failure, node_name, hide) from None  # the error itself may have a secret
        text = "".join(traceback.format_exception(error))
        if hide(text) == text:
            raise
        raise (ValueError if isinstance(error, ValueError) else RuntimeError)(hide(text)) from None


def failed(failure: AgentFailure, node_name: str, hide: Callable[[str], str]) -> AgentFailedError:
    """Return the error for a failure of a node, without secrets."""
    texts = {"message": hide(failure.message), "traceback": hide(failure.traceback)}
    return AgentFailedError(replace(failure, node_name=failure.node_name or node_name, **texts))


def classify_setup_error(error: Exception, log_dir: str) -> AgentFailure | None:
    """Return the failure of an error during node setup; None for a bug."""
    match error:
        case ZygoteRefused():
            return AgentFailure(AgentErrorKind.PRELOAD, str(error), error.traceback)
        case CodeError():
            return AgentFailure(AgentErrorKind.CODE, str(error))
        case SecretMissing():
            return AgentFailure(AgentErrorKind.SECRET, str(error))
        case PythonUnfit():
            return AgentFailure(AgentErrorKind.ENVIRONMENT, str(error), error.details)
        case ZygoteDied():
            return AgentFailure(AgentErrorKind.ENVIRONMENT, f"{error}; its log: {log_dir}")
        case StartError():
            return _start_failure(error)
        case OSError():  # scratch space, code or log of this node
            return AgentFailure(AgentErrorKind.NODE, f"{type(error).__name__}: {error}")
        case _:
            return None


def classify_error(error: Exception) -> AgentFailure | None:
    """Return the failure of an error in any other call; None for a bug."""
    if isinstance(error, StaleGeneration):
        return AgentFailure(AgentErrorKind.STALE, str(error))
    if isinstance(error, StartError):
        return _start_failure(error)
    if isinstance(error, TaskFailed) and not isinstance(error, TaskDied):
        kind = _BY_TASK_ERROR.get(error.kind, AgentErrorKind.OTHER)
        return AgentFailure(kind, error.error, error.traceback)
    failed_holders = error.failed_holders if isinstance(error, TransferError | StateLostError) else ()
    for cls, kind in _BY_TYPE:
        if isinstance(error, cls):
            return AgentFailure(kind, str(error), failed_holders=failed_holders)
    if isinstance(error, _OF_THE_NODE):
        return AgentFailure(AgentErrorKind.NODE, str(error))
    return AgentFailure(AgentErrorKind.OTHER, str(error)) if isinstance(error, LookupError) else None


def _start_failure(error: StartError) -> AgentFailure:
    return AgentFailure(AgentErrorKind.NODE if error.is_of_node else AgentErrorKind.START, str(error))


def storage_failure(error: OSError) -> AgentFailure:
    """Return the failure of a call that durable storage did not answer."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return AgentFailure(AgentErrorKind.STORAGE_UNAVAILABLE, lines[-1])
