"""The object store of a job is slow, refuses, or does not answer. Restores and checkpoints show their progress.

Training continues, loses a rank and restores from memory. Checkpoints are late, which is reported, and the last one
is complete in the end.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from s3fs import S3FileSystem

from regroup.api.chaos.recorder import list_loadable_checkpoints
from regroup.api.schemas.jobs import Job
from regroup.service.chaos.invariants import Expected
from tests.support.jobs.invariant_checks import check_all_invariants
from tests.support.jobs.step_gates import Gates
from tests.support.servers.regroup_server import Server, eventually
from tests.support.servers.s3 import ObjectStorage
from tests.support.servers.tcp_proxy import Proxy, proxied

Spec = Callable[..., dict[str, Any]]
pytestmark = [pytest.mark.slow, pytest.mark.alone]
SLOW_S = 0.5
"""Delay of every chunk of a request or an answer: a file takes seconds."""
READ_DELAY_S = 0.05
"""Delay of every chunk of a large file: each connection delivers at most 1.3 MB per second."""
TROUBLES: dict[str, tuple[Callable[[Proxy], None], Callable[[Proxy], None]]] = {
    "slow": (lambda proxy: proxy.slow(SLOW_S), lambda proxy: proxy.slow(0)),
    "refuses": (lambda proxy: proxy.refuse(), lambda proxy: proxy.refuse(refuses=False)),
    "silent": (lambda proxy: proxy.stall(), lambda proxy: proxy.resume()),
}
"""Name → functions that begin and end the fault."""


@pytest.fixture(scope="module")
def proxy(s3: ObjectStorage) -> Iterator[Proxy]:
    port = urlsplit(s3.environment["AWS_ENDPOINT_URL"]).port
    assert port is not None
    with proxied(port) as between:
        yield between


@pytest.fixture(scope="module")
def bucket(s3: ObjectStorage, proxy: Proxy) -> ObjectStorage:
    """The bucket, accessed through the proxy."""
    url = f"http://127.0.0.1:{proxy.port}"
    return replace(s3, environment={**s3.environment, "AWS_ENDPOINT_URL": url})


@pytest.fixture(scope="module")
def behind_it(bucket: ObjectStorage, proxy: Proxy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of one node with its object store behind the proxy."""
    server = Server(tmp_path_factory.mktemp("behind") / "state", nodes=1, environment=bucket.environment)
    server.start()
    yield server
    proxy.resume()
    server.down()


@pytest.fixture(scope="module")
def calm(behind_it: Server, bucket: ObjectStorage, spec: Spec) -> Job:
    """The undisturbed run."""
    return behind_it.run(spec("calm", storage_uri=f"{bucket.uri}/calm", **PARTS))


ONE_EXIT = Expected(incidents=(frozenset({"rank_exit"}),), steps_lost=0)
PARTS: dict[str, Any] = {"layout": {"dp": 2}, "checkpoint": {"every_steps": 4}}


@pytest.mark.parametrize("trouble", TROUBLES)
def test_training_continues(
    trouble: str,
    behind_it: Server,
    bucket: ObjectStorage,
    s3: ObjectStorage,
    proxy: Proxy,
    calm: Job,
    spec: Spec,
    tmp_path: Path,
) -> None:
    begin, end = TROUBLES[trouble]
    client, gates = behind_it.client, Gates(tmp_path, 6, 20)
    faults = [{"at": {"rank": 1, "step": 14, "phase": "backward"}, "do": "sigkill"}]
    job = client.submit(spec(trouble, storage_uri=f"{bucket.uri}/{trouble}", faults=faults, **{**PARTS, **gates.parts}))
    with check_all_invariants(behind_it, job, ONE_EXIT, calm, partial(loadable_in, s3, tmp_path / "copy")):
        eventually(lambda: [saved.step for saved in client.checkpoints(job.id)] == [4], 120)
        begin(proxy)
        gates.open(6)
        eventually(lambda: client.get(job.id).step == 19, 60)  # the job lost a rank and recovered
        if trouble != "slow":
            eventually(lambda: _unwell(client.get(job.id)), 120)
            assert [saved.step for saved in client.checkpoints(job.id)] == [4]
        end(proxy)
        gates.open(20)
        done = client.wait(job.id, timeout_s=300)
    assert max(saved.step for saved in client.checkpoints(job.id)) == done.step, (
        "the last checkpoint is complete in the end"
    )
    reported = [event.data for event in client.events(job.id) if event.data.get("what") == "storage"]
    assert trouble == "slow" or (reported[0]["message"] and not reported[-1]["message"]), (
        "the fault was reported, and so was its end"
    )


