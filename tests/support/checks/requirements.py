"""Groups of tests that require a program or right of the machine, and the summary of which ran.

A group is a marker. If its requirement is missing, its tests skip, and the summary gives the reason.
`REGROUP_REQUIRE=postgres,prometheus` turns such a skip into a failure, as CI does.
"""

import functools
import os
import shutil
import subprocess
import sysconfig
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any

import pytest

from regroup.workers.os.process_user import find_obstacle
from tests.support.machines.browser import chromium_path
from tests.support.machines.other_users import FIRST_USER, LAST_USER
from tests.support.servers.postgres import postgres_folder


def _no_cuda() -> str | None:
    return None if Path("/proc/driver/nvidia/version").exists() else "no NVIDIA driver"


def _no_namespaces() -> str | None:
    if os.geteuid() != 0:
        return "not root"
    for program in ("unshare", "ip"):
        if shutil.which(program) is None:
            return f"no {program} (apt-get install util-linux iproute2)"
    tried = subprocess.run(["unshare", "--net", "--mount", "true"], capture_output=True, text=True, check=False)
    return None if tried.returncode == 0 else f"unshare is not allowed: {tried.stderr.strip()}"


def _no_users() -> str | None:
    return _no_namespaces() or find_obstacle(FIRST_USER, LAST_USER) or None


def _no_wires() -> str | None:
    return _no_namespaces() or (None if Path("/dev/net/tun").exists() else "no /dev/net/tun (modprobe tun)")


def _no_postgres() -> str | None:
    return None if postgres_folder() else "no initdb (apt-get install postgresql)"


def _no_prometheus() -> str | None:
    return None if shutil.which("prometheus") else "no prometheus (apt-get install prometheus)"


def _no_redis() -> str | None:
    return None if shutil.which("redis-server") else "no redis-server (apt-get install redis-server)"


def _no_kubernetes() -> str | None:
    if shutil.which("kubectl") is None:
        return "no kubectl (apt-get install kubernetes-client)"
    described = subprocess.run(["kubectl", "version", "--client"], capture_output=True, text=True, check=False)
    is_recent = "Kustomize Version:" in described.stdout
    return None if is_recent else "this kubectl is older than 1.24: its kustomize cannot render our base"


def _no_compiler() -> str | None:
    if shutil.which("g++") is None:
        return "no g++ (apt-get install g++)"
    header = Path(sysconfig.get_path("include")) / "Python.h"
    return None if header.exists() else f"no {header} (apt-get install python3-dev)"


def _no_browser() -> str | None:
    return None if chromium_path() else "no chromium (apt-get install chromium)"


GROUPS: Mapping[str, Callable[[], str | None]] = {
    "cuda": _no_cuda,
    "namespaces": _no_namespaces,
    "users": _no_users,
    "wires": _no_wires,
    "postgres": _no_postgres,
    "prometheus": _no_prometheus,
    "redis": _no_redis,
    "kubernetes": _no_kubernetes,
    "compiler": _no_compiler,
    "browser": _no_browser,
}
"""Marker of each group → function that returns why it cannot run here (None: it can)."""

_missing = functools.cache(lambda group: GROUPS[group]())
_deselected = pytest.StashKey[Counter[str]]()
_GROUP = "group"
"""Property of a report. xdist sends it with the report."""


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_deselected] = Counter()


def pytest_runtest_setup(item: pytest.Item) -> None:
    required = os.environ.get("REGROUP_REQUIRE", "").split(",")
    for group in GROUPS:
        if item.get_closest_marker(group) and (reason := _missing(group)):
            if group in required:
                pytest.fail(f"REGROUP_REQUIRE names {group}, but: {reason}", pytrace=False)
            pytest.skip(f"{group}: {reason}")


def pytest_deselected(items: list[pytest.Item]) -> None:
    for item in items:
        item.config.stash[_deselected].update(_groups(item))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    getattr(session.config, "workeroutput", {})["not asked for"] = dict(session.config.stash[_deselected])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Merge a worker's deselected tests. All workers collect the same tests."""
    node.config.stash[_deselected] |= Counter(getattr(node, "workeroutput", {}).get("not asked for", {}))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call" or report.outcome != "passed":
        report.user_properties.extend((_GROUP, group) for group in _groups(item))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    outcomes = Counter({(group, "not asked for"): count for group, count in config.stash[_deselected].items()})
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                outcomes.update(
                    (str(value), report.outcome) for name, value in report.user_properties if name == _GROUP
                )
    lines: list[str] = []
    for group in (*GROUPS, "slow"):
        counts = [f"{count} {outcome}" for (name, outcome), count in sorted(outcomes.items()) if name == group]
        if counts:
            why = f" ({reason})" if group in GROUPS and (reason := _missing(group)) else ""
            lines.append(f"{group:<11} {', '.join(counts)}{why}")
    if lines:
        terminalreporter.section("groups with requirements of the machine")
        for line in lines:
            terminalreporter.write_line(line)


def _groups(item: pytest.Item) -> list[str]:
    return [group for group in (*GROUPS, "slow") if item.get_closest_marker(group)]
