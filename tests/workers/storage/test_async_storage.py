"""Durable storage that hangs, refuses or goes away, as an agent waits for it."""

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
    """What a call waits for that hangs."""
    event = threading.Event()
    yield event
    event.set()


async def test_what_answers_is_passed_on() -> None:
    assert await async_storage.answered(5, lambda number: number + 1, 1) == 2
    with pytest.raises(ValueError, match="no"):
        await async_storage.answered(5, int, "no number")


async def test_what_hangs_is_not_waited_for_and_holds_nothing_else_up(hung: threading.Event) -> None:
    for _ in range(4):
        with pytest.raises(StorageUnavailable, match=r"did not answer within"):
            await async_storage.answered(0.02, hung.wait)
    assert await async_storage.answered(5, lambda: "others go on") == "others go on"


async def test_what_is_refused_is_tried_again_and_said_until_it_succeeds() -> None:
    said: list[str] = []
    answers = [OSError("503 slow down"), OSError("connection refused"), None]

    def write() -> str:
        if (error := answers.pop(0)) is not None:
            raise error
        return "written"

    assert await async_storage.written("the checkpoint of step 8", write, said.append) == "written"
    assert said == [
        "the checkpoint of step 8 cannot be written: OSError: 503 slow down; it is tried again",
        "the checkpoint of step 8 cannot be written: OSError: connection refused; it is tried again",
        "",
    ]


async def test_what_takes_long_is_said_to_be_late_and_not_begun_again() -> None:
    said: list[str] = []
    begun: list[float] = []

    def write() -> None:
        begun.append(time.monotonic())
        time.sleep(0.2)

    await async_storage.written("it", write, said.append)
    assert len(begun) == 1
    assert [message.partition(" for ")[0] for message in said] == ["it has been on its way to durable storage", ""]


async def test_what_is_in_time_is_nothing_to_say() -> None:
    said: list[str] = []
    assert await async_storage.written("it", lambda: 7, said.append) == 7
    assert said == []


@pytest.mark.parametrize("does", ["hangs", "is refused"])
async def test_after_a_while_it_is_given_up_and_that_stands(
    does: str, hung: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(async_storage, "PATIENCE_S", 0.2)
    said: list[str] = []

    def write() -> None:
        if does == "hangs":
            hung.wait()
        raise OSError("no")

    with pytest.raises(StorageError, match=r"^it cannot be written: (TimeoutError: no answer|OSError: no)$"):
        await async_storage.written("it", write, said.append)
    assert said[-1].endswith("s") and "given up after" in said[-1]
