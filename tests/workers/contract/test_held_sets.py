"""Sets in a node's memory: one record for all of its ranks."""

from dataclasses import replace

from regroup.workers.contract.held_sets import HeldSet, HeldShard, sets_of

SHARD = HeldShard(0, 4, 2, 7, "layout", {"w": 5}, is_verified=True)


def test_the_ranks_of_a_set_share_a_record() -> None:
    other = replace(SHARD, rank=1)
    older = replace(SHARD, step=6, is_verified=False, digests={})
    assert sets_of([SHARD, older, other]) == [
        HeldSet(4, 2, 7, "layout", (0, 1), ({"w": 5},), is_verified=True),
        HeldSet(4, 2, 6, "layout", (0,)),
    ]
    assert sets_of([]) == []


def test_sets_with_another_layout_or_size_are_separate() -> None:
    assert len(sets_of([SHARD, replace(SHARD, layout_hash="b"), replace(SHARD, world_size=2)])) == 3


def test_different_checksums_are_all_kept() -> None:
    (found,) = sets_of([SHARD, replace(SHARD, rank=1, digests={"w": 6}), replace(SHARD, rank=2)])
    assert found.digests == ({"w": 5}, {"w": 6})


def test_a_set_with_an_unread_shard_is_not_verified() -> None:
    (found,) = sets_of([SHARD, replace(SHARD, rank=1, is_verified=False)])
    assert not found.is_verified


def test_a_shard_of_the_node_itself_and_its_mirrored_copy_are_one_rank() -> None:
    (found,) = sets_of([SHARD, SHARD])
    assert found.ranks == (0,)
