"""The stored places of a generation's ranks: a list for a small job, a compressed map for a large one."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, cast, overload

from regroup.service.domain.rank_map import RankMap


def read_places(stored: Any) -> Sequence[dict[str, Any]]:
    """Return the places of ranks as plain data. A map is decoded only if it is read; a damaged one has no places."""
    return cast(list[dict[str, Any]], stored) if isinstance(stored, list) else _MappedPlaces(stored)


class _MappedPlaces(Sequence[dict[str, Any]]):
    def __init__(self, stored: Any) -> None:
        self._stored = stored

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[dict[str, Any]]: ...
    def __getitem__(self, index: int | slice) -> dict[str, Any] | Sequence[dict[str, Any]]:
        return self._places[index]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    @cached_property
    def _places(self) -> list[dict[str, Any]]:
        if not isinstance(self._stored, Mapping):
            return []
        try:
            return [dict(vars(place)) for place in RankMap.from_json(cast(Mapping[str, Any], self._stored))]
        except (KeyError, TypeError, ValueError):
            return []
