"""The row of the dashboard about the queue and the projects."""

from panels import Panel, Query, Row

QUEUE = Row(
    "Queue",
    (
        Panel(
            "Queued jobs by reason",
            "Number of queued jobs, by the reason why they wait.",
            "short",
            [
                Query("sum by (reason) (regroup_queue_jobs)", "{{reason}}"),
                Query("regroup_queue_nodes_requested_jobs", "nodes requested"),
            ],
            stacked=True,
        ),
        Panel(
            "Devices by project",
            "Devices that each project uses.",
            "short",
            [Query('regroup_project_devices{what="held"}', "{{project}}")],
            stacked=True,
        ),
        Panel(
            "Device-hours by project",
            "Device-hours that each project with settings held in the last hour.",
            "short",
            [Query("increase(regroup_project_device_seconds_total[1h]) / 3600", "{{project}}")],
            stacked=True,
        ),
        Panel(
            "Budgets",
            "Used share of the budget of each project. At 0.99, its jobs are suspended.",
            "percentunit",
            [Query("regroup_project_budget_used_ratio", "{{project}}")],
        ),
        Panel(
            "Use of guarantees",
            "Share of the guaranteed devices in use. Above 1, the project borrows, and other projects can reclaim.",
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
)
