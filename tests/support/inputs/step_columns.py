"""Steps as columns, as a supervisor sends them."""

from collections.abc import Iterable

from regroup.service.domain.job_events import encode
from regroup.service.domain.step_columns import StepColumns, split_steps, step_key
from regroup.service.ports.sync import SupervisorEvent
from regroup.workers.contract.messages import StepRow


def columns_of(rows: Iterable[StepRow]) -> StepColumns:
    """Return the columns of steps whose events are numbered from 1."""
    steps, others = split_steps(
        [
            SupervisorEvent(seq, step_key(row.generation, row.step), "step", row.generation, row.time_s, encode(row))
            for seq, row in enumerate(rows, 1)
        ]
    )
    assert not others
    return steps
