"""Requests generated from the API's description never cause server errors, and answers match the description."""

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import Iterator

import pytest
import requests
import schemathesis
import uvicorn
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from regroup.api.app import create_app, openapi
from regroup.api.client.client import Client
from regroup.service.local.api_token import ensure_token
from regroup.service.operations.assembly.services import Services
from regroup.service.settings import Settings
from tests.support.doubles.fake_cluster import FakeCluster
from tests.support.inputs.fuzz import VARIABLE, fuzz_settings
from tests.support.servers.stores import open_store

API = schemathesis.openapi.from_dict(openapi())
_WITHOUT_COVERAGE = schemathesis.Config.from_dict({"phases": {"coverage": {"enabled": False}}})
SPECS = ["jobs_create", "spec_validate"]
"""Operations with a job spec in the body. It has so many fields that a case for each bound takes half a minute."""
API_OF_SPECS = API if VARIABLE in os.environ else schemathesis.openapi.from_dict(openapi(), config=_WITHOUT_COVERAGE)
MAX_S = 20.0
"""Longest time of an answer. Generous for a busy machine."""
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


class QuietServer(uvicorn.Server):
    """A server that signals when it has started, and leaves signals to pytest."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a server in a separate thread, with one job named `known`."""
    reported: dict[str, str] = {}
    up, stop = threading.Event(), threading.Event()

    async def serve() -> None:
        given = Settings(state_dir=tmp_path_factory.mktemp("state"))
        store = await open_store(given.database_url)
        token = ensure_token(given.token_path, create=False)
        app = create_app(Services(store, FakeCluster(), given), token)
        server = QuietServer(uvicorn.Config(app, port=0, ws="none", log_config=None, timeout_graceful_shutdown=1))
        serving = asyncio.create_task(server.serve())
        await server.up.wait()
        reported["url"] = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        up.set()
        await asyncio.to_thread(stop.wait)
        server.should_exit = True
        await serving
        await store.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert up.wait(20)
    training = {"global_batch": 4, "micro_batch": 1, "sequence": 16, "steps": 10}
    with Client(reported["url"]) as client:
        client.submit(
            {"name": "known", "workload": {"kind": "builtin", "data": {"train": ["x"]}}, "training": training}
        )
    yield reported["url"]
    stop.set()
    thread.join(20)
    assert not thread.is_alive()


@pytest.fixture(scope="module")
def session(token_of_tests: str) -> Iterator[requests.Session]:
    """Connection to the server. A new connection for each request would take most of the time."""
    with requests.Session() as opened:
        opened.trust_env = False
        opened.headers["Authorization"] = f"Bearer {token_of_tests}"
        yield opened


@API.exclude(operation_id=SPECS).parametrize()
@settings(max_examples=2, derandomize=True, suppress_health_check=list(HealthCheck))
def test_the_api_matches_its_description(case: schemathesis.Case, url: str, session: requests.Session):
    check_answer(case, url, session)


@pytest.mark.fuzz
@API_OF_SPECS.include(operation_id=SPECS).parametrize()
@settings(max_examples=5, derandomize=True, suppress_health_check=list(HealthCheck))
def test_requests_with_a_spec_match_the_description(case: schemathesis.Case, url: str, session: requests.Session):
    check_answer(case, url, session)


OPERATIONS = [found.ok() for found in API.get_all_operations() if isinstance(found, Ok)]
_CASES = st.sampled_from(OPERATIONS).flatmap(
    lambda operation: st.one_of(*(operation.as_strategy(generation_mode=mode) for mode in GenerationMode))
)


@pytest.mark.fuzz
@fuzz_settings(10)
@given(_CASES)
def test_any_request_gets_a_described_answer(url: str, session: requests.Session, case: schemathesis.Case):
    check_answer(case, url, session)


def check_answer(case: schemathesis.Case, url: str, session: requests.Session) -> None:
    case.query.pop("follow", None)  # a stream of a job that never ends
    if "job" in case.path_parameters and len(str(case.path_parameters["job"])) % 2:
        case.path_parameters["job"] = "known"
    case.call_and_validate(base_url=url, session=session, checks=CHECKS, timeout=MAX_S)


_ALPHABET = '{}[]:,"\\ \n\tnultrefas0123456789.-eE\x00é'
_ROUTES = ("/v1/jobs", "/v1/spec/validate", "/v1/plans", "/v1/jobs/known/resize", "/v1/nodes/n0/drain")


@pytest.mark.fuzz
@fuzz_settings(50)
@given(st.sampled_from(_ROUTES), st.binary(max_size=60) | st.text(_ALPHABET, max_size=60).map(str.encode))
@example("/v1/jobs", b'{"name": "a", "workload": {"kind": "builtin", "data": {"train": [1e999]}}}')
@example("/v1/jobs", b'{"name": "a", "name": "b"}')
@example(
    "/v1/jobs", b'{"name":"w","workload":{"kind":"script","entrypoint":"/a"},"resources":{"cpus":1' + b"0" * 309 + b"}}"
)
@example("/v1/jobs", b"[" * 100_000)
@example("/v1/plans", b'{"model": "llama3-70b", "device": "A100", "gpus": 1e6, "global_batch": true, "sequence": "1"}')
@example(
    "/v1/plans",
    b'{"model":"llama3-8b","device":"H100","gpus":64,"global_batch":512,"sequence":8192,"memory_gb":5e-324}',
)
@example("/v1/jobs/known/resize", b'{"dp": 131072, "tp": 131072}')
@example("/v1/nodes/n0/drain", b'{"deadline_s": "' + b"9" * 400 + b'd"}')
def test_any_body_gets_a_problem_or_an_answer(url: str, session: requests.Session, path: str, body: bytes):
    headers = {"Content-Type": "application/json"}
    answer = session.post(f"{url}{path}", data=body, headers=headers, timeout=MAX_S)
    assert answer.status_code < 500, answer.text
    assert answer.ok or answer.headers["Content-Type"] == "application/problem+json"
    assert "Value error" not in answer.text and "Input should" not in answer.text
