"""Rows, panels and queries of a Grafana dashboard, and their form in Grafana's JSON."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDTH = 24
"""Columns of Grafana's grid."""
HEIGHT = 7
"""Rows of one panel."""


@dataclass(frozen=True)
class Query:
    """One PromQL expression and the legend of its series."""

    expression: str
    legend: str


@dataclass(frozen=True)
class Panel:
    """A graph, or one number if `kind` is `stat`."""

    title: str
    description: str
    unit: str
    """Name of the unit in Grafana: s, percentunit, short, bytes."""
    queries: Sequence[Query]
    kind: str = "timeseries"
    width: int = 8
    stacked: bool = False

    def to_json(self, number: int, x: int, y: int) -> dict[str, Any]:
        """Return the panel at a position of the grid, in Grafana's format."""
        custom = {"fillOpacity": 30 if self.stacked else 8, "stacking": {"mode": "normal" if self.stacked else "none"}}
        return {
            "id": number,
            "type": self.kind,
            "title": self.title,
            "description": self.description,
            "datasource": DATASOURCE,
            "gridPos": {"x": x, "y": y, "w": self.width, "h": HEIGHT},
            "fieldConfig": {
                "defaults": {"unit": self.unit, "custom": custom if self.kind == "timeseries" else {}},
                "overrides": [],
            },
            "targets": [
                {"refId": chr(ord("A") + index), "expr": query.expression, "legendFormat": query.legend}
                for index, query in enumerate(self.queries)
            ],
        }


@dataclass(frozen=True)
class Row:
    """Panels under one heading."""

    title: str
    panels: Sequence[Panel]
