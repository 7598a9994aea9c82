"""The HTTP interface of a gateway, for callers that are not `RemoteCluster`."""

import httpx2
import pytest

from regroup.service.domain.topology import Node
from regroup.service.gateway import app as gateway_app
from regroup.service.remote_cluster.wire import SIGNATURES
from tests.support.doubles.fake_cluster import FakeCluster
from tests.support.servers.gateway_server import TOKEN, serve_gateway

NODE = Node("n1", "gpu-1", "10.0.0.1", cpus=8.0)
BEARER = {"Authorization": f"Bearer {TOKEN}"}
EMPTY = '{"version": 1, "arguments": {}}'


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": TOKEN},
                                     {"Authorization": f"Basic {TOKEN}"}, {"Authorization": "Bearer"},
                                     {"Authorization": "Bearer \xff"}])  # fmt: skip
async def test_no_method_answers_without_the_token(headers: dict[str, str]) -> None:
    fake = FakeCluster([NODE])
    raw = {name: value.encode("latin-1") for name, value in headers.items()}
    async with serve_gateway(fake) as url, httpx2.AsyncClient(base_url=url) as http:
        for method in (*SIGNATURES, "other"):
            reply = await http.post(f"/calls/{method}", content=EMPTY, headers=raw)
            assert reply.status_code == 401, method
    assert fake.calls == []


async def test_what_is_not_a_call_is_refused_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_app, "MAX_BODY_BYTES", 1000)
    fake = FakeCluster([NODE])
    async with serve_gateway(fake) as url, httpx2.AsyncClient(base_url=url, headers=BEARER) as http:
        assert (await http.post("/calls/close", content=EMPTY)).status_code == 404
        assert (await http.post("/calls/_reach", content=EMPTY)).status_code == 404
        assert (await http.get("/calls/nodes")).status_code == 405
        assert (await http.post("/calls/nodes", content="{")).status_code == 400
        large = await http.post("/calls/nodes", content=EMPTY + " " * 2000)
        assert large.status_code == 400 and "larger than" in large.text
        incomplete = await http.post("/calls/kill_actor", content=EMPTY)
        assert incomplete.json()["error"]["kind"] == "ClusterFaultError"
        assert (await http.post("/calls/nodes", content=EMPTY)).json()["value"][0]["name"] == "gpu-1"
    assert fake.calls == []


async def test_probes_need_no_token_and_report_a_lost_cluster() -> None:
    problems = [""]
    async with serve_gateway(FakeCluster([NODE]), health=lambda: problems[0]) as url, httpx2.AsyncClient() as http:
        assert (await http.get(f"{url}/livez")).status_code == 200
        problems[0] = "the cluster has not answered for 130 s"
        for path in ("/livez", "/readyz"):
            reply = await http.get(url + path)
            assert (reply.status_code, reply.text) == (503, problems[0])
