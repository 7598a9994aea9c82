"""Durable storage that hangs, refuses or goes away, as an agent waits for it."""

import errno
import threading
import time
from collections.abc import Iterator

import pytest

from regroup.workers.storage import async_storage
from regroup.workers.storage.fsspec_storage import StorageError, StorageUnavailable


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(async_storage, "LATE_S", 0.05)
    monkeypatch.setattr(async_storage, "_FIRST_PAUSE_S", 0.01)


@pytest.fixture
def hung() -> Iterator[threading.Event]:
    """Event that a hanging call waits for."""
    event = threading.Event()
    yield event
    event.set()


async def test_results_and_errors_are_passed_on() -> None:
    assert await async_storage.call_within(5, lambda number: number + 1, 1) == 2
    with pytest.raises(ValueError, match="no"):
        await async_storage.call_within(5, int, "no number")


async def test_a_hanging_call_times_out_and_delays_no_other_call(hung: threading.Event) -> None:
    for _ in range(4):
        with pytest.raises(StorageUnavailable, match=r"did not answer within"):
            await async_storage.call_within(0.02, hung.wait)
    assert await async_storage.call_within(5, lambda: "others continue") == "others continue"


async def test_a_refused_write_is_retried_and_reported_until_it_succeeds() -> None:
    reports: list[str] = []
    answers = [OSError("503 slow down"), OSError("connection refused"), None]

    def write() -> str:
        if (error := answers.pop(0)) is not None:
            raise error
        return "written"

    assert await async_storage.write_with_retries("the checkpoint of step 8", write, reports.append) == "written"
    assert reports == [
        "the checkpoint of step 8 cannot be written: OSError: 503 slow down; retrying",
        "the checkpoint of step 8 cannot be written: OSError: connection refused; retrying",
        "",
    ]


async def test_a_full_storage_is_not_tried_again() -> None:
    reports: list[str] = []

    def write() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(StorageError, match="No space left"):
        await async_storage.write_with_retries("the checkpoint of step 8", write, reports.append)
    assert reports == [], "the event of the failed checkpoint has the reason"


async def test_a_slow_write_is_reported_as_late_and_not_started_again() -> None:
    reports: list[str] = []
    begun: list[float] = []

    def write() -> None:
        begun.append(time.monotonic())
        time.sleep(0.2)

    await async_storage.write_with_retries("it", write, reports.append)
    assert len(begun) == 1
    assert [message.partition(" has taken ")[0] for message in reports] == ["writing it to durable storage", ""]


async def test_a_write_in_time_reports_nothing() -> None:
    reports: list[str] = []
    assert await async_storage.write_with_retries("it", lambda: 7, reports.append) == 7
    assert reports == []


@pytest.mark.parametrize("does", ["hangs", "is refused"])
async def test_retries_end_after_the_time_limit_and_the_last_report_stands(
    does: str, hung: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(async_storage, "PATIENCE_S", 0.2)
    reports: list[str] = []

    def write() -> None:
        if does == "hangs":
            hung.wait()
        raise OSError("no")

    with pytest.raises(StorageError, match=r"^it cannot be written: (TimeoutError: no answer|OSError: no)$"):
        await async_storage.write_with_retries("it", write, reports.append)
    assert reports[-1].endswith("s") and "no retry after" in reports[-1]
