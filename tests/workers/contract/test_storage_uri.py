"""URIs of durable storage: the forms that the spec, the settings and every call of fsspec accept."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from regroup.service.domain.errors import SpecError
from regroup.service.settings import Settings
from regroup.service.spec.job import parse_spec
from regroup.workers.contract.storage_uri import ACCEPTED_FORMS, StorageUriError, checked_uri, find_uri_problem
from regroup.workers.storage import fsspec_storage

ACCEPTED = ["/shared/x", "/", "file:///shared/run#1", "s3://bucket", "s3://b/p/q", "gs://bucket.example/x", "/a b/c"]
REFUSED = [
    ("http://127.0.0.1:9/x", "unsupported scheme 'http'"),
    ("https://host/x#", "unsupported scheme 'https'"),
    ("memory://x", "unsupported scheme 'memory'"),
    ("github://org:repo@main/x", "unsupported scheme 'github'"),
    ("reference://", "unsupported scheme 'reference'"),
    ("ftp://host/x", "unsupported scheme 'ftp'"),
    ("S3://bucket/x", "unsupported scheme 'S3'"),
    ("gcs://bucket/x", "unsupported scheme 'gcs'"),
    ("://bucket", "unsupported scheme ''"),
    ("simplecache::s3://bucket/x", "chains protocols"),
    ("zip://a.zip::http://127.0.0.1/a.zip", "chains protocols"),
    ("/shared/x::http://127.0.0.1/y", "chains protocols"),
    ("s3://bucket/x::file:///etc", "chains protocols"),
    ("here/and/there", "relative path"),
    ("~/x", "relative path"),
    ("file:x", "does not name an absolute path"),
    ("file://host/x", "does not name an absolute path"),
    ("s3://", "does not name a bucket"),
    ("s3:bucket/x", "does not name a bucket"),
    ("s3:///x", "does not name a bucket"),
    ("s3://key:secret@bucket/x", "does not name a bucket"),
    ("s3://bucket/x?versionId=1", "has a query"),
    ("/x\ny", "control character"),
    ("/x\x00", "control character"),
    (" /x", "a space at an end"),
    ("/" + "x" * 1024, "has 1025 characters, more than 1024"),
]


@pytest.mark.parametrize("uri", ACCEPTED)
def test_each_stated_form_is_accepted(uri: str) -> None:
    assert checked_uri(uri) == uri and Settings(storage_uri=uri, blob_uri=uri).storage_uri == uri


@pytest.mark.parametrize(("uri", "problem"), REFUSED)
def test_another_form_is_refused_with_the_accepted_forms(uri: str, problem: str) -> None:
    assert problem in find_uri_problem(uri) and ACCEPTED_FORMS in find_uri_problem(uri)
    for field in ("storage_uri", "blob_uri"):
        with pytest.raises(ValidationError, match="use an absolute path, file:///folder") as refused:
            Settings(**{field: uri})  # pyright: ignore[reportArgumentType]
        assert refused.value.errors()[0]["loc"] == (field,)


# The bounds of all texts of a spec refuse control characters and long URIs before this rule.
OF_THE_SPEC = [
    (uri, problem) for uri, problem in REFUSED if uri.isprintable() and uri == uri.strip() and len(uri) < 1025
]


@pytest.mark.parametrize(("uri", "problem"), OF_THE_SPEC)
def test_a_spec_with_another_form_is_refused_by_field(uri: str, problem: str) -> None:
    spec = {"name": "x", "workload": {"kind": "script", "entrypoint": "/x.py"}}
    with pytest.raises(SpecError) as refused:
        parse_spec({**spec, "storage_uri": uri})
    (issue,) = refused.value.issues
    assert (issue.path, problem in issue.message, ACCEPTED_FORMS in issue.message) == ("storage_uri", True, True)


@pytest.mark.parametrize("uri", ["http://127.0.0.1:9/x", "simplecache::file:///tmp/x", "memory://x"])
def test_the_node_opens_no_other_storage(uri: str) -> None:
    with pytest.raises(fsspec_storage.StorageError, match=r"is not writable: StorageUriError: .* use an absolute path"):
        fsspec_storage.check_writable(uri)
    with pytest.raises(StorageUriError):
        fsspec_storage.read_bytes(uri)


@given(st.text(max_size=40) | st.text(alphabet="files3g:/.@?#x ", max_size=40))
def test_any_text_is_accepted_or_refused_with_the_forms(text: str) -> None:
    problem = find_uri_problem(text)
    assert not problem or ACCEPTED_FORMS in problem
    assert problem or text.startswith(("/", "file:///", "s3://", "gs://"))
