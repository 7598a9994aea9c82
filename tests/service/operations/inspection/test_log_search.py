"""Search in output: offsets, bounds, continuation, and output that cannot be read."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from regroup.service.domain.errors import UnavailableError
from regroup.service.operations.inspection import log_search
from regroup.service.operations.inspection.log_search import LogMatches, LogPlace, LogQuery, search_log
from tests.support.doubles.fake_cluster import FakeCluster
from tests.support.inputs.job_rows import JOB

Outputs = dict[tuple[int, int, str], str]


class Generation:
    """The two fields that a search needs."""

    def __init__(self, number: int, world_size: int) -> None:
        self.number, self.world_size = number, world_size


async def search(
    outputs: Outputs, text: str, after: str | None = None, clock: Callable[[], float] = lambda: 0.0, **where: Any
) -> LogMatches:
    cluster = FakeCluster()
    cluster.logs = {(JOB.id, *key): value for key, value in outputs.items()}
    generations: Any = [Generation(2, 1), Generation(1, 3)]
    place = None if after is None else LogPlace.parse(after)
    return await search_log(cluster, JOB, generations, LogQuery(text, **where), place, clock)


def places(found: LogMatches) -> list[tuple[int, int, str, int]]:
    return [(each.generation, each.rank, each.stream, each.offset) for each in found.matches]


OUTPUTS: Outputs = {
    (1, 0, "stdout"): "eins\nFehler €\nFehler zwei",
    (1, 2, "stderr"): "fehler\n",
    (2, 0, "stdout"): "ok\n\nFehler drei\n",
}


async def test_lines_are_in_order_with_the_offsets_of_their_bytes() -> None:
    found = await search(OUTPUTS, "fehler")
    assert places(found) == [(1, 0, "stdout", 5), (1, 0, "stdout", 16), (1, 2, "stderr", 0), (2, 0, "stdout", 4)]
    assert [each.line for each in found.matches] == ["Fehler €", "Fehler zwei", "fehler", "Fehler drei"]
    assert found.next is None and found.unread == []
    for each in found.matches:
        whole = OUTPUTS[each.generation, each.rank, each.stream].encode()
        assert whole[each.offset :].startswith(each.line.encode())


async def test_filters() -> None:
    assert places(await search(OUTPUTS, "fehler", rank=2)) == [(1, 2, "stderr", 0)]
    assert places(await search(OUTPUTS, "fehler", generation=2)) == [(2, 0, "stdout", 4)]
    assert places(await search(OUTPUTS, "fehler", stream="stderr")) == [(1, 2, "stderr", 0)]
    assert places(await search(OUTPUTS, "fehler", is_case_sensitive=True)) == [(1, 2, "stderr", 0)]


async def test_pages_have_each_line_once() -> None:
    whole, found, cursor = await search(OUTPUTS, "fehler"), list[Any](), None
    for _ in range(10):
        page = await search(OUTPUTS, "fehler", after=cursor, limit=1)
        found += page.matches
        if page.next is None:
            break
        cursor = str(page.next)
    assert found == whole.matches


@pytest.mark.parametrize("part_bytes", [1, 2, 3, 7, 64])
async def test_lines_that_parts_split(part_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_search, "_CHUNK_BYTES", max(4, part_bytes))
    monkeypatch.setattr(log_search, "_MAX_LINE", 2000)
    outputs: Outputs = {(1, 0, "stdout"): "a\nbb\n" + "x" * 3 + "\nyes\n"}
    found = await search(outputs, "yes")
    assert places(found) == [(1, 0, "stdout", 9)]


async def test_a_request_ends_in_time_and_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_search, "_CHUNK_BYTES", 10)
    outputs: Outputs = {(1, 0, "stdout"): "".join(f"line {number}\n" for number in range(200))}
    found, cursor, requests = list[Any](), None, 0
    while requests < 500:
        ticks = itertools.count(0, 2)
        page = await search(outputs, "line 1", after=cursor, clock=lambda ticks=ticks: float(next(ticks)))
        found, requests = found + [each.line for each in page.matches], requests + 1
        if page.next is None:
            break
        cursor = str(page.next)
    assert found == [f"line {number}" for number in range(200) if f"line {number}".startswith("line 1")]
    assert requests > 3


async def test_a_long_line_is_cut_around_the_text() -> None:
    found = await search({(1, 0, "stdout"): "x" * 50_000 + "needle" + "y" * 50_000}, "needle")
    (match,) = found.matches
    assert len(match.line) == 2000 and "needle" in match.line and match.offset == 0


async def test_output_that_cannot_be_read_is_named() -> None:
    cluster = FakeCluster()

    async def fails(*_: Any) -> Any:
        raise UnavailableError("node a does not answer")

    cluster.read_log = fails  # type: ignore[method-assign]
    generations: Any = [Generation(1, 30)]
    found = await search_log(cluster, JOB, generations, LogQuery("x"), None)
    assert len(found.unread) == 20 and "stderr of rank 0 in generation 1: node a does not answer" in found.unread


@pytest.mark.parametrize("text", ["", "1", "1.2.3.4", "1.0.stdout.x", "1.0.stdout.0.0", "-1.0.stdout.0", "9" * 90])
def test_an_invalid_cursor_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="begin without a cursor"):
        LogPlace.parse(text)
