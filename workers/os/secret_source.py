"""The source of a secret on a node: one of the project, a variable, a file, or a mounted Kubernetes Secret."""

from dataclasses import dataclass


@dataclass(frozen=True)
class MountedSecret:
    """A key of a Kubernetes Secret that is mounted on the node."""

    name: str
    key: str


@dataclass(frozen=True)
class SecretSource:
    """The place where a node finds the value of a secret. Exactly one of the first four fields is set."""

    from_project: str | None = None
    """Name of a secret of the project."""
    from_env: str | None = None
    """Variable of the node."""
    from_file: str | None = None
    """Path on the node."""
    from_kubernetes: MountedSecret | None = None
    project: str = ""
    """Project of `from_project`. Secrets of several projects may have one name, but never one value."""
