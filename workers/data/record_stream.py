"""Records of a user's own dataset, distributed to the ranks by number as in sampler.py."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from regroup.workers.contract.error_classes import DataError
from regroup.workers.data.sampler import SampleId, SampleStream


@dataclass(frozen=True)
class RecordBatch:
    """Micro-batch of a step, as `Context.micro_batches` yields it."""

    indices: list[int]
    """Numbers of its records. Those of a dummy exist too, so that it runs like any other micro-batch."""
    weights: Tensor
    """Factor for the loss of each record before the sum: data ranks / global batch; 0 in a dummy.

    Wrappers average gradients over ranks (DDP, FSDP) and `report` averages the loss, so both are then the mean over
    the global batch, on any layout.
    """
    valid: bool
    """False for a dummy, which a rank runs if it has fewer micro-batches than others."""
    last: bool
    """True for the last micro-batch of the rank in this step, the only one in which DDP must sum gradients."""


class RecordStream(SampleStream):
    """Sample stream of a dataset of which only the length is known, from the first step on."""

    def __init__(self, *, global_batch: int, micro_batch: int, seed: int, fingerprint: str = "") -> None:
        """Start at position 0. `fingerprint` identifies the prepared records of the job, if it has any."""
        super().__init__(0, global_batch=global_batch, micro_batch=micro_batch, seed=seed)
        self._fingerprint = fingerprint

    def deal(self, records: int, index: int, degree: int) -> list[tuple[SampleId, ...]]:
        """Return the samples of each micro-batch of the next step for data rank `index` of `degree`; a dummy has none.

        Raises:
            DataError: There are no records, or the number of records has changed.
        """
        if records < 1:
            raise DataError(f"micro_batches({records}): pass the length of the dataset, 1 or more")
        if self.records not in (0, records):
            raise DataError(
                f"the position in the data was counted over {self.records} records, but the dataset has {records}; a "
                "job and the jobs that resume from it need a dataset of constant length"
            )
        self.records = records
        return self.dealt_ids(index, degree)

    def state_dict(self) -> dict[str, Any]:
        """Return position, digest, and the identity of the data, as plain data."""
        return {
            "cursor": self.cursor,
            "samples_digest": self.samples_digest,
            "records": self.records,
            "fingerprint": self._fingerprint,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved position.

        Raises:
            DataError: The position belongs to other prepared records.
        """
        if state.get("fingerprint", "") != self._fingerprint:
            raise DataError(
                f"the saved position belongs to prepared data {state.get('fingerprint', '') or 'of no preparation'!r}, "
                f"but this job reads {self._fingerprint!r}; resume with the same data and recipe"
            )
        self.cursor = int(state["cursor"])
        self.samples_digest = str(state["samples_digest"])
        self.records = int(state["records"])
