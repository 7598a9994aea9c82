"""The Grafana dashboard as code: prints regroup.json. `make docs` writes it; tests ask Prometheus every expression."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

WIDTH = 24
"""Columns of Grafana's grid."""
HEIGHT = 7
"""Rows of one panel."""


@dataclass(frozen=True)
class Query:
    """One PromQL expression and how its series are named in the legend."""

    expression: str
    legend: str


@dataclass(frozen=True)
class Panel:
    """A graph, or one number where `kind` is `stat`."""

    title: str
    description: str
    unit: str
    """Grafana's name of the unit: s, percentunit, short, bytes."""
    queries: Sequence[Query]
    kind: str = "timeseries"
    width: int = 8
    stacked: bool = False

    def to_json(self, number: int, x: int, y: int) -> dict[str, Any]:
        """Grafana's form of the panel at a place of the grid."""
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


DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}

ROWS: Sequence[Row] = ()


def dashboard(rows: Sequence[Row] = ROWS) -> dict[str, Any]:
    """The dashboard: stable uid, the data source and the jobs as variables, panels row by row."""
    panels: list[dict[str, Any]] = []
    y = 0
    for row in rows:
        heading = {
            "id": len(panels) + 1,
            "type": "row",
            "title": row.title,
            "gridPos": {"x": 0, "y": y, "w": WIDTH, "h": 1},
        }
        panels.append({**heading, "collapsed": False, "panels": []})
        y += 1
        x = 0
        for panel in row.panels:
            if x + panel.width > WIDTH:
                x, y = 0, y + HEIGHT
            panels.append(panel.to_json(len(panels) + 1, x, y))
            x += panel.width
        y += HEIGHT
    return {
        "uid": "regroup",
        "title": "regroup",
        "description": "Jobs, recovery and goodput of regroup.",
        "tags": ["regroup"],
        "schemaVersion": 39,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": VARIABLES},
        "panels": panels,
    }


VARIABLES: list[dict[str, Any]] = [
    {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
]

if __name__ == "__main__":
    json.dump(dashboard(), sys.stdout, indent=2)
    print()
