"""The records of somebody's own dataset, dealt by number in the order and to the ranks that sampler.py says."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from regroup.workers.contract.error_classes import DataError
from regroup.workers.data.sampler import SampleId, SampleStream


@dataclass(frozen=True)
class RecordBatch:
    """One micro-batch of a step, as `Context.micro_batches` yields it."""

    indices: list[int]
    """Which records it is made of. Those of a dummy exist too, so that it runs like any other."""
    weights: Tensor
    """What to multiply each record's loss with before the sum: data ranks / global batch; 0 in a dummy.

    Wrappers average gradients over ranks (DDP, FSDP) and `report` averages the loss, so both are then the mean over
    the global batch, on any layout.
    """
    valid: bool
    """False for a dummy: a rank with fewer micro-batches than others must run as many."""
    last: bool
    """The rank's last one of this step: where DDP without `no_sync` need only sum gradients."""


class RecordStream(SampleStream):
    """Samples of a dataset of which only the length is known, and that not before the first step."""

    def __init__(self, *, global_batch: int, micro_batch: int, seed: int, fingerprint: str = "") -> None:
        """`fingerprint`: of the job's prepared records, if it has any."""
        super().__init__(0, global_batch=global_batch, micro_batch=micro_batch, seed=seed)
        self._fingerprint = fingerprint

    def deal(self, records: int, index: int, degree: int) -> list[tuple[SampleId, ...]]:
        """Samples of each micro-batch of the next step for data rank `index` of `degree`; none in a dummy.

        Raises:
            DataError: there are no records, or not as many as the position was counted in.
        """
        if records < 1:
            raise DataError(f"micro_batches({records}): pass the length of the dataset, 1 or more")
        if self.records not in (0, records):
            raise DataError(
                f"the position in the data was counted in {self.records} records, but there are {records}; a job "
                "and what resumes from it need a dataset of one length"
            )
        self.records = records
        return self.dealt_ids(index, degree)

    def state_dict(self) -> dict[str, Any]:
        """Plain data: position, digest, and what they were counted in."""
        return {
            "cursor": self.cursor,
            "samples_digest": self.samples_digest,
            "records": self.records,
            "fingerprint": self._fingerprint,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where the state stands.

        Raises:
            DataError: the state counts in other prepared records.
        """
        if state.get("fingerprint", "") != self._fingerprint:
            raise DataError(
                f"the saved position belongs to prepared data {state.get('fingerprint', '') or 'of no preparation'!r}, "
                f"but this job reads {self._fingerprint!r}; resume with the same data and recipe"
            )
        self.cursor = int(state["cursor"])
        self.samples_digest = str(state["samples_digest"])
        self.records = int(state["records"])
