"""URIs of durable storage: the forms that regroup accepts. Pure.

fsspec knows many more schemes, chains them (`simplecache::s3://…`), and sends a request to any host that a URI names.
A server and its agents hold credentials, so they open only storage of these forms.
"""

import re

ACCEPTED_FORMS = "an absolute path, file:///folder, s3://bucket/prefix or gs://bucket/prefix"
MAX_CHARACTERS = 1024
_SCHEME = re.compile(r"([^/:]*):")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_OBJECT_SCHEMES = ("s3", "gs")


class StorageUriError(ValueError):
    """A URI that names no storage which regroup accepts."""


def checked_uri(uri: str) -> str:
    """Return the URI if regroup accepts it.

    Raises:
        StorageUriError: it does not; the message has the accepted forms.
    """
    if problem := find_uri_problem(uri):
        raise StorageUriError(f"{uri[:80]!r} {problem}")
    return uri


def find_uri_problem(uri: str) -> str:
    """Return why regroup does not accept a URI, with the accepted forms; empty if it does."""
    if reason := _reason(uri):
        return f"{reason}; use {ACCEPTED_FORMS}"
    return ""


def _reason(uri: str) -> str:
    if len(uri) > MAX_CHARACTERS:
        return f"has {len(uri)} characters, more than {MAX_CHARACTERS}"
    if not uri.isprintable() or uri != uri.strip():
        return "has a control character, or a space at an end"
    if "::" in uri:
        return "chains protocols with '::'"
    scheme = _SCHEME.match(uri)
    if scheme is None:
        return "" if uri.startswith("/") else "is a relative path, which resolves differently on every node"
    rest = uri[scheme.end() :]
    if scheme[1] == "file":
        return "" if rest.startswith("///") else "does not name an absolute path"
    if scheme[1] not in _OBJECT_SCHEMES:
        return f"has the unsupported scheme {scheme[1]!r}"
    bucket, _, key = rest.removeprefix("//").partition("/")
    if not rest.startswith("//") or not _BUCKET.fullmatch(bucket):
        return "does not name a bucket"
    return "has a query" if "?" in key else ""
