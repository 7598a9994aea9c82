"""Which sample goes where: the order of samples, micro-batches dealt to ranks, and the ledger of what arrived.

The cursor is an absolute position that counts samples from the beginning of the job. `pos = cursor + slot`,
`(epoch, i) = divmod(pos, N)`, and a keyed bijection of the epoch says which record `i` is. Nothing here depends on
the layout but who computes a micro-batch.
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
"""Label that the loss leaves out."""
_MASK = (1 << 64) - 1
_LIMB = 1 << 32


@dataclass(frozen=True)
class SampleId:
    """A sample as the ledger counts it: `index` is its place in the order of the epoch, not the record's."""

    epoch: int
    index: int


@dataclass(frozen=True)
class MicroBatch:
    """Consecutive slots of the global batch. A dummy has no ids and only ignored labels."""

    inputs: Tensor
    """Token ids, int64 (micro-batch, sequence), or images, float32 (micro-batch, channels, height, width)."""
    labels: Tensor
    """int64: the next token at every position, or the class of every image; or `IGNORED`."""
    ids: tuple[SampleId, ...]

    @property
    def valid_labels(self) -> int:
        """Labels that count in the loss."""
        return int((self.labels != IGNORED).sum())


class SampleStream:
    """The endless, ordered stream of samples of so many records, and where in it the job stands."""

    def __init__(self, records: int, *, global_batch: int, micro_batch: int, seed: int) -> None:
        self.records = records
        self.global_batch = global_batch
        self.micro_batch = micro_batch
        self.cursor = 0
        """Samples committed so far."""
        self.samples_digest = ""
        """Chained over (step, count, hash) of every committed step."""
        self._seed = seed

    def dealt_ids(self, index: int, degree: int) -> list[tuple[SampleId, ...]]:
        """Samples of each micro-batch of the next step for data rank `index` of `degree`; none in a dummy."""
        count, size = self.global_batch // self.micro_batch, self.micro_batch
        return [
            sample_ids(self.cursor + number * size, size, self.records) if number < count else ()
            for number in dealt(count, index, degree)
        ]

    def record_numbers(self, ids: Sequence[SampleId]) -> list[int]:
        """Which record each sample is."""
        return record_numbers(ids, self.records, self._seed)

    def advance(self, step: int, samples: int, samples_hash: int) -> None:
        """Step `step` was computed from so many samples: move the cursor, extend the digest.

        Raises:
            RuntimeError: not exactly the samples of the step arrived in forward.
        """
        expected = samples_hash_of(sample_ids(self.cursor, self.global_batch, self.records))
        if (samples, samples_hash) != (self.global_batch, expected):
            raise RuntimeError(
                f"step {step} saw {samples} samples with hash {samples_hash:016x} instead of {self.global_batch} "
                f"with {expected:016x}: the dealing of samples is broken, the result would be wrong"
            )
        self.cursor += self.global_batch
        self.samples_digest = chain(self.samples_digest, step, samples, samples_hash)


class Samples(Protocol):
    """Samples by number: see `datasets.py`."""

    @property
    def fingerprint(self) -> str:
        """Hash of what they were made of."""
        ...

    def __len__(self) -> int: ...

    def rows(self, numbers: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Inputs and labels of these: a row of each for every number."""
        ...

    def blank(self, count: int) -> tuple[Tensor, Tensor]:
        """So many rows that count for nothing: inputs of zeros, labels ignored."""
        ...


class TrainingData(SampleStream):
    """The samples of the built-in trainer.

    `Context.track` saves and restores it; it refuses to go on with other data.
    """

    def __init__(self, samples: Samples, *, global_batch: int, micro_batch: int, seed: int) -> None:
        super().__init__(len(samples), global_batch=global_batch, micro_batch=micro_batch, seed=seed)
        self._samples = samples

    def deal(self, index: int, degree: int) -> list[MicroBatch]:
        """The micro-batches of the next step for data rank `index` of `degree`: equally many on every rank."""
        dealt_ids = self.dealt_ids(index, degree)
        numbers = iter(self.record_numbers([sample for ids in dealt_ids for sample in ids]))  # in one go: it costs less
        return [self._batch(ids, [next(numbers) for _ in ids]) for ids in dealt_ids]

    def state_dict(self) -> dict[str, Any]:
        """Plain data: position, digest, and what they are positions in."""
        return {
            "cursor": self.cursor,
            "samples_digest": self.samples_digest,
            "fingerprint": self._samples.fingerprint,
            "records": self.records,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where the state stands.

        Raises:
            DataError: the state counts in other data.
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
    """Held-out samples for data rank `index` of `degree`: at most `most`, evenly spaced, the same on every layout.

    The last micro-batch is filled up with ignored rows.
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
    """A micro-batch that adds nothing to loss and gradients, for ranks that would run fewer than others."""
    return MicroBatch(*samples.blank(micro_batch), ())


def dealt(count: int, index: int, degree: int) -> list[int]:
    """Numbers of the micro-batches of data rank `index`; numbers from `count` on are dummies.

    Every rank gets equally many: unequal counts deadlock sharded data parallelism.
    """
    return [turn * degree + index for turn in range(math.ceil(count / degree))]


def sample_ids(start: int, count: int, records: int) -> tuple[SampleId, ...]:
    """Samples at absolute positions `start … start + count - 1`."""
    return tuple(SampleId(*divmod(position, records)) for position in range(start, start + count))


def record_numbers(ids: Sequence[SampleId], records: int, seed: int) -> list[int]:
    """Which record of the token file each sample is."""
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
    """A bijection of [0, size), keyed by seed and epoch: a Feistel network over the next even number of bits.

    Values that leave the range walk on along their cycle until they are back in it (Black and Rogaway 2002), so no
    permutation is stored however many records there are.
    """
    assert np is not None, "order_slowly does without"
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
    """Sum modulo 2**64 of hash(epoch, index): the same in any order and dealing, different if one is missing."""
    if not ids:
        return 0
    if np is None:
        return sampler_pure.hash_of((sample.epoch, sample.index) for sample in ids)
    epochs = np.array([sample.epoch for sample in ids], np.uint64)
    indexes = np.array([sample.index for sample in ids], np.uint64)
    return int(_mix(_mix(epochs) ^ indexes).sum(dtype=np.uint64))


def hash_limbs(samples_hash: int) -> tuple[float, float]:
    """A hash as two numbers that a float64 sum over up to 2**21 ranks keeps exact."""
    return float(samples_hash % _LIMB), float(samples_hash // _LIMB)


def hash_from_limbs(low: float, high: float) -> int:
    """The hash modulo 2**64 from the summed limbs."""
    return (int(low) + int(high) * _LIMB) & _MASK


def chain(digest: str, step: int, count: int, samples_hash: int) -> str:
    """The digest of all steps up to this one: sha256 over the digest before and this step's account."""
    return hashlib.sha256(f"{digest}:{step}:{count}:{samples_hash}".encode()).hexdigest()


def _mix(words: "Words") -> "Words":
    # As in order_slowly.
    assert np is not None
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
