"""Requests about chaos rehearsals."""

from collections.abc import Mapping
from typing import Any

from regroup.api.client.connection.requests import Request, to_model, url_path
from regroup.api.schemas.reports.verdicts import ChaosVerdict, VerdictList


def verdicts(scenario: str | None, limit: int) -> Request[list[ChaosVerdict]]:
    """List the newest verdicts."""
    to_list = to_model(VerdictList)
    parameters = {"scenario": scenario, "limit": str(limit)}
    return Request("GET", url_path("chaos", "verdicts"), lambda response: to_list(response).verdicts, params=parameters)


def record_verdict(verdict: Mapping[str, Any]) -> Request[ChaosVerdict]:
    """Record a verdict."""
    return Request("POST", url_path("chaos", "verdicts"), to_model(ChaosVerdict), body=dict(verdict))
