"""The sdist and the wheel: their content, and the packages that each side of an installation needs."""

import re
import runpy
import tarfile
import tomllib
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import regroup
from tests.support.packages.wheel import PACKAGES, ROOT, Distributions, run

DIST_SCRIPT = ROOT / ".ci" / "dist.py"
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

# ------------------------------------------------------------------------------------------------ content


def test_the_wheel_contains_every_module_below_the_package_regroup(wheel: Path) -> None:
    names = set(ZipFile(wheel).namelist())
    modules = {
        f"regroup/{path.relative_to(ROOT)}"
        for name in PACKAGES
        for path in (ROOT / name).rglob("*")
        if path.suffix in (".py", ".mako", ".ini") and "__pycache__" not in path.parts
    }
    assert (modules | {"regroup/__init__.py", "regroup/py.typed"}) - names == set()
    assert {name.split("/")[0] for name in names} == {"regroup", f"{wheel.name.split('-py3')[0]}.dist-info"}


def test_the_sdist_contains_files_instead_of_links_and_no_tests(distributions: Distributions) -> None:
    with tarfile.open(distributions.sdist) as archive:
        members = archive.getmembers()
    assert [member.name for member in members if member.issym() or member.islnk()] == []
    tops = {member.name.split("/")[1] for member in members if "/" in member.name}
    assert {"regroup", "pyproject.toml", "README.md", "SECURITY.md"} <= tops
    assert tops & {"tests", "api", "service", "workers", "benchmarks"} == set()


def test_the_sdist_and_the_tree_build_identical_wheels(distributions: Distributions, tmp_path: Path) -> None:
    runpy.run_path(str(DIST_SCRIPT))["build_wheel_of_tree"](tmp_path)
    assert (tmp_path / distributions.wheel.name).read_bytes() == distributions.wheel.read_bytes()


def test_the_version_has_one_source(wheel: Path) -> None:
    assert wheel.name == f"regroup-{regroup.__version__}-py3-none-any.whl"


def test_classifiers_name_the_tested_python_versions() -> None:
    prefix = "Programming Language :: Python :: "
    named = [text.removeprefix(prefix) for text in PROJECT["classifiers"] if text.startswith(f"{prefix}3.")]
    assert list(runpy.run_path(str(DIST_SCRIPT))["PYTHONS"]) == named
    assert PROJECT["requires-python"] == f">={named[0]}"


def test_constraints_pin_every_requirement_of_development() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = {_normal(line.split("==")[0]) for line in lines if "==" in line}
    extras = PROJECT["optional-dependencies"]
    required = list(PROJECT["dependencies"])
    for extra in ("worker", "data", "ray-train", "s3", "mcp", "plots", "examples", "dev"):
        required += extras[extra]
    names = {_normal(re.split(r"[\[<>=]", requirement)[0]) for requirement in required}
    assert names - pinned - {"regroup"} == set()


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


# ------------------------------------------------------------------------------------------------ installation


def test_the_installed_command_prints_the_skill_of_agents_without_the_extra(installed: Path) -> None:
    shown = run(installed / "bin" / "regroup", "mcp", "--skill", cwd=installed).stdout
    assert shown == (ROOT / "api" / "mcp" / "SKILL.md").read_text()


def test_the_installed_command_prints_its_version(installed: Path) -> None:
    shown = run(installed / "bin" / "regroup", "--version", cwd=installed).stdout.strip()
    assert shown == f"regroup {regroup.__version__}"


def test_the_client_imports_neither_torch_nor_ray_nor_numpy(installed: Path) -> None:
    source = """
        import sys
        import regroup, regroup.api.client, regroup.api.cli.main
        regroup.Job, regroup.submit
        print([name for name in ("torch", "ray", "numpy", "pyarrow", "sqlalchemy") if name in sys.modules])
    """
    script = "\n".join(line.strip() for line in source.splitlines())
    assert run(installed / "bin" / "python", "-c", script, cwd=installed).stdout.strip() == "[]"


def test_packages_of_a_user_with_the_names_of_the_folders_are_independent(installed: Path, neighbour: Path) -> None:
    source = """
        import api, service, workers
        import regroup.api, regroup.service.spec.job, regroup.workers.contract.messages
        assert {api.OWNER, service.OWNER, workers.OWNER} == {"the user"}
        assert regroup.service is not service
    """
    script = neighbour / "train.py"
    script.write_text("\n".join(line.strip() for line in source.splitlines()))
    run(installed / "bin" / "python", script, cwd=neighbour, PYTHONPATH=str(neighbour))


def test_the_command_line_works_with_packages_of_a_user_on_its_path(installed: Path, neighbour: Path) -> None:
    shown = run(installed / "bin" / "regroup", "--help", cwd=neighbour, PYTHONPATH=str(neighbour))
    assert "submit" in shown.stdout


IMPORT_ALL = """
import importlib, pkgutil, sys
absent, skipped, *packages = [part.split(",") for part in sys.argv[1:]]
for name in absent:
    sys.modules[name] = None  # importing it raises ImportError
for package in packages[0]:
    module = importlib.import_module(package)
    for found in pkgutil.walk_packages(getattr(module, "__path__", []), package + "."):
        if not found.name.startswith(tuple(skipped)) and not found.name.endswith(".__main__"):
            importlib.import_module(found.name)
            print(found.name)
"""


def test_the_control_plane_imports_without_packages_of_the_extras(installed: Path) -> None:
    absent = "torch,tokenizers,safetensors,pandas,matplotlib,s3fs,gcsfs,mcp,mcp_types"
    served = ",".join(f"regroup.api.mcp.{name}" for name in ("http", "resources", "server", "stdio"))
    skipped = f"regroup.service.store.schema.migrations,{served}"  # Alembic runs the former, the extra `mcp` the latter
    packages = "regroup.api,regroup.service,regroup.workers.agent,regroup.workers.contract"
    imported = run(installed / "bin" / "python", "-c", IMPORT_ALL, absent, skipped, packages, cwd=installed)
    assert "regroup.service.spec.job" in imported.stdout


def test_the_ranks_import_without_packages_of_the_control_plane(installed: Path) -> None:
    absent = "ray,fastapi,pydantic,sqlalchemy,alembic,structlog,typer,httpx2,uvicorn"
    # The Ray actors of the workers, the adapter to Ray Train, and the driver of Ray Data.
    actors = "regroup.workers.agent.agent,regroup.workers.agent.standby,regroup.workers.agent.supervisor_link"
    skipped = f"{actors},regroup.workers.rank.ray_train.,regroup.workers.data.prepare.ray_pipeline"
    imported = run(installed / "bin" / "python", "-c", IMPORT_ALL, absent, skipped, "regroup.workers", cwd=installed)
    assert "regroup.workers.contract.messages" in imported.stdout
