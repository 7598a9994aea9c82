"""Page with the states of a job, their transitions and the reasons, from `service/domain/states.py`."""

from generators.source import ROOT, attribute_docs, find_class, table_row
from regroup.service.domain.states import (
    BUDGET_BY_REASON,
    PLANNED_REASONS,
    TERMINAL_BY_REASON,
    TRANSITIONS,
    JobState,
    Reason,
    state_diagram,
)

_SOURCE = ROOT / "service" / "domain" / "states.py"
_STATES = f"""# Job states

`make docs` writes this page from [service/domain/states.py](../service/domain/states.py), which contains the only table
of legal state changes.

```mermaid
{state_diagram()}
```

| state | meaning | next states |
|---|---|---|
"""
_REASONS = """
## Reasons

Every state change and every end of a generation has a reason. `regroup why` and `regroup events` show it. A reason that
is charged to a budget restarts the job until the budget of `recovery.budgets` is exhausted.

| reason | effect | meaning |
|---|---|---|
"""


def render() -> str:
    """Return the page."""
    meanings = attribute_docs(find_class(_SOURCE, "JobState"))
    states = [
        table_row(f"`{state}`", meanings.get(state.name, "The job has ended."), _names(TRANSITIONS[state]))
        for state in JobState
    ]
    meanings = attribute_docs(find_class(_SOURCE, "Reason"))
    reasons = [table_row(f"`{reason}`", _effect(reason), meanings.get(reason.name, "")) for reason in Reason]
    return _STATES + "\n".join(states) + "\n" + _REASONS + "\n".join(reasons) + "\n"


def _names(states: frozenset[JobState]) -> str:
    return ", ".join(f"`{state}`" for state in JobState if state in states)


def _effect(reason: Reason) -> str:
    if reason in TERMINAL_BY_REASON:
        return f"ends the job as `{TERMINAL_BY_REASON[reason]}`"
    if reason in BUDGET_BY_REASON:
        return f"budget `{BUDGET_BY_REASON[reason]}`"
    return "planned end of a generation" if reason in PLANNED_REASONS else "progress"
