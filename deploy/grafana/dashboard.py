"""The Grafana dashboard as code: prints regroup.json. `make docs` writes it. Tests run each query in Prometheus."""

import json
import sys
from collections.abc import Sequence
from typing import Any

from notifications import NOTIFICATIONS
from panels import HEIGHT, WIDTH, Panel, Query, Row
from queue_row import QUEUE

RATE = "$__rate_interval"
LEGEND = "{{job}} {{job_id}}"

ROWS = (
    Row(
        "Now",
        (
            Panel(
                "Running",
                "Number of jobs that train.",
                "short",
                [Query('sum(regroup_jobs{state="RUNNING"})', "")],
                "stat",
                4,
            ),
            Panel(
                "Queued",
                "Number of jobs that wait in the queue.",
                "short",
                [Query('sum(regroup_jobs{state="QUEUED"})', "")],
                "stat",
                4,
            ),
            Panel(
                "Longest wait",
                "Longest waiting time of a queued job so far.",
                "s",
                [Query("regroup_queue_oldest_wait_seconds", "")],
                "stat",
                4,
            ),
            Panel(
                "Incidents",
                "Number of unplanned incidents since the database was created.",
                "short",
                [Query('sum(regroup_incidents_total{cause!~"drained|resized|preempted|suspended"})', "")],
                "stat",
                4,
            ),
            Panel(
                "Goodput",
                "Share of the allocated time that was spent on steps that count.",
                "percentunit",
                [Query("avg(regroup_job_goodput_ratio)", "")],
                "stat",
                4,
            ),
            Panel(
                "Storage",
                "Size of all checkpoints, and of all code archives.",
                "bytes",
                [
                    Query("sum(regroup_checkpoint_bytes)", "checkpoints"),
                    Query("max(regroup_blob_bytes)", "code archives"),
                ],
                "stat",
                4,
            ),
        ),
    ),
    Row(
        "Training",
        (
            Panel(
                "Loss",
                "Training loss of the newest step, and the newest validation loss.",
                "short",
                [
                    Query("regroup_job_loss", LEGEND),
                    Query("regroup_job_validation_loss", f"{LEGEND} validation"),
                ],
            ),
            Panel(
                "Step time",
                "Smoothed step time, and the planner's prediction for this generation.",
                "s",
                [
                    Query("regroup_job_step_seconds", LEGEND),
                    Query("regroup_job_step_predicted_seconds", f"{LEGEND} predicted"),
                ],
            ),
            Panel("Tokens", "Tokens per second.", "short", [Query("regroup_job_tokens_per_second", LEGEND)]),
            Panel(
                "Progress",
                "Share of the requested steps that are committed.",
                "percentunit",
                [Query("regroup_job_step / regroup_job_steps", LEGEND)],
            ),
            Panel(
                "Device utilization",
                "Model FLOPs relative to the devices' peak (MFU), and the share of time that ranks wait for others.",
                "percentunit",
                [
                    Query("regroup_job_mfu_ratio", f"{LEGEND} MFU"),
                    Query("regroup_job_exposed_ratio", f"{LEGEND} waiting"),
                    Query("regroup_job_low_utilization", f"{LEGEND} low utilization"),
                ],
            ),
            Panel(
                "Memory",
                "Largest peak memory of a rank, and the planner's prediction.",
                "bytes",
                [
                    Query("regroup_job_peak_bytes", LEGEND),
                    Query("regroup_job_peak_predicted_bytes", f"{LEGEND} predicted"),
                ],
            ),
            Panel(
                "Pipeline bubble",
                "Share of forward and backward in which a rank of a pipeline computes nothing, and the prediction.",
                "percentunit",
                [
                    Query("regroup_job_idle_ratio", LEGEND),
                    Query("regroup_job_idle_predicted_ratio", f"{LEGEND} predicted"),
                ],
            ),
            Panel(
                "Steps without a mirror",
                "Number of steps that the loss of a node would cost now.",
                "short",
                [Query("regroup_job_step - regroup_job_mirrored_step", LEGEND)],
            ),
            Panel(
                "Mirrors",
                "Number of snapshot sets that a node stores for another; fewer than 2 if memory is short.",
                "short",
                [Query("regroup_job_mirror_sets", LEGEND)],
            ),
            Panel(
                "Generation",
                "Generation of each job, and its incidents. Each failure and each resize starts a new generation.",
                "short",
                [Query("regroup_job_generation", LEGEND), Query("regroup_job_incidents", f"{LEGEND} incidents")],
            ),
            Panel(
                "Jobs by state",
                "Number of jobs in each state.",
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
                "Incidents per hour.",
                "short",
                [Query(f"sum by (cause) (rate(regroup_incidents_total[{RATE}])) * 3600", "{{cause}}")],
                stacked=True,
            ),
            Panel(
                "Steps lost by cause",
                "Repeated steps per hour.",
                "short",
                [Query(f"sum by (cause) (rate(regroup_steps_lost_total[{RATE}])) * 3600", "{{cause}}")],
                stacked=True,
            ),
            Panel(
                "Numerical faults",
                "Per hour: steps without an update, loss spikes, snapshots that could not be restored.",
                "short",
                [
                    Query(f"rate(regroup_steps_skipped_total[{RATE}]) * 3600", "steps skipped"),
                    Query(f"rate(regroup_loss_spikes_total[{RATE}]) * 3600", "loss spikes"),
                    Query(f"sum by (why) (rate(regroup_snapshots_refused_total[{RATE}])) * 3600", "snapshots: {{why}}"),
                ],
            ),
            Panel(
                "Storage, clocks, fencing",
                "Per hour: failed checkpoints, changes of a node's clock, rejected calls of ended generations.",
                "short",
                [
                    Query(f"rate(regroup_checkpoints_failed_total[{RATE}]) * 3600", "checkpoints failed"),
                    Query(f"rate(regroup_clocks_set_total[{RATE}]) * 3600", "clocks set"),
                    Query(f"rate(regroup_stale_calls_total[{RATE}]) * 3600", "stale calls rejected"),
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
                "Resizes per hour, and the median time without a step.",
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
                "Failure to first step",
                "Median and 95th percentile of the duration of a recovery.",
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
    QUEUE,
    Row(
        "Server",
        (
            Panel(
                "Last scheduling pass",
                "Time since the last completed scheduling pass, and its duration.",
                "s",
                [
                    Query("time() - max(regroup_controller_last_pass_timestamp_seconds)", "age"),
                    Query("max(regroup_controller_pass_seconds)", "duration"),
                ],
            ),
            Panel(
                "Faults of the server",
                "Failures of tasks, of scheduling passes and of single jobs, and starts of lost local nodes.",
                "short",
                [
                    Query("sum by (task) (regroup_task_failures_total)", "{{task}}"),
                    Query("sum by (cause) (regroup_controller_passes_failed_total)", "passes: {{cause}}"),
                    Query("sum(regroup_controller_job_faults_total)", "jobs"),
                    Query("sum by (outcome) (regroup_local_node_starts_total)", "starts of local nodes: {{outcome}}"),
                ],
            ),
            Panel(
                "Refused requests",
                "Requests that a limit refused, by limit.",
                "short",
                [Query("sum by (limit) (regroup_limit_refusals_total)", "{{limit}}")],
            ),
            Panel(
                "Browsers",
                "Number of browsers that are signed in.",
                "short",
                [Query("max(regroup_browser_sessions)", "")],
            ),
            Panel(
                "Removed rows",
                "Number of rows that were removed from the database after their retention.",
                "short",
                [Query("sum by (table) (regroup_rows_removed_total)", "{{table}}")],
            ),
        ),
    ),
    NOTIFICATIONS,
    Row(
        "Accounts",
        (
            Panel(
                "Goodput", "Goodput of each job.", "percentunit", [Query("regroup_job_goodput_ratio", LEGEND)], width=8
            ),
            Panel(
                "Stragglers",
                "Number of ranks that delay the others.",
                "short",
                [Query("regroup_job_stragglers", LEGEND)],
                width=8,
            ),
            Panel(
                "Device seconds by class",
                "Time of the allocated devices, by class.",
                "s",
                [Query("sum by (class) (regroup_device_seconds_total)", "{{class}}")],
                width=8,
                stacked=True,
            ),
            Panel(
                "Node faults",
                "Fault score of each node. At 2.5 the node is quarantined.",
                "short",
                [Query("regroup_node_score", "{{node}}")],
                width=12,
            ),
            Panel(
                "Closed nodes",
                "Nodes that get no new ranks: quarantined automatically, or cordoned by an admin.",
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
                "Bandwidth per device out of a domain, as the newest `regroup probe` measured it.",
                "Bps",
                [Query("regroup_probe_bandwidth_bytes_per_second", "{{kind}} {{level}}")],
            ),
            Panel(
                "Slow nodes and links",
                "Number of anomalies that the newest probe found.",
                "short",
                [Query("regroup_probe_anomalies", "{{kind}} {{what}}")],
            ),
            Panel(
                "Age of the measurements",
                "Time since the newest probe.",
                "s",
                [Query("time() - regroup_probe_timestamp_seconds", "{{kind}}")],
            ),
        ),
    ),
)


def dashboard(rows: Sequence[Row] = ROWS) -> dict[str, Any]:
    """Return the dashboard: stable uid, the data source as a variable, panels row by row."""
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
