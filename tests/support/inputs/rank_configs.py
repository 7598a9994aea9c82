"""Rank configurations for tests."""

from collections.abc import Mapping
from dataclasses import is_dataclass, replace
from typing import Any, TypeVar, cast

from regroup.workers.contract.rank_config import FaultConfig, FaultPoint

T = TypeVar("T")


def changed(config: T, **changes: Any) -> T:
    """Return the record with these fields changed; a mapping changes the fields of a nested record or mapping."""
    return replace(
        cast(Any, config), **{name: _merged(getattr(config, name), change) for name, change in changes.items()}
    )


def fault(rank: int, step: int, do: str, phase: str = "forward", **options: Any) -> FaultConfig:
    """Return a fault of a rank."""
    return FaultConfig(FaultPoint(step, phase, rank=rank), do, **options)


def _merged(value: Any, change: Any) -> Any:
    if isinstance(change, Mapping) and is_dataclass(value):
        return changed(value, **cast(Mapping[str, Any], change))
    if isinstance(change, Mapping) and isinstance(value, Mapping):
        return {**cast(Mapping[str, Any], value), **cast(Mapping[str, Any], change)}
    return change
