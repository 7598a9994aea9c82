"""Tools that predict sizes and starts, and that list verdicts of chaos rehearsals."""

from typing import Any

from tests.support.inputs.auto_layout_specs import auto_json, cpu_nodes
from tests.support.inputs.verdicts import verdict
from tests.support.servers.mcp_agents import agent_over_http, mcp_over_http

ELASTIC = {"dp": {"min": 1, "target": 2, "max": 4}}


async def test_sizes_starts_and_verdicts_are_those_of_the_api(live: Any) -> None:
    for node in cpu_nodes(2, 2):
        live.cluster.add_node(node)
    spec = auto_json(ELASTIC, micro_batch=4)
    wide = (await live.submit(name="wide", layout={"dp": 8}, training={**spec["training"], "micro_batch": 1}))["id"]
    await live.http.post("/v1/chaos/verdicts", json=verdict())
    async with mcp_over_http(live.url) as url, agent_over_http(url, live.token) as agent:
        sizes = await agent.read("predict_sizes", spec=spec)
        starts = (await agent.read("list_size_starts", job=wide))["starts"]
        (found,) = (await agent.read("list_chaos_verdicts", scenario="rank-killed"))["verdicts"]
        assert (await agent.read("list_chaos_verdicts", scenario="hang"))["verdicts"] == []
    expected = (await live.http.post("/v1/spec/sizes", json=spec)).json()["sizes"]
    assert [each["step_s"] for each in sizes["sizes"]] == [each["expected_step_s"] for each in expected]
    assert (sizes["open_ranks"], sizes["sizes"][1]["layout"]) == (4, "dp_shard=2")
    assert [(each["ranks"], each["is_legal"], each["is_now"]) for each in starts] == [
        (8, True, False),
        (4, False, True),
    ]
    assert found["verdict"] == verdict()
