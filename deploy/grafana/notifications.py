"""The row of the dashboard about notifications of hooks, and about stored secrets."""

from panels import Panel, Query, Row

NOTIFICATIONS = Row(
    "Notifications and secrets",
    (
        Panel(
            "Attempts",
            "Attempts to deliver notifications of hooks, by outcome.",
            "short",
            [Query("sum by (outcome) (regroup_hook_attempts_total)", "{{outcome}}")],
        ),
        Panel(
            "Waiting notifications",
            "Number of notifications that wait for an attempt, also for a further one.",
            "short",
            [Query("max(regroup_hook_pending_deliveries)", "")],
        ),
        Panel(
            "Oldest notification without an attempt",
            "Time since its event. More than a minute means that a receiver is too slow, or that no server delivers.",
            "s",
            [Query("max(regroup_hook_oldest_untried_seconds)", "")],
        ),
        Panel(
            "Stored secrets",
            "Secrets of projects and hooks, by their key. Those of a missing key cannot be read.",
            "short",
            [Query("max by (key) (regroup_stored_secrets)", "{{key}}")],
        ),
    ),
)
