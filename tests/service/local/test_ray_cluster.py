"""The local Ray cluster, without processes. The tests of the Ray adapter start a real cluster."""

import inspect
import socket
from pathlib import Path

import pytest

from regroup.service.local import ray_cluster
from regroup.service.settings import Settings
from tests.support.packages.wheel import ROOT


def test_a_failed_start_reports_the_reason_and_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_cluster, "ROLE_LABEL", "not a label")
    made: list[str] = []
    short_temp_dir = ray_cluster._short_temp_dir
    monkeypatch.setattr(ray_cluster, "_short_temp_dir", lambda: made.append(short_temp_dir()) or made[0])
    with pytest.raises(ray_cluster.LocalRayError, match="not a valid string of key-value pairs"):
        ray_cluster.start(Settings(state_dir=tmp_path, local_nodes=0))
    assert list(tmp_path.iterdir()) == []
    assert made and not Path(made[0]).exists()


def test_a_node_that_registers_late_still_starts() -> None:
    """Ray itself waits 30 s for the entry of a new node. Its nodes call the function that is replaced."""
    from ray._private import node, services

    from regroup.service.local import ray_start

    assert "ray._private.services.get_node(" in inspect.getsource(node.Node)
    assert services.get_node.__qualname__.startswith("wait_patiently.")
    calls: list[str] = []

    def get_node(address: str) -> str:
        calls.append(address)
        if len(calls) < 3:
            raise RuntimeError("no such node")
        return "found"

    assert ray_start.wait_patiently(get_node, limit_s=30.0)("head") == "found" and calls == ["head"] * 3
    with pytest.raises(RuntimeError, match="never"):
        ray_start.wait_patiently(_never, limit_s=0.0)()


def _never() -> None:
    raise RuntimeError("never")


def test_the_dashboard_gets_its_usual_port_unless_that_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as usual:
        usual.bind(("127.0.0.1", 0))
        port = usual.getsockname()[1]
        monkeypatch.setattr(ray_cluster, "DASHBOARD_PORT", port)
        assert ray_cluster._dashboard_port(None) not in (0, port)
        with pytest.raises(ray_cluster.LocalRayError, match=rf"port {port} .* in use .*REGROUP_RAY_DASHBOARD_PORT"):
            ray_cluster._dashboard_port(port)
        assert ray_cluster._dashboard_port(0) not in (0, port)
    assert ray_cluster._dashboard_port(None) == ray_cluster._dashboard_port(port) == port


def test_the_usual_port_is_the_one_that_ray_and_the_documentation_use() -> None:
    from ray._private.ray_constants import DEFAULT_DASHBOARD_PORT

    assert ray_cluster.DASHBOARD_PORT == DEFAULT_DASHBOARD_PORT
    assert f"port {DEFAULT_DASHBOARD_PORT}" in (ROOT / "docs/deploy.md").read_text()
