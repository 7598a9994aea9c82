"""Fixtures: the Kubernetes base as kustomize renders it."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
CRDS = Path(__file__).resolve().parents[3] / "shared" / "crds"


def kustomize(folder: Path) -> list[dict[str, Any]]:
    """Return the manifests that `kubectl kustomize` prints."""
    done = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return [manifest for manifest in yaml.safe_load_all(done.stdout) if manifest]


@pytest.fixture(scope="session")
def base() -> list[dict[str, Any]]:
    """The rendered base."""
    return kustomize(DEPLOY / "kubernetes")


@pytest.fixture(scope="session")
def render() -> Callable[[Path], list[dict[str, Any]]]:
    """Function that renders a folder with a `kustomization.yaml`."""
    return kustomize


@pytest.fixture
def with_component(tmp_path: Path) -> Callable[[str], list[dict[str, Any]]]:
    """The base rendered with one of its components, as an overlay would."""

    def render(component: str) -> list[dict[str, Any]]:
        folder = os.path.relpath(DEPLOY / "kubernetes", tmp_path)  # kustomize rejects absolute paths
        overlay = {"resources": [folder], "components": [f"{folder}/components/{component}"]}
        (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
        return kustomize(tmp_path)

    return render


@pytest.fixture(scope="session")
def custom_schemas() -> dict[tuple[str, str], dict[str, Any]]:
    """JSON schema of each custom resource, by (apiVersion, kind)."""
    if not CRDS.is_dir():
        pytest.skip(f"no custom resource definitions at {CRDS}")
    schemas: dict[tuple[str, str], dict[str, Any]] = {}
    for path in CRDS.glob("*.yaml"):
        spec = yaml.load(path.read_text(), Loader=yaml.CSafeLoader)["spec"]
        for version in spec["versions"]:
            key = (f"{spec['group']}/{version['name']}", spec["names"]["kind"])
            schemas[key] = version["schema"]["openAPIV3Schema"]
    return schemas
