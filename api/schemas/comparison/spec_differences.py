"""Differences between the specs of two jobs."""

from typing import Any

from regroup.api.schemas.wire import Wire


class FieldDifference(Wire):
    """A field in which two specs differ; a missing value is null."""

    path: str
    """Names of the field and of those that contain it, with dots between them."""
    first: Any
    """Value in the spec of the first job."""
    second: Any
    """Value in the spec of the second job."""


class SpecDifferences(Wire):
    """The fields in which the specs of two jobs differ."""

    first: str
    """Id of the first job."""
    second: str
    """Id of the second job."""
    differences: list[FieldDifference]
    """The fields, by path; empty if the specs are equal."""
