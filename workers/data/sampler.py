"""Sampler: the order of samples, the distribution of micro-batches to ranks, and the ledger of processed samples.

The cursor is an absolute position: it counts samples from the start of the job. `pos = cursor + slot`,
`(epoch, i) = divmod(pos, N)`, and a keyed bijection of the epoch maps `i` to a record. Only the assignment of
micro-batches to ranks depends on the layout.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from torch import Tensor

from regroup.workers.contract.error_classes import DataError
from regroup.workers.data import sampler_pure

try:
    import numpy as np
except ModuleNotFoundError:  # a job's own Python may have torch and no numpy
    np = None
if TYPE_CHECKING:
    from numpy import uint64
    from numpy.typing import NDArray

    Words = NDArray[uint64]

IGNORED = -100
"""Label that the loss ignores."""
_MASK = (1 << 64) - 1
_LIMB = 1 << 32


@dataclass(frozen=True)
class SampleId:
    """Sample as the ledger counts it: `index` is its position in the order of the epoch, not the record number."""

    epoch: int
    index: int


@dataclass(frozen=True)
class MicroBatch:
    """Consecutive slots of the global batch. A dummy micro-batch has no ids and only ignored labels."""

    inputs: Tensor
    """Token ids, int64 (micro-batch, sequence), or images, float32 (micro-batch, channels, height, width)."""
    labels: Tensor
    """int64: the next token at every position, or the class of every image; or `IGNORED`."""
    ids: tuple[SampleId, ...]

    @property
    def valid_labels(self) -> int:
        """Number of labels that count in the loss."""
        return int((self.labels != IGNORED).sum())


class SampleStream:
    """Endless ordered stream of samples over a number of records, with the position of the job."""

    def __init__(self, records: int, *, global_batch: int, micro_batch: int, seed: int) -> None:
        self.records = records
        self.global_batch = global_batch
        self.micro_batch = micro_batch
        self.cursor = 0
        """Number of samples committed so far."""
        self.samples_digest = ""
        """Digest chained over (step, count, hash) of every committed step."""
        self._seed = seed

    def dealt_ids(self, index: int, degree: int) -> list[tuple[SampleId, ...]]:
        """Return the samples of each micro-batch of the next step for data rank `index` of `degree`; dummies: none."""
        count, size = self.global_batch // self.micro_batch, self.micro_batch
        return [
            sample_ids(self.cursor + number * size, size, self.records) if number < count else ()
            for number in dealt(count, index, degree)
        ]

    def record_numbers(self, ids: Sequence[SampleId]) -> list[int]:
        """Return the record number of each sample."""
        return record_numbers(ids, self.records, self._seed)

    def advance(self, step: int, samples: int, samples_hash: int) -> None:
        """Commit a step: move the cursor and extend the digest.

        Args:
            step: Number of the step.
            samples: Number of samples that reached forward.
            samples_hash: Their `samples_hash_of`.

        Raises:
            RuntimeError: The samples are not exactly those of the step.
        """
        expected = samples_hash_of(sample_ids(self.cursor, self.global_batch, self.records))
        if (samples, samples_hash) != (self.global_batch, expected):
            raise RuntimeError(
                f"step {step} saw {samples} samples with hash {samples_hash:016x} instead of {self.global_batch} "
                f"with {expected:016x}: the sampler is broken, and the result would be wrong"
            )
        self.cursor += self.global_batch
        self.samples_digest = chain(self.samples_digest, step, samples, samples_hash)


class Samples(Protocol):
    """Samples by number; see `datasets.py`."""

    @property
    def fingerprint(self) -> str:
        """Hash of the sources of the samples."""
        ...

    def __len__(self) -> int: ...

    def rows(self, numbers: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Return inputs and labels, with one row for each number."""
        ...

    def blank(self, count: int) -> tuple[Tensor, Tensor]:
        """Return rows that do not count: inputs of zeros and ignored labels."""
        ...


