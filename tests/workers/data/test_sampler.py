"""Every sample of every step exactly once, in an order that knows nothing of ranks."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regroup.workers.contract.error_classes import DataError
from regroup.workers.data import sampler_pure
from regroup.workers.data.datasets import open_samples
from regroup.workers.data.sampler import (
    IGNORED,
    MicroBatch,
    SampleId,
    Samples,
    TrainingData,
    chain,
    dealt,
    hash_from_limbs,
    hash_limbs,
    permute,
    record_numbers,
    sample_ids,
    samples_hash_of,
    validation_batches,
)

SEQUENCE, GLOBAL, MICRO = 16, 16, 2
ORDER_OF_SEED_42_EPOCH_1 = [7, 6, 4, 0, 2, 3, 1, 9, 5, 8]
HASH_OF_FIRST_THREE = 9766180367832460726
CHAIN = "7a9155b70af5ea51"


@pytest.fixture
def samples(dataset: dict[str, Any]) -> Samples:
    found = open_samples(dataset, "train", SEQUENCE)
    assert found is not None
    return found


def new_data(samples: Samples) -> TrainingData:
    return TrainingData(samples, global_batch=GLOBAL, micro_batch=MICRO, seed=3)


def batches_of_all(data: TrainingData, degree: int) -> list[list[MicroBatch]]:
    return [data.deal(index, degree) for index in range(degree)]


@settings(max_examples=60)
@given(size=st.integers(1, 3000), seed=st.integers(0, 2**63 - 1), epoch=st.integers(0, 2**40))
def test_the_order_of_an_epoch_is_a_bijection(size: int, seed: int, epoch: int) -> None:
    shuffled = permute(np.arange(size, dtype=np.uint64), size, seed, epoch)
    assert sorted(shuffled.tolist()) == list(range(size))


def test_the_order_differs_by_seed_and_epoch_and_is_shuffled() -> None:
    size = 10_000
    indexes = np.arange(size, dtype=np.uint64)
    orders = [permute(indexes, size, seed, epoch).astype(np.int64) for seed, epoch in ((1, 0), (1, 1), (2, 0))]
    for order in orders:
        assert abs(np.corrcoef(np.arange(size), order)[0, 1]) < 0.05
        assert abs(np.corrcoef(order[:-1], order[1:])[0, 1]) < 0.05
        assert (np.abs(np.diff(order)) == 1).sum() < 20
    assert (orders[0] == orders[1]).sum() < 20
    assert (orders[0] == orders[2]).sum() < 20


def test_the_order_of_a_seed_never_changes_between_versions() -> None:
    # A running job that is resumed by a newer version must continue in the same order.
    order = permute(np.arange(10, dtype=np.uint64), 10, 42, 1)
    assert order.tolist() == ORDER_OF_SEED_42_EPOCH_1
    assert samples_hash_of(sample_ids(0, 3, 10)) == HASH_OF_FIRST_THREE
    assert chain("", 1, 3, HASH_OF_FIRST_THREE)[:16] == CHAIN


def test_positions_run_through_epochs() -> None:
    ids = sample_ids(start=8, count=5, records=10)
    assert [(sample.epoch, sample.index) for sample in ids] == [(0, 8), (0, 9), (1, 0), (1, 1), (1, 2)]
    whole = record_numbers(sample_ids(0, 20, 10), 10, seed=5)
    assert sorted(whole[:10]) == sorted(whole[10:]) == list(range(10))
    assert record_numbers(ids, 10, seed=5) == whole[8:13]


@given(count=st.integers(1, 64), degree=st.integers(1, 64))
def test_every_micro_batch_is_dealt_once_and_every_rank_runs_equally_many(count: int, degree: int) -> None:
    hands = [dealt(count, index, degree) for index in range(degree)]
    assert len({len(hand) for hand in hands}) == 1
    real = sorted(number for hand in hands for number in hand if number < count)
    assert real == list(range(count))
    assert len(hands[0]) * degree < count + degree


@pytest.mark.parametrize("degree", [1, 2, 3, 5, 8])
def test_the_same_rows_arrive_whatever_the_degree(samples: Samples, degree: int) -> None:
    alone = new_data(samples).deal(0, 1)
    spread = [batch for hand in batches_of_all(new_data(samples), degree) for batch in hand]
    real = sorted((batch for batch in spread if batch.ids), key=lambda batch: (batch.ids[0].epoch, batch.ids[0].index))
    assert [batch.ids for batch in real] == [batch.ids for batch in alone]
    for one, other in zip(alone, real, strict=True):
        assert torch.equal(one.inputs, other.inputs)
        assert torch.equal(one.labels, other.labels)
    for batch in spread:
        assert batch.inputs.shape == batch.labels.shape == (MICRO, SEQUENCE)
        if not batch.ids:
            assert batch.valid_labels == 0
            assert (batch.labels == IGNORED).all()


def test_labels_are_the_next_tokens(samples: Samples) -> None:
    batch = new_data(samples).deal(0, 1)[0]
    assert torch.equal(batch.inputs[:, 1:], batch.labels[:, :-1])
    assert batch.valid_labels == MICRO * SEQUENCE


def test_the_ledger_moves_on_only_with_exactly_the_samples_of_the_step(samples: Samples) -> None:
    data = new_data(samples)
    ids = [sample for batch in data.deal(0, 1) for sample in batch.ids]
    for wrong in (ids[1:], [*ids, ids[0]], [*ids[1:], ids[1]]):
        with pytest.raises(RuntimeError, match="the sampler is broken"):
            data.advance(1, len(wrong), samples_hash_of(wrong))
    assert data.cursor == 0
    data.advance(1, GLOBAL, samples_hash_of(list(reversed(ids))))
    assert data.cursor == GLOBAL
    assert data.samples_digest == chain("", 1, GLOBAL, samples_hash_of(ids))


@given(hashes=st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=50))
def test_hashes_survive_being_summed_as_floats(hashes: list[int]) -> None:
    limbs = [hash_limbs(value) for value in hashes]
    low, high = (float(sum(part)) for part in zip(*limbs, strict=True))
    assert hash_from_limbs(low, high) == sum(hashes) % 2**64


def test_a_restored_position_continues_and_refuses_other_data(samples: Samples) -> None:
    data, again = new_data(samples), new_data(samples)
    data.advance(1, GLOBAL, samples_hash_of(sample_ids(0, GLOBAL, len(samples))))
    again.load_state_dict(data.state_dict())
    assert again.deal(0, 1)[0].ids == data.deal(0, 1)[0].ids
    assert again.samples_digest == data.samples_digest
    with pytest.raises(DataError, match=r"fingerprint 'other'.*resume with the same files"):
        again.load_state_dict({**data.state_dict(), "fingerprint": "other"})


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_validation_sees_the_same_rows_on_every_layout(samples: Samples, degree: int) -> None:
    def rows(degree: int) -> list[list[int]]:
        batches = [
            batch
            for index in range(degree)
            for batch in validation_batches(samples, micro_batch=4, most=10, index=index, degree=degree)
        ]
        return sorted(
            row.tolist()
            for batch in batches
            for row, labels in zip(batch.inputs, batch.labels, strict=True)
            if (labels != IGNORED).any()
        )

    assert len(rows(degree)) == 10
    assert rows(degree) == rows(1)


@given(size=st.integers(1, 10**12), seed=st.integers(0, 2**63 - 1), epoch=st.integers(0, 10**6), data=st.data())
def test_the_order_and_the_hash_are_the_same_without_numpy(
    size: int, seed: int, epoch: int, data: st.DataObject
) -> None:
    indexes = data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=20))
    fast = permute(np.array(indexes, np.uint64), size, seed, epoch).tolist()
    assert sampler_pure.permute(indexes, size, seed, epoch) == fast
    ids = [SampleId(epoch, index) for index in indexes]
    assert sampler_pure.hash_of((epoch, index) for index in indexes) == samples_hash_of(ids)
