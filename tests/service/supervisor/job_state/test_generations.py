"""Records of generations: complete where they are read again, and small in a large job."""

import json
from dataclasses import replace

import pytest

from regroup.service.domain.job_events import RankPlace, encode
from regroup.service.domain.layout import Layout
from regroup.service.domain.rank_map import RankMap
from regroup.service.policy.recovery.restore_source import RestoreKind, RestoreSource
from regroup.service.supervisor.job_state.generations import Generation, GenerationLog, SupersededError
from tests.support.doubles.memory_records import Records


def generation(source: RestoreSource, world_size: int = 2) -> Generation:
    places = [
        RankPlace(rank, f"{rank // 8:056x}", f"n{rank // 8}", "h", rank % 8, rank % 8) for rank in range(world_size)
    ]
    return Generation(3, Layout(dp_shard=world_size), RankMap.of(places), source, "rank_exit")


@pytest.mark.parametrize("source", [
    RestoreSource(RestoreKind.NONE), RestoreSource(RestoreKind.CHECKPOINT, 7, 2, "file:///c"),
    RestoreSource(RestoreKind.MEMORY, 7, 2, fetch=((1, "n1"), (1, "n0"))),
])  # fmt: skip
def test_a_record_has_the_whole_generation(source: RestoreSource) -> None:
    made = generation(source)
    assert Generation.from_json(json.loads(json.dumps(made.to_json()))) == made


def test_the_holders_after_a_resize_are_in_no_record_and_no_event() -> None:
    held = tuple((rank, f"{rank // 8:056x}") for rank in range(16_384))
    source = RestoreSource(RestoreKind.MEMORY, 7, 2, fetch=held, world_size=len(held))
    made = generation(source, 12_288)
    record = json.dumps(made.to_json())
    assert Generation.from_json(json.loads(record)) == replace(made, source=replace(source, fetch=()))
    assert len(record) < 200_000 and len(json.dumps(encode(made.to_event()))) < 200_000
    assert len(json.dumps(held)) > 900_000, "the size of the holders"


async def test_numbers_continue_and_the_first_to_create_one_owns_it() -> None:
    records = Records()
    first, second = (GenerationLog(records, "j", {4: 9}) for _ in range(2))
    assert (await first.create(generation(RestoreSource(RestoreKind.NONE, 11)))).number == 5
    with pytest.raises(SupersededError, match="generation 5"):
        await second.create(generation(RestoreSource(RestoreKind.NONE)))
    await second.load()
    assert dict(second.starts) == {4: 9, 5: 11}