class TrainingData(SampleStream):
    """Samples of the built-in trainer.

    `Context.track` saves and restores the position. A restore with other data is refused.
    """

    def __init__(self, samples: Samples, *, global_batch: int, micro_batch: int, seed: int) -> None:
        super().__init__(len(samples), global_batch=global_batch, micro_batch=micro_batch, seed=seed)
        self._samples = samples

    def deal(self, index: int, degree: int) -> list[MicroBatch]:
        """Return the micro-batches of the next step for data rank `index` of `degree`: equal numbers on all ranks."""
        dealt_ids = self.dealt_ids(index, degree)
        numbers = iter(self.record_numbers([sample for ids in dealt_ids for sample in ids]))
        return [self._batch(ids, [next(numbers) for _ in ids]) for ids in dealt_ids]

    def state_dict(self) -> dict[str, Any]:
        """Return position, digest, and the identity of the data, as plain data."""
        return {
            "cursor": self.cursor,
            "samples_digest": self.samples_digest,
            "fingerprint": self._samples.fingerprint,
            "records": self.records,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved position.

        Raises:
            DataError: The position belongs to other data.
        """
        for key, here in (("fingerprint", self._samples.fingerprint), ("records", self.records)):
            if state[key] != here:
                raise DataError(
                    f"the saved position belongs to data with {key} {state[key]!r}, but this job reads {here!r}; "
                    "resume with the same files, tokenizer and sequence"
                )
        self.cursor = int(state["cursor"])
        self.samples_digest = str(state["samples_digest"])

    def _batch(self, ids: tuple[SampleId, ...], numbers: Sequence[int]) -> MicroBatch:
        if not ids:
            return dummy(self._samples, self.micro_batch)
        return MicroBatch(*self._samples.rows(numbers), ids)


def validation_batches(samples: Samples, *, micro_batch: int, most: int, index: int, degree: int) -> list[MicroBatch]:
    """Return at most `most` held-out samples for data rank `index` of `degree`, evenly spaced, equal on every layout.

    Ignored rows fill the last micro-batch.
    """
    records = len(samples)
    chosen = [number * records // min(most, records) for number in range(min(most, records))]
    count = math.ceil(len(chosen) / micro_batch)
    batches: list[MicroBatch] = []
    for number in dealt(count, index, degree):
        batch = dummy(samples, micro_batch)
        rows = chosen[number * micro_batch : (number + 1) * micro_batch] if number < count else []
        if rows:
            batch.inputs[: len(rows)], batch.labels[: len(rows)] = samples.rows(rows)
        batches.append(batch)
    return batches


def dummy(samples: Samples, micro_batch: int) -> MicroBatch:
    """Return a micro-batch that adds nothing to loss and gradients, for ranks with fewer micro-batches than others."""
    return MicroBatch(*samples.blank(micro_batch), ())


def dealt(count: int, index: int, degree: int) -> list[int]:
    """Return the numbers of the micro-batches of data rank `index`; numbers from `count` on are dummies.

    Every rank gets the same number, because unequal counts deadlock sharded data parallelism.
    """
    return [turn * degree + index for turn in range(math.ceil(count / degree))]


def sample_ids(start: int, count: int, records: int) -> tuple[SampleId, ...]:
    """Return the samples at absolute positions `start … start + count - 1`."""
    return tuple(SampleId(*divmod(position, records)) for position in range(start, start + count))


def record_numbers(ids: Sequence[SampleId], records: int, seed: int) -> list[int]:
    """Return the record number of each sample."""
    numbers = [0] * len(ids)
    for epoch in {sample.epoch for sample in ids}:
        at = [k for k, sample in enumerate(ids) if sample.epoch == epoch]
        indexes = [ids[k].index for k in at]
        if np is None:
            shuffled = sampler_pure.permute(indexes, records, seed, epoch)
        else:
            shuffled = permute(np.array(indexes, np.uint64), records, seed, epoch).tolist()
        for k, number in zip(at, shuffled, strict=True):
            numbers[k] = number
    return numbers


def permute(indexes: "Words", size: int, seed: int, epoch: int) -> "Words":
    """Permute indexes of [0, size) by a bijection keyed by seed and epoch.

    It is a Feistel network over the next even number of bits. A value outside the range is mapped again until it is in
    the range (cycle walking, Black and Rogaway 2002). So no permutation is stored, for any number of records.
    """
    assert np is not None, "sampler_pure serves an interpreter without numpy"
    half = np.uint64(max(1, math.ceil((size - 1).bit_length() / 2)))
    low = np.uint64((1 << int(half)) - 1)
    keys = np.array(sampler_pure.round_keys(seed, epoch), np.uint64)
    values = indexes.astype(np.uint64)
    outside = np.ones(values.shape, np.bool_)
    while outside.any():
        left, right = values[outside] >> half, values[outside] & low
        for key in keys:
            left, right = right, left ^ (_mix(right + key) & low)
        values[outside] = (left << half) | right
        outside = values >= np.uint64(size)
    return values


def samples_hash_of(ids: Sequence[SampleId]) -> int:
    """Return the sum modulo 2**64 of hash(epoch, index).

    The sum does not depend on order or distribution, and it changes if a sample is missing.
    """
    if not ids:
        return 0
    if np is None:
        return sampler_pure.hash_of((sample.epoch, sample.index) for sample in ids)
    epochs = np.array([sample.epoch for sample in ids], np.uint64)
    indexes = np.array([sample.index for sample in ids], np.uint64)
    return int(_mix(_mix(epochs) ^ indexes).sum(dtype=np.uint64))


def hash_limbs(samples_hash: int) -> tuple[float, float]:
    """Split a hash into two numbers whose float64 sum over up to 2**21 ranks is exact."""
    return float(samples_hash % _LIMB), float(samples_hash // _LIMB)


def hash_from_limbs(low: float, high: float) -> int:
    """Return the hash modulo 2**64 from the summed limbs."""
    return (int(low) + int(high) * _LIMB) & _MASK


def chain(digest: str, step: int, count: int, samples_hash: int) -> str:
    """Return the digest of all steps up to this one: sha256 over the previous digest and the record of this step."""
    return hashlib.sha256(f"{digest}:{step}:{count}:{samples_hash}".encode()).hexdigest()


def _mix(words: "Words") -> "Words":
    # The same function as in sampler_pure.
    assert np is not None
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
