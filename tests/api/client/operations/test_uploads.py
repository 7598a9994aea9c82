"""Uploads of code from the client to the real app, over a network that fails."""

import asyncio
import hashlib
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from regroup.api.client.client import Client
from regroup.api.client.connection.errors import ApiError, ServerUnreachableError
from regroup.api.client.operations.code_archive import ArchiveError
from regroup.api.client.operations.uploads import PIECE_BYTES


class Network(httpx2.HTTPTransport):
    """A network that fails after some requests. It can lose the answer to a request that the server executed."""

    def __init__(self, *, breaks_after: int = 10**9, loses: tuple[int, ...] = ()) -> None:
        super().__init__()
        self._breaks_after, self._loses = breaks_after, loses
        self.sent_bytes: list[int] = []

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "PATCH":
            if len(self.sent_bytes) == self._breaks_after:
                raise httpx2.ConnectError("broken")
            self.sent_bytes.append(len(request.content))
        answer = super().handle_request(request)
        if request.method == "PATCH" and len(self.sent_bytes) in self._loses:
            answer.close()
            raise httpx2.ReadError("lost")
        return answer


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder of a little more than two pieces."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text("print('hello')\n")
    (folder / "weights.bin").write_bytes(random.Random(0).randbytes(2 * PIECE_BYTES))
    return folder


async def over(live: Any, network: Network, call_client: Callable[[Client], Any]) -> Any:
    def call() -> Any:
        with Client(live.url, patience_s=0.5, transport=network) as client:
            return call_client(client)

    return await asyncio.to_thread(call)


def stored(live: Any, address: str) -> bytes:
    folder = Path(live.services.settings.blob_uri.removeprefix("file://"))
    return (folder / "sha256" / address.removeprefix("sha256:")).read_bytes()


async def test_a_folder_is_uploaded_once(live: Any, project: Path) -> None:
    shown: list[tuple[int, int]] = []
    first, second = Network(), Network()
    address = await over(
        live, first, lambda client: client.upload_working_dir(project, on_progress=lambda *at: shown.append(at))
    )
    data = stored(live, address)
    assert address == f"sha256:{hashlib.sha256(data).hexdigest()}"
    size = len(data)
    assert shown == [(PIECE_BYTES, size), (2 * PIECE_BYTES, size), (size, size)]
    assert await over(live, second, lambda client: client.upload_working_dir(str(project))) == address
    assert (len(first.sent_bytes), second.sent_bytes) == (3, [])


async def test_an_interrupted_upload_resumes_at_its_offset(live: Any, project: Path) -> None:
    with pytest.raises(ServerUnreachableError, match="broken"):
        await over(live, Network(breaks_after=2), lambda client: client.upload_working_dir(project))
    later = Network()
    address = await over(live, later, lambda client: client.upload_working_dir(project))
    assert later.sent_bytes == [len(stored(live, address)) - 2 * PIECE_BYTES]


@pytest.mark.parametrize("lost", [1, 2, 3])
async def test_a_lost_answer_repeats_no_byte(live: Any, project: Path, lost: int) -> None:
    network = Network(loses=(lost,))
    address = await over(live, network, lambda client: client.upload_working_dir(project))
    assert len(stored(live, address)) > 2 * PIECE_BYTES and len(network.sent_bytes) == 4


async def test_a_spec_with_a_folder_is_submitted_with_its_address(
    live: Any, make_spec: Callable[..., dict[str, Any]], project: Path
) -> None:
    spec = make_spec(code={"working_dir": str(project)})
    job = await live.client(lambda client: client.submit(spec))
    assert job.spec.code is not None and stored(live, job.spec.code.archive)
    assert spec["code"] == {"working_dir": str(project)}, "the caller's spec is unchanged"
    with pytest.raises(ApiError, match="nodes cannot access"):
        await live.client(lambda client: client.submit(make_spec("x", code={"working_dir": ".", "archive": "a"})))


async def test_an_upload_above_the_limit_of_the_server_is_rejected(live: Any, project: Path) -> None:
    object.__setattr__(live.services.settings, "upload_limit_bytes", 2**20)
    network = Network()
    with pytest.raises(ArchiveError, match=r"accepts 1\.0 MiB\. Largest: weights\.bin \(8\.0 MiB\)"):
        await over(live, network, lambda client: client.upload_working_dir(project))
    with pytest.raises(ApiError, match="limit 1048576"):
        await over(live, network, lambda client: client.upload_archive(project / "weights.bin"))
    assert network.sent_bytes == []


async def test_an_error_names_a_missing_file(live: Any, tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match=r"nowhere\.tar cannot be read"):
        await live.client(lambda client: client.upload_archive(tmp_path / "nowhere.tar"))
