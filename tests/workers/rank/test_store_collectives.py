"""Collectives over the store of a generation."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from torch.distributed import TCPStore

from regroup.workers.contract.messages import Join, Restore
from regroup.workers.contract.rank_config import RankConfig
from regroup.workers.rank.store_collectives import StoreCollectives


def together(work: Callable[[StoreCollectives, int], Any], *, ranks: int = 3) -> tuple[list[Any], int]:
    """Run `work` on each rank. Return the results, and the number of keys left in the store."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)

    def one(rank: int) -> Any:
        join = Join(
            "j", 1, rank, ranks, rank, ranks, 0, 1, {}, "cpu", "127.0.0.1", store.port, Restore("none"), "",
            RankConfig(),
        )  # fmt: skip
        return work(StoreCollectives(join, "test"), rank)

    with ThreadPoolExecutor(ranks) as pool:
        return list(pool.map(one, range(ranks))), store.num_keys()


def test_broadcast_reaches_every_rank_and_gather_collects_from_every_rank() -> None:
    def work(collectives: StoreCollectives, rank: int) -> Any:
        return (
            collectives.broadcast(b"%d" % rank),
            collectives.gather(b"%d" % rank),
            collectives.broadcast(b"" if rank == 0 else b"x"),
        )

    (zero, *others), _ = together(work)
    assert zero == (b"0", [b"0", b"1", b"2"], b"")
    assert others == [(b"0", [], b"")] * 2


def test_the_barrier_waits_for_the_last_rank_and_keys_do_not_accumulate() -> None:
    come: list[int] = []

    def work(collectives: StoreCollectives, rank: int) -> list[int]:
        seen: list[int] = []
        for _ in range(50):
            come.append(rank)
            collectives.barrier()
            seen.append(len(come))
            collectives.barrier()
        return seen

    seen, keys = together(work)
    assert seen == [[3 * round for round in range(1, 51)]] * 3
    assert keys <= 2, "but for the last word of rank 0"


def test_a_single_rank_needs_no_peer() -> None:
    def work(collectives: StoreCollectives, rank: int) -> Any:
        collectives.barrier()
        return collectives.broadcast(b"a"), collectives.gather(b"b")

    assert together(work, ranks=1)[0] == [(b"a", [b"b"])]
