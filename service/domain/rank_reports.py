"""Activity of the ranks of a job, as plain data: one entry per rank of a small job, or compressed columns."""

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

_MOST_PLAIN = 512
"""Number of ranks up to which each rank has an entry of its own."""
_PACKED = "packed"


def encode_rank_reports(reports: Mapping[int, Sequence[Any]]) -> dict[str, Any]:
    """Return plain data.

    Args:
        reports: rank → step and phase and, if its activity is known, seconds of a step in which it computes and waits
            for a processor, and seconds since it moved on.
    """
    if len(reports) <= _MOST_PLAIN:
        return {str(rank): list(report) for rank, report in reports.items()}
    columns = [list(reports), *zip(*(_padded(report) for report in reports.values()), strict=True)]
    packed = zlib.compress(json.dumps(columns, separators=(",", ":")).encode(), level=1)
    return {_PACKED: base64.b64encode(packed).decode()}


def decode_rank_reports(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return rank → report, as a list. Data that is damaged has no reports."""
    if _PACKED not in data:
        return dict(data)
    try:
        ranks, *columns = json.loads(zlib.decompress(base64.b64decode(data[_PACKED], validate=True)))
        rows = zip(*columns, strict=True)
        return {str(rank): [value for value in row if value is not None] for rank, row in zip(ranks, rows, strict=True)}
    except (ValueError, TypeError, zlib.error):
        return {}


def _padded(report: Sequence[Any]) -> Sequence[Any]:
    return [*report, *[None] * (5 - len(report))]
