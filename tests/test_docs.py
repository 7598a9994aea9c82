"""Examples in the documentation. YAML is valid, Python compiles, and commands have existing verbs and options."""

import re
from pathlib import Path
from typing import Any, cast

import pytest
import typer.main
import yaml

from regroup.api.cli.main import app
from regroup.api.cli.spec_input import requirements
from regroup.api.cli.spec_input.spec_file import read_spec
from regroup.api.client.operations.uploads import with_code_uploaded
from regroup.api.schemas.setup import Setup
from regroup.service.spec.clusters import ClusterTable
from regroup.service.spec.job import JobSpec, parse_spec
from tests.support.jobs.shell_commands import Block, blocks
from tests.support.packages.wheel import ROOT

PAGES = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
TRAINING = {"steps": 8, "global_batch": 8, "micro_batch": 1}
BASES: dict[str, dict[str, Any]] = {
    "builtin": {"workload": {"data": {"train": ["/data"]}}, "training": {**TRAINING, "sequence": 8}},
    "script": {"workload": {"entrypoint": "/train.py"}},
    "ray_train": {"workload": {"entrypoint": "/train.py"}},
    "function": {"workload": {"function": "mine:train"}, "training": TRAINING},
}
"""Required fields of a spec of each kind. The block of a page adds fields or overrides them."""
VERIFICATION = ROOT / "docs" / "verification.md"
OF_KUSTOMIZE, OF_APPLY, OF_CLUSTERS = "# kustomization.yaml\n", "# setup.yaml\n", "# clusters.yaml\n"
NOT_SPECS = (OF_KUSTOMIZE, OF_APPLY, OF_CLUSTERS)
"""First line of the blocks that do not belong to a job spec."""


def found(*languages: str) -> list[Block]:
    return [block for page in ("README.md", *PAGES) for block in blocks(page, *languages)]


def parsed(path: Path) -> JobSpec:
    """Return the spec of a file as the command line would send it. Code and requirements are read but not uploaded."""
    read = requirements.with_requirements(read_spec(path), None, path.parent)
    return parse_spec(with_code_uploaded(read, lambda folder, excluded: f"sha256:{0:064x}"))


@pytest.mark.parametrize(
    "block", [each for each in found("yaml") if not any(line in each.text for line in NOT_SPECS)], ids=str
)
def test_the_job_spec_accepts_each_yaml_block_of_a_page(block: Block, tmp_path: Path) -> None:
    shown = yaml.safe_load(block.text)
    workload = shown.get("workload", {})
    kind = workload.get("kind", "builtin" if "data" in workload else "script")
    base = BASES[kind]
    merged = {"name": "mine", **base, **shown, "workload": {"kind": kind, **base["workload"], **workload}}
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(merged))
    assert parsed(path).workload.kind == kind


def test_blocks_outside_of_job_specs_are_kustomizations() -> None:
    others = [block for block in found("yaml") if OF_KUSTOMIZE in block.text]
    assert {block.page for block in others} == {
        "docs/deploy.md", "docs/guides/secrets.md", "docs/operations/isolation.md",
    }  # fmt: skip
    for block in others:
        assert set(yaml.safe_load(block.text)) <= {
            "apiVersion", "kind", "resources", "components", "images", "configurations", "patches",
        }  # fmt: skip


def test_the_setups_of_pages_are_valid() -> None:
    setups = {block.page: yaml.safe_load(block.text) for block in found("yaml") if OF_APPLY in block.text}
    assert setups.keys() == {"docs/operations/access.md", "docs/operations/apply.md"}
    for setup in map(Setup.model_validate, setups.values()):
        assert setup.projects["vision"].members["ana@example.com"].role == "admin"


def test_the_clusters_file_of_the_page_is_valid() -> None:
    (block,) = [block for block in found("yaml") if OF_CLUSTERS in block.text]
    table = ClusterTable.model_validate(yaml.safe_load(block.text))
    assert (table.default, table.clusters.keys()) == ("east", {"east", "west"})


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_job_spec_accepts_each_example(path: Path) -> None:
    assert parsed(path).name.startswith(path.stem)


@pytest.mark.parametrize("block", found("python"), ids=str)
def test_each_python_block_of_a_page_compiles(block: Block) -> None:
    compile(block.text, str(block), "exec")


@pytest.mark.parametrize("page", ["README.md", "examples/README.md", *PAGES])
def test_commands_in_the_text_use_existing_verbs_and_options(page: str) -> None:
    verbs = {name: cast(Any, verb) for name, verb in cast(Any, typer.main.get_command(app)).commands.items()}
    groups = [verb for verb in verbs.values() if hasattr(verb, "commands")]
    for group in groups:
        verbs |= {f"{group.name} {name}": verb for name, verb in group.commands.items()}
    first = "|".join(group.name for group in groups)
    for verb, rest in re.findall(rf"`regroup ((?:(?:{first}) )?[a-z][a-z-]*)([^`]*)`", (ROOT / page).read_text()):
        assert verb in verbs, f"regroup {verb}{rest}"
        options = set(re.findall(r"(?<!\S)--?\w[\w-]*", rest.partition(" -- ")[0]))
        assert options <= {name for option in verbs[verb].params for name in option.opts}, f"regroup {verb}{rest}"


def test_the_pages_have_blocks_of_each_language() -> None:
    assert len(found("yaml")) > 10 and len(found("python")) > 8 and len(EXAMPLES) > 6


def test_each_claim_names_existing_tests() -> None:
    rows = re.findall(r"^\| (?!claim|---)(.+?) \| (.+) \| (?:yes |partly |)\|$", VERIFICATION.read_text(), re.MULTILINE)
    paths = {path for _, tests in rows for path in re.findall(r"`((?:tests|benchmarks)/[^`]+)`", tests)}
    assert len(rows) > 45 and len(paths) > 45
    assert all(re.search(r"`(tests|benchmarks)/", tests) for _, tests in rows)
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []
