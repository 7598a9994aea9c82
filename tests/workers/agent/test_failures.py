"""Errors of an agent as failures that its caller can act on."""

import pytest

from regroup.workers.agent.failures import classify_error, classify_setup_error
from regroup.workers.agent.slices.saved_state import StateLostError
from regroup.workers.agent.transfer.shard_store import TransferError
from regroup.workers.contract.agent_records import AgentErrorKind
from regroup.workers.os.start_errors import StartError
from regroup.workers.storage.fsspec_storage import StorageError, StorageUnavailable
from regroup.workers.zygote.client import TaskDied, TaskFailed, ZygoteDied

OF_SPEC, OF_NODE = StartError("too large", is_of_node=False), StartError("no process", is_of_node=True)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OF_SPEC, AgentErrorKind.START),
        (OF_NODE, AgentErrorKind.NODE),
        (OSError(28, "No space left on device"), AgentErrorKind.NODE),
        (ZygoteDied("the zygote is gone"), AgentErrorKind.NODE),
        (TaskDied("ProcessDied", "ended with code -9", ""), AgentErrorKind.NODE),
        (TaskFailed("ValueError", "bad text", "Traceback"), AgentErrorKind.OTHER),
        (StorageError("refused"), AgentErrorKind.STORAGE),
        (StorageUnavailable("no answer"), AgentErrorKind.STORAGE_UNAVAILABLE),
        (FileNotFoundError(2, "No such file"), AgentErrorKind.FILE),
        (LookupError("no pinned snapshot"), AgentErrorKind.OTHER),
    ],
)
def test_an_error_of_a_call(error: Exception, kind: AgentErrorKind) -> None:
    failure = classify_error(error)
    assert failure is not None and failure.kind is kind


@pytest.mark.parametrize(
    ("error", "kind"),
    [(OF_SPEC, AgentErrorKind.START), (OF_NODE, AgentErrorKind.NODE), (OSError(28, "full"), AgentErrorKind.NODE)],
)
def test_an_error_of_the_setup(error: Exception, kind: AgentErrorKind) -> None:
    failure = classify_setup_error(error, "/logs")
    assert failure is not None and failure.kind is kind


@pytest.mark.parametrize("error", [TransferError("reset", ("b",)), StateLostError("reset", ("b",))])
def test_a_failed_fetch_names_the_nodes_that_did_not_deliver(error: Exception) -> None:
    failure = classify_error(error)
    assert failure is not None and (failure.kind, failure.failed_holders) == (AgentErrorKind.TRANSFER, ("b",))


def test_an_unknown_error_is_a_bug() -> None:
    assert classify_error(AttributeError("x")) is None and classify_setup_error(AttributeError("x"), "/logs") is None
