"""Recording of verdicts at the server that the commands use, which is not the service that has the faults."""

from collections.abc import Callable, Mapping
from typing import Any

from regroup import __version__
from regroup.api.client.client import Client
from regroup.api.schemas.reports.verdicts import MAX_PROBLEM_CHARACTERS, MAX_PROBLEMS
from regroup.service.domain.errors import RegroupError

_COPIED = (
    "number", "what", "seed", "passed", "invariants", "disabled_detectors", "detect_s", "recover_s", "steps_lost",
)  # fmt: skip
_MAX_INCIDENTS = 1000


def verdict_of(outcome: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a server records of an outcome, given as plain data."""
    return {
        **{name: outcome[name] for name in _COPIED},
        "scenario": outcome["name"],
        "problems": [problem[:MAX_PROBLEM_CHARACTERS] for problem in outcome["problems"][:MAX_PROBLEMS]],
        "incidents": list(outcome["incidents"][:_MAX_INCIDENTS]),
        "recovery_actions": list(outcome["recovery_actions"][:_MAX_INCIDENTS]),
        "version": __version__,
    }


class VerdictRecorder:
    """Records verdicts at a server. Its failures do not end a rehearsal: they are reported."""

    def __init__(self, client: Client | None, notify: Callable[[str], None]) -> None:
        """Record with `client`; None records nothing."""
        self._client, self._notify = client, notify

    def record(self, outcome: Mapping[str, Any]) -> None:
        """Record the verdict of an outcome, given as plain data."""
        if self._client is None:
            return
        try:
            self._client.record_chaos_verdict(verdict_of(outcome))
        except RegroupError as error:
            self._notify(f"the verdict of {outcome['name']} is not recorded at the server: {error}")
