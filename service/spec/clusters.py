"""The clusters file of an operator: the clusters that one control plane serves, each behind its gateway."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from regroup.service.documents.document import DocumentError
from regroup.service.documents.yaml_text import parse_yaml
from regroup.service.domain.errors import FieldIssue, SettingError
from regroup.service.domain.settings.values import find_gateway_problem
from regroup.service.spec.issues import find_issues, issues_at
from regroup.service.spec.types import Name, SpecModel

DEFAULT_NAME = "default"
"""Name of the only cluster of a control plane without a clusters file."""
_MOST_CLUSTERS = 32
_PLACE = "REGROUP_CLUSTERS_FILE"


def _check_url(url: str) -> str:
    if problem := find_gateway_problem(url):
        raise PydanticCustomError("gateway_url", "{problem}", {"problem": problem})
    return url


class ClusterEntry(SpecModel):
    """One cluster. Relative paths begin at the folder of the clusters file."""

    gateway_url: Annotated[str, Field(max_length=2000), AfterValidator(_check_url)]
    """Address of its gateway, as `https://HOST:PORT`."""
    token_file: Annotated[str, Field(min_length=1, max_length=4096)]
    """File with the token of the gateway."""
    ca_file: Annotated[str, Field(min_length=1, max_length=4096)] | None = None
    """Certificates that may sign the one of the gateway, PEM. Default: those of the system."""


class ClusterTable(SpecModel):
    """The clusters of one control plane."""

    default: Name
    """Cluster of the jobs that name none."""
    clusters: Annotated[dict[Name, ClusterEntry], Field(min_length=1, max_length=_MOST_CLUSTERS)]
    """Name → cluster."""

    @model_validator(mode="after")
    def _check_default(self) -> Self:
        if self.default not in self.clusters:
            raise PydanticCustomError(
                "default_cluster",
                "default names cluster {name}, which clusters does not have: {names}",
                {"name": repr(self.default), "names": ", ".join(self.clusters)},
            )
        return self


@dataclass(frozen=True)
class ClusterNames:
    """The names of the clusters that jobs can name."""

    default: str = DEFAULT_NAME
    others: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[str, ...]:
        """All names, the default cluster first."""
        return (self.default, *self.others)

    def shown(self, cluster: str) -> str:
        """Return the name of a cluster for people. Internally, the default cluster has the empty name."""
        return cluster or self.default

    def internal(self, name: str | None) -> str:
        """Return the internal name of a cluster; that of the default cluster for None."""
        return "" if name in (None, self.default) else str(name)

    def find_problem(self, name: str | None) -> str:
        """Return why a request cannot name this cluster; empty if it can, or if it names none."""
        if name is None or name in self.all:
            return ""
        return f"unknown cluster {name!r}; clusters of this server: {', '.join(self.all)}"


ONE_CLUSTER = ClusterNames()


def names_of(table: ClusterTable | None) -> ClusterNames:
    """Return the names in a table; without a table, the one cluster has the name `default`."""
    if table is None:
        return ONE_CLUSTER
    return ClusterNames(table.default, tuple(sorted(table.clusters.keys() - {table.default})))


def read_clusters(file: Path | None) -> ClusterTable | None:
    """Return the table in a clusters file, with absolute paths; None without a file.

    Raises:
        SettingError: the file cannot be read, or a field is wrong.
    """
    if file is None:
        return None
    place = f"{_PLACE}, {file}"
    try:
        data = parse_yaml(file.expanduser().read_bytes())
    except OSError as error:
        message = f"cannot read the clusters file: {error.strerror}; give the path of a YAML or JSON file"
        raise SettingError([FieldIssue(_PLACE, message, str(file))]) from error
    except DocumentError as error:
        raise SettingError(issues_at(place, error.issues)) from error
    try:
        table = ClusterTable.model_validate(data)
    except ValidationError as error:
        raise SettingError(issues_at(place, find_issues(error, data))) from error
    return table.model_copy(update={"clusters": _located(table.clusters, file.expanduser().resolve().parent)})


def _located(clusters: Mapping[str, ClusterEntry], folder: Path) -> dict[str, ClusterEntry]:
    return {
        name: entry.model_copy(
            update={
                "token_file": str(folder / Path(entry.token_file).expanduser()),
                "ca_file": None if entry.ca_file is None else str(folder / Path(entry.ca_file).expanduser()),
            }
        )
        for name, entry in clusters.items()
    }