def test_a_restore_from_slow_storage_shows_its_progress(
    behind_it: Server, bucket: ObjectStorage, proxy: Proxy, spec: Spec
) -> None:
    client = behind_it.client
    wide = spec("wide", steps=4, storage_uri=f"{bucket.uri}/wide", layout={"dp": 2}, checkpoint={"every_steps": 4})
    wide["workload"]["model"] = {"dim": 256, "layers": 5, "heads": 4}
    saved = behind_it.run(wide)
    (checkpoint,) = client.checkpoints(saved.id)
    before = figures_in(behind_it.get("/metrics"))
    assert before["regroup_checkpoint_written_bytes_total"] >= 0.95 * checkpoint.size_bytes
    assert before["regroup_checkpoint_write_seconds_total"] > 0
    proxy.slow(READ_DELAY_S)
    training = {**wide["training"], "steps": 6}
    job = client.submit({**wide, "name": "resumes", "training": training, "resume_from": f"{saved.id}@4"})

    def reading() -> dict[str, float] | None:
        """Return the figures of the job once it has read a part of its state."""
        found = figures_in(behind_it.get("/metrics"), job.id, "restore")
        return found if found.get("regroup_job_restore_done_bytes", 0) > 0 else None

    found = eventually(reading, 120)
    why, seen = client.why(job.id), client.get(job.id).phase
    proxy.slow(0)
    assert found is not None and seen is not None and seen.done_bytes is not None
    total_bytes = found["regroup_job_restore_total_bytes"]
    assert 0.9 * checkpoint.size_bytes <= total_bytes <= checkpoint.size_bytes
    assert found["regroup_job_restore_bytes_per_second"] > 0
    assert (seen.phase, seen.total_bytes) == ("restoring", total_bytes)
    assert 0 < seen.done_bytes < total_bytes and seen.fraction == seen.done_bytes / total_bytes
    assert "restoring state from checkpoint: " in why.summary and "B/s" in why.summary
    done = client.wait(job.id, timeout_s=300)
    assert (done.state, done.step, done.phase) == ("SUCCEEDED", 6, None)
    after = figures_in(behind_it.get("/metrics"))
    restored = 'regroup_restored_bytes_total{source="checkpoint"}'
    assert after[restored] - before[restored] > 0.9 * total_bytes
    assert not figures_in(behind_it.get("/metrics"), job.id, "restore")


def test_a_checkpoint_to_slow_storage_shows_its_progress_while_training_continues(
    behind_it: Server, bucket: ObjectStorage, proxy: Proxy, spec: Spec, tmp_path: Path
) -> None:
    client, gates = behind_it.client, Gates(tmp_path, 4, 6)
    uri, layout = f"{bucket.uri}/slow-save", {"dp": 2}
    wide = spec("saves", storage_uri=uri, layout=layout, checkpoint={"every_steps": 4}, **gates.parts)
    wide["training"] = {**wide["training"], "steps": 8}
    wide["workload"]["model"] = {"dim": 256, "layers": 5, "heads": 4}
    job = client.submit(wide)
    eventually(lambda: client.get(job.id).step == 3, 120)
    proxy.slow(READ_DELAY_S)
    gates.open(4)

    def writing() -> dict[str, float] | None:
        """Return the figures of the job once it has written a part of its checkpoint."""
        found = figures_in(behind_it.get("/metrics"), job.id, "save")
        return found if found.get("regroup_job_save_done_bytes", 0) > 0 else None

    found = eventually(writing, 120)
    why, seen = client.why(job.id), client.get(job.id)
    assert [each.step for each in client.checkpoints(job.id)] == [], "it is not complete"
    proxy.slow(0)
    assert found is not None and seen.save is not None
    assert (seen.state, seen.step, seen.phase) == ("RUNNING", 5, None), "training continues"
    assert (seen.save.step, seen.save.generation) == (4, 1)
    total_bytes = found["regroup_job_save_total_bytes"]
    assert seen.save.total_bytes == total_bytes
    assert 0 < seen.save.done_bytes < total_bytes and seen.save.bytes_per_s > 0
    assert seen.save.message.startswith("writing checkpoint of step 4: ") and seen.save.message.endswith("B/s")
    assert "writing checkpoint of step 4: " in why.summary
    eventually(lambda: client.get(job.id).save is None, 60)
    gates.open(6)
    done = client.wait(job.id, timeout_s=300)
    assert (done.state, done.step, done.save) == ("SUCCEEDED", 8, None)
    first = client.checkpoints(job.id)[0]
    assert first.step == 4 and 0.95 * first.size_bytes <= total_bytes <= first.size_bytes
    assert not figures_in(behind_it.get("/metrics"), job.id, "save")


def figures_in(exposition: str, job_id: str = "", kind: str = "") -> dict[str, float]:
    """Return name → value of the metrics, or name without labels → value of the restore or save of one job."""
    lines = [line.rsplit(" ", 1) for line in exposition.splitlines() if not line.startswith("#")]
    if not job_id:
        return {name: float(value) for name, value in lines}
    of_job = [(name, value) for name, value in lines if job_id in name and name.startswith(f"regroup_job_{kind}_")]
    return {name.partition("{")[0]: float(value) for name, value in of_job}


def loadable_in(s3: ObjectStorage, copy: Path, uri: str) -> list[str]:
    """Return the names of a job's checkpoints that verify, read without the proxy."""
    files, folder = S3FileSystem(**s3.options), f"{uri.removeprefix('s3://')}/checkpoints"
    shutil.rmtree(copy, ignore_errors=True)
    with suppress(FileNotFoundError):  # there is no checkpoint yet, or one is being removed
        files.get(folder, f"{copy}/checkpoints", recursive=True)
    return list_loadable_checkpoints(str(copy))


def _unwell(job: Job) -> list[str]:
    """Return the job's condition of durable storage."""
    return [each.message for each in job.conditions if (each.type, each.reason) == ("NodeWell", "storage")]
