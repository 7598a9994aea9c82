"""Places of invalid fields: the file, line and column that contain what the validation or the server refused."""

import contextlib
from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path

from regroup.api.cli.spec_input.spec_file import read_places
from regroup.service.documents.document import DocumentError
from regroup.service.documents.tree import Places
from regroup.service.domain.errors import FieldIssue, RegroupError, SpecError


@contextlib.contextmanager
def add_places(path: Path, settings: Sequence[str] = ()) -> Generator[None]:
    """Add the place in the spec file to each error about a field that is raised inside.

    Args:
        path: the spec file.
        settings: values of `--set`, which replace fields of the file.
    """
    try:
        yield
    except DocumentError:
        raise  # has a place
    except RegroupError as error:
        located = _with_places(error, path, [setting.partition("=")[0].split(".") for setting in settings])
        if located is None:
            raise
        raise located from error


def _with_places(error: RegroupError, path: Path, replaced: Sequence[Sequence[str]]) -> RegroupError | None:
    from regroup.api.client.connection.errors import ApiError

    if type(error) is SpecError:
        places = read_places(path)
        return SpecError([_with_place(issue, places, path, replaced) for issue in error.issues])
    if isinstance(error, ApiError) and error.problem.errors:
        places = read_places(path)
        fields = [
            field.model_copy(update={"detail": _prefix(places, path, _parts(field.pointer), replaced) + field.detail})
            for field in error.problem.errors
        ]
        return ApiError(error.problem.model_copy(update={"errors": fields}))
    return None


def _with_place(issue: FieldIssue, places: Places, path: Path, replaced: Sequence[Sequence[str]]) -> FieldIssue:
    location = [str(part) for part in issue.location] or issue.path.split(".")
    return replace(issue, message=_prefix(places, path, location, replaced) + issue.message)


def _prefix(places: Places, path: Path, location: Sequence[str], replaced: Sequence[Sequence[str]]) -> str:
    """Return the place of a field, or of the innermost section that contains it; empty if it is not in the file."""
    if any(list(location[: len(each)]) == list(each) for each in replaced):
        return ""
    by_name = {tuple(map(str, where)): place for where, place in places.items()}
    for length in range(len(location), 0, -1):
        if (place := by_name.get(tuple(location[:length]))) is not None:
            return f"{path}: {place}: "
    return ""


def _parts(pointer: str) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]
