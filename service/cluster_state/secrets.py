"""Reads the secrets that jobs use: whether they can be read, and their values for the agents of one job."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from regroup.service.domain.credentials.keyring import KeyringError, Keys, require_keys
from regroup.service.domain.errors import RegroupError
from regroup.service.ports.sync import SecretValues
from regroup.service.store.rows.records import JobRow
from regroup.service.store.secrets.rows import SecretRow
from regroup.service.store.store import Store

SECRETS_READABLE = "SecretsReadable"
"""Condition of a job that waits or runs: false if a secret of its project cannot be read, so that no agent gets it."""


class SecretsUnreadableError(RegroupError):
    """A secret of a job does not exist any more, or its value cannot be decrypted."""


class SecretReader:
    """Reads secrets for the controller.

    Args:
        keys: returns the keys of the server.
    """

    def __init__(self, store: Store, keys: Keys) -> None:
        self._store, self._keys = store.secrets, keys

    async def version(self, job: JobRow) -> str:
        """Return the version of the present values of a job's secrets, without their decryption."""
        return _version_of(await self._store.secrets(job.project, names_of(job.spec)))

    async def read(self, job: JobRow) -> SecretValues:
        """Return the present values of a job's secrets.

        Raises:
            SecretsUnreadableError: one does not exist any more, or cannot be decrypted.
        """
        names = names_of(job.spec)
        rows = await self._store.secrets(job.project, names)
        if missing := sorted(names - {row.name for row in rows}):
            raise SecretsUnreadableError(_missing(job.project, missing[0]))
        try:
            return SecretValues(_version_of(rows), {row.name: self._decrypt(row) for row in rows})
        except KeyringError as error:
            raise SecretsUnreadableError(str(error)) from None

    async def find_problems(self, jobs: Sequence[JobRow]) -> dict[str, str]:
        """Return why jobs cannot get their secrets, by job id. Reads once for each project."""
        problems = dict[str, str]()
        users = {job.id: (job.project, names) for job in jobs if (names := names_of(job.spec))}
        readable = {project: await self._check(project) for project in {project for project, _ in users.values()}}
        for job_id, (project, names) in users.items():
            found = (readable[project].get(name, _missing(project, name)) for name in sorted(names))
            if problem := next(filter(None, found), ""):
                problems[job_id] = problem
        return problems

    async def _check(self, project: str) -> dict[str, str]:
        """Return the secrets of a project, each with the reason for which it cannot be read, or an empty text."""
        found = dict[str, str]()
        for row in await self._store.secrets(project):
            try:
                self._decrypt(row)
                found[row.name] = ""
            except KeyringError as error:
                found[row.name] = str(error)
        return found

    def _decrypt(self, row: SecretRow) -> str:
        return require_keys(self._keys).open(row.sealed, row.owner)


def names_of(spec: Mapping[str, Any]) -> frozenset[str]:
    """Return the secrets of the project that a stored spec names."""
    sections = spec.get("secrets")
    if not isinstance(sections, Mapping):
        return frozenset()
    found = set[str]()
    for source in cast(Mapping[Any, Any], sections).values():
        name = cast(Mapping[Any, Any], source).get("from_project") if isinstance(source, Mapping) else None
        if isinstance(name, str):
            found.add(name)
    return frozenset(found)


def _missing(project: str, name: str) -> str:
    return (
        f"project {project!r} has no secret {name!r} any more; an admin can create it with "
        f"`regroup secret set {name} --project {project}`"
    )


def _version_of(rows: Sequence[SecretRow]) -> str:
    """Return a name for these values. It differs after each change, also after a deletion and a new creation."""
    facts = sorted((row.name, row.version, row.created_at, row.updated_at) for row in rows)
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]
