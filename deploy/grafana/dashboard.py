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

RATE = "$__rate_interval"
LEGEND = "{{job}} {{job_id}}"

ROWS = (
    Row(
        "Now",
        (
            Panel("Running", "Jobs that train.", "short", [Query('sum(regroup_jobs{state="RUNNING"})', "")], "stat", 4),
            Panel(
                "Queued",
                "Jobs that hold nothing yet.",
                "short",
                [Query('sum(regroup_jobs{state="QUEUED"})', "")],
                "stat",
                4,
            ),
            Panel(
                "Longest wait",
                "How long the job that waits longest has waited.",
                "s",
                [Query("regroup_queue_oldest_wait_seconds", "")],
                "stat",
                4,
            ),
            Panel(
                "Incidents",
                "Since the database began.",
                "short",
                [Query('sum(regroup_incidents_total{cause!~"drained|resized|preempted|suspended"})', "")],
                "stat",
                4,
            ),
            Panel(
                "Goodput",
                "Share of the held seconds that went into steps that count.",
                "percentunit",
                [Query("avg(regroup_job_goodput_ratio)", "")],
                "stat",
                4,
            ),
            Panel("Checkpoints", "Held in storage.", "bytes", [Query("sum(regroup_checkpoint_bytes)", "")], "stat", 4),
        ),
    ),
    Row(
        "Training",
        (
            Panel(
                "Loss",
                "Training loss of the newest step, and the newest loss on held-out data.",
                "short",
                [
                    Query("regroup_job_loss", LEGEND),
                    Query("regroup_job_validation_loss", f"{LEGEND} held out"),
                ],
            ),
            Panel(
                "Step time",
                "Smoothed; and as the planner predicted it for this generation.",
                "s",
                [
                    Query("regroup_job_step_seconds", LEGEND),
                    Query("regroup_job_step_predicted_seconds", f"{LEGEND} predicted"),
                ],
            ),
            Panel("Tokens", "Per second.", "short", [Query("regroup_job_tokens_per_second", LEGEND)]),
            Panel(
                "Progress",
                "Committed steps of those to do.",
                "percentunit",
                [Query("regroup_job_step / regroup_job_steps", LEGEND)],
            ),
            Panel(
                "Use of devices",
                "Model operations over what the devices could have done; and the time that ranks wait for each other.",
                "percentunit",
                [
                    Query("regroup_job_mfu_ratio", f"{LEGEND} MFU"),
                    Query("regroup_job_exposed_ratio", f"{LEGEND} waiting"),
                    Query("regroup_job_low_use", f"{LEGEND} makes little use of them"),
                ],
            ),
            Panel(
                "Memory",
                "The most that a rank had; and as the planner predicted it.",
                "bytes",
                [
                    Query("regroup_job_peak_bytes", LEGEND),
                    Query("regroup_job_peak_predicted_bytes", f"{LEGEND} predicted"),
                ],
            ),
            Panel(
                "Pipeline bubble",
                "Part of forward and backward in which a rank of a pipeline computes nothing; and as predicted.",
                "percentunit",
                [
                    Query("regroup_job_idle_ratio", LEGEND),
                    Query("regroup_job_idle_predicted_ratio", f"{LEGEND} predicted"),
                ],
            ),
            Panel(
                "Steps without a copy",
                "What the loss of a node would cost now.",
                "short",
                [Query("regroup_job_step - regroup_job_mirrored_step", LEGEND)],
            ),
            Panel(
                "Mirrors",
                "Sets that a node may hold for another; fewer than 2 where memory is short.",
                "short",
                [Query("regroup_job_mirror_sets", LEGEND)],
            ),
            Panel(
                "Generation",
                "One more after each failure or change of size.",
                "short",
                [Query("regroup_job_generation", LEGEND)],
            ),
            Panel(
                "Jobs by state",
                "All jobs.",
                "short",
                [Query("sum by (state) (regroup_jobs)", "{{state}}")],
                stacked=True,
            ),
        ),
    ),
    Row(
        "Recovery",
        (
            Panel(
                "Incidents by cause",
                "Per hour.",
                "short",
                [Query(f"sum by (cause) (rate(regroup_incidents_total[{RATE}])) * 3600", "{{cause}}")],
                stacked=True,
            ),
            Panel(
                "Steps lost by cause",
                "Done again, per hour.",
                "short",
                [Query(f"sum by (cause) (rate(regroup_steps_lost_total[{RATE}])) * 3600", "{{cause}}")],
                stacked=True,
            ),
            Panel(
                "Numbers that went wrong",
                "Per hour: steps left without an update, losses that stood out, snapshots unfit to be restored.",
                "short",
                [
                    Query(f"rate(regroup_steps_skipped_total[{RATE}]) * 3600", "steps skipped"),
                    Query(f"rate(regroup_loss_spikes_total[{RATE}]) * 3600", "loss spikes"),
                    Query(f"sum by (why) (rate(regroup_snapshots_refused_total[{RATE}])) * 3600", "snapshots: {{why}}"),
                ],
            ),
            Panel(
                "Storage, clocks, fencing",
                "Per hour: checkpoints that failed, clocks that were set, calls of generations that were over.",
                "short",
                [
                    Query(f"rate(regroup_checkpoints_failed_total[{RATE}]) * 3600", "checkpoints failed"),
                    Query(f"rate(regroup_clocks_set_total[{RATE}]) * 3600", "clocks set"),
                    Query(f"rate(regroup_stale_calls_total[{RATE}]) * 3600", "stale calls refused"),
                ],
            ),
            Panel(
                "Recovery by phase",
                "Mean seconds of each phase.",
                "s",
                [
                    Query(
                        " / ".join(f"sum by (phase) (regroup_recovery_seconds_{part})" for part in ("sum", "count")),
                        "{{phase}}",
                    )
                ],
            ),
            Panel(
                "Resizes",
                "Changes of size per hour, and the median time without a step.",
                "short",
                [
                    Query(
                        f"sum by (recovery_action) (rate(regroup_resizes_total[{RATE}])) * 3600", "{{recovery_action}}"
                    ),
                    Query(
                        "histogram_quantile(0.5, sum by (le) (regroup_resize_gap_seconds_bucket))",
                        "seconds without a step",
                    ),
                ],
            ),
            Panel(
                "Kill to first step",
                "Median and 95th percentile of the whole recovery.",
                "s",
                [
                    Query(
                        f'histogram_quantile({q}, sum by (le) (regroup_recovery_seconds_bucket{{phase="total"}}))',
                        f"p{p}",
                    )
                    for q, p in ((0.5, 50), (0.95, 95))
                ],
            ),
        ),
    ),
    Row(
        "Queue",
        (
            Panel(
                "Why jobs wait",
                "Jobs in the queue by reason.",
                "short",
                [
                    Query("sum by (reason) (regroup_queue_jobs)", "{{reason}}"),
                    Query("regroup_queue_nodes_requested_jobs", "nodes asked for"),
                ],
                stacked=True,
            ),
            Panel(
                "Devices by project",
                "What each project holds.",
                "short",
                [Query('regroup_project_devices{what="held"}', "{{project}}")],
                stacked=True,
            ),
            Panel(
                "Guarantees in use",
                "Above 1 a project has borrowed, which others that ask for their own take back.",
                "percentunit",
                [
                    Query(
                        'regroup_project_devices{what="held"} / on (project) '
                        '(regroup_project_devices{what="guaranteed"} > 0)',
                        "{{project}}",
                    )
                ],
            ),
        ),
    ),
    Row(
        "Accounts",
        (
            Panel("Goodput", "By job.", "percentunit", [Query("regroup_job_goodput_ratio", LEGEND)], width=8),
            Panel(
                "Stragglers", "Ranks that others wait for.", "short", [Query("regroup_job_stragglers", LEGEND)], width=8
            ),
            Panel(
                "Device seconds by class",
                "Where the held devices' time went.",
                "s",
                [Query("sum by (class) (regroup_device_seconds_total)", "{{class}}")],
                width=8,
                stacked=True,
            ),
            Panel(
                "Node faults",
                "What happened to each node of late; at 2.5 it is quarantined.",
                "short",
                [Query("regroup_node_score", "{{node}}")],
                width=12,
            ),
            Panel(
                "Closed nodes",
                "Nodes that get no new ranks: quarantined by themselves, or cordoned by an admin.",
                "short",
                [
                    Query("regroup_node_quarantined", "{{node}} quarantined"),
                    Query("regroup_node_cordoned", "{{node}} cordoned"),
                ],
                width=12,
            ),
        ),
    ),
    Row(
        "Measured",
        (
            Panel(
                "Bandwidth by level",
                "What a device has of the way out of a domain, as `regroup probe` measured it last.",
                "Bps",
                [Query("regroup_probe_bandwidth_bytes_per_second", "{{kind}} {{level}}")],
            ),
            Panel(
                "Slow nodes and links",
                "That the last probe found.",
                "short",
                [Query("regroup_probe_anomalies", "{{kind}} {{what}}")],
            ),
            Panel(
                "Age of what was measured",
                "Since the last probe.",
                "s",
                [Query("time() - regroup_probe_timestamp_seconds", "{{kind}}")],
            ),
        ),
    ),
)


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


VARIABLES = [{"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}]

if __name__ == "__main__":
    json.dump(dashboard(), sys.stdout, indent=2)
    print()
