"""Pages with the metrics and the exit codes, from the tables in the code."""

from generators.source import table_row
from regroup.api.cli.common.exit_codes import MEANINGS
from regroup.service.observability.metric_names import METRICS

_METRICS = """# Metrics

The control plane serves these metrics in Prometheus format at `/metrics`. It computes them from the database at
scrape time, so they survive a restart of the server. Counters end in `_total`. Histograms have the series `_bucket`,
`_sum` and `_count`. [Operations](../deploy.md) describes the dashboard and the alerts that use them. `make docs`
writes this page from `service/observability/metric_names.py`.

| metric | type | labels | meaning |
|---|---|---|---|
"""
_EXIT_CODES = """# Exit codes

The command line exits with these codes. `make docs` writes this page from `api/cli/common/exit_codes.py`.
`regroup exec` exits with the code of its command: 124 after `--timeout`, and 128 + N after signal N.

| code | meaning |
|---|---|
"""


def render_metrics() -> str:
    """Return the page of metrics."""
    rows = []
    for metric in METRICS:
        name = metric.name + ("_total" if metric.kind == "counter" else "")
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        rows.append(table_row(f"`{name}`", metric.kind, labels, metric.help))
    return _METRICS + "\n".join(rows) + "\n"


def render_exit_codes() -> str:
    """Return the page of exit codes."""
    return _EXIT_CODES + "\n".join(table_row(f"`{code}`", text) for code, text in sorted(MEANINGS.items())) + "\n"
