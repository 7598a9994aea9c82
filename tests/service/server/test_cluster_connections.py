"""The start of a server with a clusters file: some gateways answer, none does, or the file is wrong."""

import json
from pathlib import Path

import pytest
import structlog

from regroup.service.domain.errors import ConflictError, SettingError, UnavailableError
from regroup.service.domain.topology import Node
from regroup.service.server import cluster_connections
from regroup.service.server.cluster_connections import connect_clusters
from regroup.service.settings import Settings
from tests.support.doubles.fake_cluster import FakeCluster
from tests.support.servers.gateway_server import TOKEN, serve_gateway
from tests.support.servers.ports import free_port
from tests.support.servers.stores import open_store


def clusters_file(folder: Path, **urls: str) -> Path:
    (folder / "token").touch(mode=0o600)
    (folder / "token").write_text(TOKEN)
    clusters = {name: {"gateway_url": url, "token_file": "token"} for name, url in urls.items()}
    file = folder / "clusters.json"
    file.write_text(json.dumps({"default": "east", "clusters": clusters}))
    return file


async def test_a_server_starts_while_one_cluster_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_connections, "PATIENCE_S", 0.1)
    store = await open_store(f"sqlite:///{tmp_path}/regroup.db")
    async with serve_gateway(FakeCluster([Node("w1", "gpu-1", "10.0.0.1", cpus=2)])) as west:
        file = clusters_file(tmp_path, east=f"http://127.0.0.1:{free_port()}", west=west)
        with structlog.testing.capture_logs() as logs:
            cluster = await connect_clusters(Settings(state_dir=tmp_path, clusters_file=file), store)
        late = [log["cluster"] for log in logs if log["event"] == "a cluster does not answer yet"]
        assert late == ["east"]
        assert [node.name for node in await cluster.nodes()] == ["west:gpu-1"]
        assert (await cluster.unreachable()).keys() == {""}
    await store.close()


async def test_a_server_does_not_start_without_any_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_connections, "WAIT_S", 0.0)
    store = await open_store(f"sqlite:///{tmp_path}/regroup.db")
    urls = {name: f"http://127.0.0.1:{free_port()}" for name in ("east", "west")}
    settings = Settings(state_dir=tmp_path, clusters_file=clusters_file(tmp_path, **urls))
    with pytest.raises(UnavailableError, match=r"cluster east: no cluster answers at .*; cluster west: no cluster"):
        await connect_clusters(settings, store)
    (tmp_path / "token").unlink()
    with pytest.raises(ConflictError, match="token_file of cluster east"):
        await connect_clusters(settings, store)
    (tmp_path / "clusters.json").write_text("{}")
    with pytest.raises(SettingError, match="REGROUP_CLUSTERS_FILE"):
        await connect_clusters(settings, store)
    await store.close()
