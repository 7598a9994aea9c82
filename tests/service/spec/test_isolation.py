"""Jobs that a server refuses whose ranks run as users of their own."""

from typing import Any

import pytest

from regroup.service.domain.errors import SpecError
from regroup.service.spec.isolation import check_isolation
from regroup.service.spec.job import JobSpec

USERS, STORAGE = "200000-265535", "file:///srv/storage"


def spec(**parts: Any) -> JobSpec:
    workload = {"kind": "script", "entrypoint": "/srv/train.py"}
    return JobSpec.model_validate({"name": "j", "workload": workload, "layout": {"dp": 1}, **parts})


@pytest.mark.parametrize("uri", [None, "/srv/storage", "file:///srv/storage/", "s3://bucket/jobs", "gs://bucket"])
def test_object_storage_and_the_storage_of_the_server_are_accepted(uri: str | None) -> None:
    check_isolation(spec(storage_uri=uri), USERS, STORAGE)


@pytest.mark.parametrize("uri", ["/root", "file:///srv/storage/../secrets", "/srv/storage-of-others"])
def test_a_folder_that_agents_would_write_as_root_is_refused(uri: str) -> None:
    with pytest.raises(SpecError, match="agents write checkpoints as root"):
        check_isolation(spec(storage_uri=uri), USERS, STORAGE)
    check_isolation(spec(storage_uri=uri), "", STORAGE)


def test_a_program_that_writes_to_the_folder_of_the_server_is_refused() -> None:
    program = spec(workload={"kind": "ray_train", "entrypoint": "/srv/train.py"})
    with pytest.raises(SpecError, match="writes its checkpoints itself"):
        check_isolation(program, USERS, STORAGE)
    check_isolation(program.model_copy(update={"storage_uri": "s3://bucket/jobs"}), USERS, STORAGE)
    check_isolation(program, USERS, "s3://bucket/jobs")


def test_data_that_workers_of_ray_would_prepare_is_refused() -> None:
    data = {"prepare": {"train": ["/srv/text"], "format": "text"}}
    workload = {"kind": "builtin", "model": {"dim": 32, "layers": 2, "heads": 2}, "data": data}
    training = {"global_batch": 2, "micro_batch": 2, "sequence": 64, "steps": 1}
    prepared = spec(workload=workload, training=training)
    with pytest.raises(SpecError, match="would read its sources as root"):
        check_isolation(prepared, USERS, STORAGE)
    check_isolation(prepared, "", STORAGE)
