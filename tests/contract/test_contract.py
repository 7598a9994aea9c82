"""The API fulfils its OpenAPI document: schemathesis sends requests to every operation, in four roles.

All checks run, in all phases: examples, coverage, fuzzing, and sequences along the links of the document. Sequences
are a scan of their own, so that the other phases leave them time. `make contract` takes about seven minutes;
`REGROUP_CONTRACT_S` sets another time, and `REGROUP_CONTRACT_SEED` other requests.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from schemathesis.checks import CHECKS, load_all_checks

from regroup.api.app import openapi
from tests.contract.contract_server import ContractServer, running_server

pytestmark = [pytest.mark.contract, pytest.mark.slow]
HERE = Path(__file__).parent
TOTAL_S = float(os.environ.get("REGROUP_CONTRACT_S", "400"))
SEED = int(os.environ.get("REGROUP_CONTRACT_SEED", "1"))
SHARES = {"operator": 0.5, "admin": 0.2, "editor": 0.15, "viewer": 0.15}
"""Role → its share of the time."""
PHASES = {"examples,coverage,fuzzing": 0.7, "stateful": 0.3}
"""Phases of a scan → their share of the time of a role."""
CHECKS_OF_THIS_VERSION = {
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "positive_data_acceptance",
    "missing_required_header",
    "unsupported_method",
    "allow_header_conformance",
    "use_after_free",
    "ensure_resource_availability",
    "ignored_auth",
    "object_level_authorization",
}
_START_S = 60.0
"""Time to read the document, in addition to the share."""


def test_no_check_is_left_out() -> None:
    load_all_checks()
    assert set(CHECKS.get_all_names()) == CHECKS_OF_THIS_VERSION


@pytest.mark.parametrize("role", SHARES)
def test_answers_fulfil_the_description(role: str, tmp_path: Path) -> None:
    statuses = dict[str, str]()
    with running_server(tmp_path / "state") as server:
        for phases, share in PHASES.items():
            report = scan(server, role, tmp_path, phases, int(SHARES[role] * share * TOTAL_S))
            assert report["stop_reason"] in ("max_time", "completed")
            statuses |= {name: report["phases"][name]["status"] for name in phases.split(",")}
            if phases != "stateful":
                operations = report["operations"]
                assert operations["total"] == operations["selected"] == sum(map(len, openapi()["paths"].values()))
                assert operations["tested"] == operations["total"], operations
    assert set(statuses.values()) == {"success"}, statuses


def scan(server: ContractServer, role: str, folder: Path, phases: str, time_s: int) -> dict[str, Any]:
    """Run schemathesis as a process with the token of a role; return its report. It must find nothing."""
    document, report = folder / "openapi.json", folder / "report.json"
    document.write_text(json.dumps(openapi()))
    command = [
        sys.executable, "-m", "schemathesis.cli", "--config-file", str(write_config(folder, role, server)), "run",
        str(document), "--url", server.url, "--checks", "all", "--phases", phases,
        "--max-time", str(time_s), "--report-json-path", str(report), "--no-color",
    ]  # fmt: skip
    environment = {**os.environ, "REGROUP_CONTRACT_TOKEN": server.tokens[role]}
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=2 * time_s + _START_S,
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2_000:]
    found: dict[str, Any] = json.loads(report.read_text())
    return found


def write_config(folder: Path, role: str, server: ContractServer) -> Path:
    """Write the configuration of a scan. As admin, the admin of another project must not see the same objects."""
    head = f"seed = {SEED}\nhooks = {json.dumps(str(HERE / 'hooks.py'))}\n"
    if role == "admin":
        people = folder / "people.json"
        names = ("admin", "stranger")
        entries = [
            {"name": name, "fixedHeaders": [{"name": "Authorization", "value": f"Bearer {server.tokens[name]}"}]}
            for name in names
        ]
        people.write_text(json.dumps({"auth": entries}))
        auth = f"[auth.wfc]\npath = {json.dumps(str(people))}\npeers = {json.dumps(names)}\n"
    else:
        auth = '[auth.openapi.token]\nbearer = "${REGROUP_CONTRACT_TOKEN}"\n'
    path = folder / "schemathesis.toml"
    path.write_text(head + (HERE / "schemathesis.toml").read_text() + "\n" + auth)
    return path
