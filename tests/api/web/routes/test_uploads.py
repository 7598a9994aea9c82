"""/v1/uploads over HTTP: complete, in pieces, resumed at an offset, or rejected."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.inputs.archives import bomb, tar_of

CODE = tar_of({"weights.bin": bytes(range(256)) * 4000})
SHA256 = hashlib.sha256(CODE).hexdigest()
NEW = {"sha256": SHA256, "size_bytes": len(CODE)}
PATH = f"/v1/uploads/{SHA256}-{len(CODE)}"


async def append(live: Any, offset: int, data: bytes, path: str = PATH) -> Any:
    return await live.http.patch(path, content=data, headers={"Upload-Offset": str(offset)})


async def test_an_archive_is_uploaded_in_pieces_and_stored(live: Any) -> None:
    limits = (await live.http.get("/v1/uploads")).json()
    assert limits == {"archive_bytes": 200 * 2**20, "piece_bytes": 8 * 2**20, "total_bytes": 20 * 2**30}
    begun = await live.http.post("/v1/uploads", json=NEW)
    assert (begun.status_code, begun.headers["Upload-Offset"]) == (201, "0")
    assert begun.json() == {
        "id": f"{SHA256}-{len(CODE)}", "archive": f"sha256:{SHA256}", "size_bytes": len(CODE), "offset_bytes": 0,
        "complete": False,
    }  # fmt: skip
    half = await append(live, 0, CODE[:500_000])
    assert (half.status_code, half.json()["offset_bytes"], half.json()["complete"]) == (200, 500_000, False)
    assert (await live.http.get(PATH)).headers["Upload-Offset"] == "500000"
    whole = await append(live, 500_000, CODE[500_000:])
    assert (whole.status_code, whole.json()["complete"]) == (200, True)
    assert (await live.http.post("/v1/uploads", json=NEW)).status_code == 200
    assert (await live.http.get(PATH)).json()["complete"] is True


async def test_bytes_at_a_wrong_offset_are_rejected_with_the_right_one(live: Any) -> None:
    await append(live, 0, CODE[:500_000])
    for offset in (0, 499_999, 600_000):
        refused = await append(live, offset, b"x")
        assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
        assert refused.headers["Upload-Offset"] == "500000"
    assert (await append(live, 500_000, CODE[500_000:])).json()["complete"] is True


async def test_bytes_with_a_wrong_checksum_are_rejected_and_deleted(live: Any) -> None:
    await append(live, 0, CODE[:500_000])
    wrong = await append(live, 500_000, bytes(len(CODE) - 500_000))
    assert (wrong.status_code, wrong.json()["code"]) == (422, "damaged_upload")
    assert SHA256 in wrong.json()["detail"]
    assert (await live.http.get(PATH)).json()["offset_bytes"] == 0
    more = await append(live, 0, CODE + b"x")
    assert (more.status_code, more.json()["code"]) == (422, "damaged_upload")
    assert (await append(live, 0, CODE)).json()["complete"] is True


async def test_an_archive_above_the_limit_is_rejected_before_its_upload(live: Any) -> None:
    size = 200 * 2**20 + 1
    refused = await live.http.post("/v1/uploads", json={"sha256": SHA256, "size_bytes": size})
    assert (refused.status_code, refused.json()["code"]) == (413, "archive_too_large")
    assert f"{size} bytes" in refused.json()["detail"] and ".regroupignore" in refused.json()["detail"]
    sent = await append(live, 0, b"x", f"/v1/uploads/{SHA256}-{size}")
    assert (sent.status_code, sent.json()["code"]) == (413, "archive_too_large")
    piece = await append(live, 0, bytes(8 * 2**20 + 1))
    assert (piece.status_code, piece.json()["code"]) == (413, "body_too_large")


async def test_an_archive_beyond_the_quota_is_rejected_with_the_remedy(live: Any) -> None:
    object.__setattr__(live.services.settings, "blob_quota_bytes", len(CODE) - 1)
    assert (await live.http.get("/v1/uploads")).json()["total_bytes"] == len(CODE) - 1
    refused = await live.http.post("/v1/uploads", json={"sha256": SHA256, "size_bytes": len(CODE)})
    assert (refused.status_code, refused.json()["code"]) == (507, "upload_quota_exceeded")
    assert "raise REGROUP_BLOB_QUOTA_BYTES" in refused.json()["detail"]
    sent = await append(live, 0, CODE[:10])
    assert (sent.status_code, sent.json()["code"]) == (507, "upload_quota_exceeded")


async def test_a_bomb_is_rejected_with_the_limit_and_deleted(live: Any) -> None:
    data = bomb(2**30)
    path = f"/v1/uploads/{hashlib.sha256(data).hexdigest()}-{len(data)}"
    refused = await append(live, 0, data, path)
    assert (refused.status_code, refused.json()["code"]) == (422, "archive_refused")
    assert "unpacks to more than the limit of 200.0 MiB" in refused.json()["detail"]
    assert (await live.http.get(path)).json()["offset_bytes"] == 0


@pytest.mark.parametrize("path", ["/v1/uploads/../jobs", "/v1/uploads/x-1", f"/v1/uploads/{SHA256}-0"])
async def test_the_id_of_an_upload_has_a_fixed_format(live: Any, path: str) -> None:
    assert (await append(live, 0, b"x", path)).status_code in (404, 405, 415, 422)


async def test_an_error_names_a_failing_blob_store(live: Any, tmp_path: Path) -> None:
    (tmp_path / "blobs").write_text("no folder")
    refused = await append(live, 0, b"x")
    assert (refused.status_code, refused.json()["code"]) == (503, "unavailable")
    assert "blobs" in refused.json()["detail"]


async def test_a_job_needs_a_stored_code_archive(live: Any, make_spec: Callable[..., dict[str, Any]]) -> None:
    code = {"archive": f"sha256:{SHA256}"}
    absent = await live.http.post("/v1/jobs", json=make_spec(code=code))
    assert (absent.status_code, absent.json()["errors"][0]["pointer"]) == (422, "/code/archive")
    assert "--working-dir" in absent.json()["detail"]
    await append(live, 0, CODE)
    assert (await live.http.post("/v1/jobs", json=make_spec(code=code))).json()["spec"]["code"] == code


@pytest.mark.parametrize("route", ["/v1/jobs", "/v1/spec/validate"])
async def test_a_local_folder_in_a_spec_is_rejected_with_a_remedy(
    live: Any, make_spec: Callable[..., dict[str, Any]], route: str
) -> None:
    refused = await live.http.post(route, json=make_spec(code={"working_dir": "."}))
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/code")
    assert "regroup submit SPEC --working-dir DIR" in refused.json()["detail"]
