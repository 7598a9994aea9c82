"""The server reads what a node wrote to durable storage, before a job trains."""

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from regroup.service.controller.leader_context import LeaderContext
from regroup.service.controller.shared_storage import SharedStorageReconciler
from regroup.service.domain.states import Reason
from regroup.service.store.rows.records import JobRow
from tests.support.inputs.sync_records import status


class Row:
    """The fields of a job's row that the reconciler reads."""

    def __init__(self, storage: Path, **fields: Any) -> None:
        self.id, self.storage_uri, self.step, self.generation = "j", f"file://{storage}", 0, 1
        vars(self).update(fields)


PROVEN = replace(status(), storage_proof="j-0", storage_nodes=("n1", "n2"))


async def reconciled(row: Row, *times_s: float) -> SharedStorageReconciler:
    made = SharedStorageReconciler(cast(LeaderContext, None))
    for now_s in times_s:
        await made.reconcile(cast(JobRow, row), PROVEN, now_s)
    return made


def end(made: SharedStorageReconciler) -> Any:
    return made.intents(cast(JobRow, None), cast(Any, None)).end


async def test_a_job_whose_storage_the_server_shares_trains(tmp_path: Path) -> None:
    (tmp_path / ".regroup-shared-j-0").write_text("n1")
    assert end(await reconciled(Row(tmp_path), 0.0, 100.0)) is None


async def test_a_job_whose_storage_the_server_does_not_share_is_ended_with_the_nodes(tmp_path: Path) -> None:
    assert end(await reconciled(Row(tmp_path), 0.0, 4.0)) is None, "folders of network file systems are cached"
    row = Row(tmp_path)
    made = await reconciled(row, 0.0)
    row.step = 3  # the job may train before the time has passed
    await made.reconcile(cast(JobRow, row), PROVEN, 6.0)
    ended = end(made)
    assert ended.reason is Reason.INVALID_INPUT
    assert f"'file://{tmp_path}' is not shared: the server does not see a file there that n1, n2 sees" in ended.message


@pytest.mark.parametrize("fields", [{"step": 5}, {"generation": 2}])
async def test_a_job_that_has_trained_is_not_ended(tmp_path: Path, fields: dict[str, int]) -> None:
    assert end(await reconciled(Row(tmp_path, **fields), 0.0, 100.0)) is None


async def test_storage_that_does_not_answer_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert end(await reconciled(Row(tmp_path / "file" / "x"), 0.0, 100.0)) is None
