"""Write the generated pages, or with `--check` list those that are stale."""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from generators import (
    metrics_page,
    operator_tasks_page,
    processes_page,
    python_page,
    settings_page,
    states_page,
    watch_picture,
)
from regroup.api.app import openapi
from regroup.api.cli.docs import cli_reference, spec_reference
from regroup.service.chaos.faults_page import render_faults_page
from regroup.service.spec.layout_rules import render_rules

ROOT = Path(__file__).resolve().parent.parent
LAYOUTS = f"""# Legal layouts

The server checks a spec's `layout` by these rules at submission. `make docs` writes the page from
[service/spec/layout_rules.py](../service/spec/layout_rules.py). [Parallelism](guides/parallelism.md) describes each
strategy. Sizes between `layout.dp.min` and `max` that break a rule are not in the job's size ladder. `target` must keep
all rules; `min` and `max` may use a smaller part of the micro-batch.

If the range has more than 257 degrees, the ladder has all degrees up to 128. Above them it has multiples of powers of
two that differ by at most 1.6 %. It also has the divisors of the number of micro-batches, `min`, `target` and `max`. A
resize on request can use every legal degree of the range.

{render_rules()}
"""
RESULTS = ROOT / "benchmarks" / "results"
"""Results of the faults benchmark, from which `faults.md` is written."""


def main() -> int:
    """Write each file, or compare it. Return 1 if one differs under `--check`."""
    parser = argparse.ArgumentParser(description="Write the generated pages of the documentation.")
    parser.add_argument("--check", action="store_true", help="write nothing; list the files that are not up to date")
    is_check = parser.parse_args().check
    dashboard = subprocess.run(
        [sys.executable, ROOT / "deploy" / "grafana" / "dashboard.py"], capture_output=True, text=True, check=True
    ).stdout
    processes, picture = processes_page.render()
    generated = {
        ROOT / "docs" / "states.md": states_page.render(),
        ROOT / "docs" / "layouts.md": LAYOUTS,
        ROOT / "docs" / "cli.md": cli_reference.render(),
        ROOT / "docs" / "job-spec.md": spec_reference.render(),
        ROOT / "docs" / "faults.md": render_faults_page(_result("faults")),
        ROOT / "docs" / "reference" / "settings.md": settings_page.render(),
        ROOT / "docs" / "reference" / "metrics.md": metrics_page.render_metrics(),
        ROOT / "docs" / "reference" / "exit-codes.md": metrics_page.render_exit_codes(),
        ROOT / "docs" / "reference" / "python-client.md": python_page.render_client(),
        ROOT / "docs" / "reference" / "context.md": python_page.render_context(),
        ROOT / "docs" / "operations" / "operator-tasks.md": operator_tasks_page.render(),
        ROOT / "docs" / "architecture" / "processes.md": processes,
        ROOT / "docs" / "architecture" / "processes.svg": picture,
        ROOT / "docs" / "watch.svg": watch_picture.render(),
        ROOT / "docs" / "openapi.json": json.dumps(openapi(), indent=1, sort_keys=True) + "\n",
        ROOT / "deploy" / "grafana" / "regroup.json": dashboard,
    }
    stale = [path for path, text in generated.items() if not path.exists() or path.read_text() != text]
    for path in stale:
        print(f"{path.relative_to(ROOT)}: {'not up to date: run make docs' if is_check else 'written'}")
        if not is_check:
            path.write_text(generated[path])
    return int(bool(stale) and is_check)


def _result(name: str) -> dict[str, Any]:
    """Return a stored result, or an empty one if none exists."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else {}


if __name__ == "__main__":
    sys.exit(main())
