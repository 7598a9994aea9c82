"""Files that describe the repository to people and to its hosting site: ADRs, templates, workflows, hooks."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.packages.wheel import ROOT, run

ADRS = sorted(path for path in (ROOT / "docs" / "adr").glob("[0-9]*.md"))
SECTIONS = ["Context", "Decision", "Consequences", "Code"]


def test_records_are_numbered_without_gaps() -> None:
    assert [path.name[:4] for path in ADRS] == [f"{number:04}" for number in range(1, len(ADRS) + 1)]


@pytest.mark.parametrize("path", ADRS, ids=lambda path: path.stem)
def test_each_record_has_a_title_a_status_and_the_sections_of_the_template(path: Path) -> None:
    title, _, status, *rest = path.read_text().splitlines()
    assert title.startswith(f"# {path.name[:4]}: ")
    assert re.fullmatch(r"Status: (proposed|accepted|superseded by \d{4})", status)
    assert [line.removeprefix("## ") for line in rest if line.startswith("## ")] == SECTIONS


def test_the_index_lists_each_record_with_its_title_and_status() -> None:
    index = (ROOT / "docs" / "adr" / "README.md").read_text()
    listed = re.findall(r"^\| \[(\d{4})\]\((.+)\) \| (.+) \| (.+) \|$", index, re.M)
    expected = []
    for path in ADRS:
        title, _, status, *_ = path.read_text().splitlines()
        expected.append((path.name[:4], path.name, title.partition(": ")[2], status.removeprefix("Status: ")))
    assert listed == expected


def test_links_of_records_point_to_files() -> None:
    broken = [
        f"{path.name}: {target}"
        for path in (*ADRS, ROOT / "docs" / "adr" / "README.md", ROOT / "SECURITY.md")
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text())
        if not (path.parent / target).exists()
    ]
    assert broken == []


def test_the_hosted_workflow_calls_the_script_with_pinned_actions() -> None:
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    steps = yaml.safe_load(text)["jobs"]["ci"]["steps"]
    assert ".ci/run" in [step.get("run") for step in steps]
    used = [step["uses"] for step in steps if "uses" in step]
    assert [name for name in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", name)] == []
    assert len(re.findall(r"@[0-9a-f]{40} # v\d+\.\d+\.\d+$", text, re.M)) == len(used)


def test_forms_for_issues_have_a_name_and_fields() -> None:
    for name in ("bug", "feature"):
        form = yaml.safe_load((ROOT / ".github" / "ISSUE_TEMPLATE" / f"{name}.yml").read_text())
        assert form["name"] and form["description"]
        assert {field["id"] for field in form["body"] if field["type"] != "markdown"}


def test_owners_are_named_for_paths_that_exist() -> None:
    lines = (ROOT / ".github" / "CODEOWNERS").read_text().splitlines()
    paths = [line.split()[0] for line in lines if line and not line.startswith("#")]
    assert paths[0] == "*"
    assert [path for path in paths[1:] if not (ROOT / path.strip("/")).exists()] == []


def test_hooks_run_tools_of_the_virtual_environment_without_network() -> None:
    path = ROOT / ".pre-commit-config.yaml"
    run(sys.executable, "-m", "pre_commit", "validate-config", path)
    for repository in yaml.safe_load(path.read_text())["repos"]:
        assert repository["repo"] == "local"
        for hook in repository["hooks"]:
            assert hook["language"] == "system"
            assert hook["entry"].startswith(".venv/bin/")


@pytest.mark.parametrize(("subject", "code"), [("store: fix the order of events", 0), ("Fixed the order", 1)])
def test_the_commit_message_hook_checks_the_subject(tmp_path: Path, subject: str, code: int) -> None:
    message = tmp_path / "message"
    message.write_text(f"{subject}\n\nAny body.\n")
    command = [sys.executable, "-m", "tests.support.language", "--message", message]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == code


def test_the_type_check_of_tests_knows_the_product(tmp_path: Path) -> None:
    (tmp_path / "replaced.py").write_text(
        "from regroup.service.server import control_plane\ncontrol_plane.missing_name = None\n"
    )
    project = tmp_path / "pyrightconfig.json"
    project.write_text(json.dumps({"extends": str(ROOT / ".ci/pyright_tests.json"), "include": ["replaced.py"]}))
    pyright = Path(sys.executable).with_name("pyright")
    found = subprocess.run([pyright, "-p", project], capture_output=True, text=True, timeout=120)
    assert "1 error," in found.stdout and '"missing_name" is not a known attribute of module' in found.stdout
