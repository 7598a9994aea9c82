"""Budgets of device use: device-hours or money, of a job or of a project."""

from datetime import UTC, datetime
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from regroup.service.spec.types import Number, SpecModel, check_number

Amount = Annotated[Number, Field(gt=0, le=1e12)]


def _parse_time(value: object) -> object:
    """Return the Unix seconds of a date or time in ISO 8601. Without an offset, it is in UTC."""
    if not isinstance(value, str):
        return check_number(value)
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        raise PydanticCustomError("time", "must be Unix seconds, or a time such as 2026-11-01T00:00+01:00") from None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


class UsageBudget(SpecModel):
    """The device-hours, or the money, that a job or a project may use. Exactly one of both."""

    device_hours: Amount | None = None
    """Hours for which devices are held, multiplied by their number."""
    cost: Amount | None = None
    """Cost of these device-hours, in the currency of the server's price table."""

    @model_validator(mode="after")
    def _check_unit(self) -> Self:
        if (self.device_hours is None) == (self.cost is None):
            raise PydanticCustomError(
                "budget", "needs either device_hours or cost: set one of them, and the other to null"
            )
        return self

    @property
    def amount(self) -> float:
        """The limit, in device-hours or money."""
        return self.device_hours if self.device_hours is not None else self.cost or 0.0


class ProjectBudget(UsageBudget):
    """The device-hours, or the money, that the jobs of a project may use together."""

    since: Annotated[float, Field(ge=0, le=1e12), BeforeValidator(_parse_time)] = 0.0
    """Time from which use counts: Unix seconds, or a date or time in ISO 8601. Default: all use counts."""
