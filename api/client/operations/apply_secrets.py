"""Secrets in the file of `regroup apply`: values come from a variable or a file of the caller, never from the file."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pydantic import SecretStr, ValidationError

from regroup.api.client.operations import secrets
from regroup.api.client.operations.apply_steps import ApplyStep, StepAction
from regroup.api.schemas.secrets import Secret, SecretValue
from regroup.api.schemas.setup import Setup, SetupSecret
from regroup.service.domain.errors import FieldIssue, SpecError
from regroup.service.spec.issues import find_issues


def find_secret_steps(
    setup: Setup, current: Mapping[str, Mapping[str, Secret]], *, replace_all: bool
) -> list[ApplyStep]:
    """Return the steps that create the secrets of the file. All values are read now, before the first change.

    Args:
        current: project → its secrets by name.
        replace_all: also set secrets that exist. The server does not show values, so they cannot be compared.

    Raises:
        SpecError: a value cannot be read, or is too short or too long.
    """
    steps: list[ApplyStep] = []
    for project, desired in setup.projects.items():
        for name, source in desired.secrets.items():
            there = current.get(project, {}).get(name)
            if there is not None and not replace_all:
                continue
            value = read_source(source, ("projects", project, "secrets", name))
            request = secrets.set_secret(project, name, value)
            if there is not None:
                request = replace(request, headers={**request.headers, "If-Match": there.etag})
            action = StepAction.CREATE if there is None else StepAction.CHANGE
            steps.append(ApplyStep(action, "secret", f"{name} of {project}", (str(source),), request))
    return steps


def read_source(source: SetupSecret, location: tuple[str, ...]) -> str:
    """Return the value of a variable or a file of this process, without the line ends at its end.

    Raises:
        SpecError: it cannot be read, or is too short or too long. The message has no part of it.
    """
    if source.from_env is not None:
        value = os.environ.get(source.from_env)
        if value is None:
            message = f"the variable {source.from_env} is not set; set it before `regroup apply`"
            raise SpecError([FieldIssue.at((*location, "from_env"), message)])
        field = "from_env"
    else:
        value, field = _read_file(str(source.from_file), (*location, "from_file")), "from_file"
    try:
        return SecretValue(value=SecretStr(value.rstrip("\r\n"))).value.get_secret_value()
    except ValidationError as error:
        problem = find_issues(error, None)[0].message
    raise SpecError([FieldIssue.at((*location, field), f"its value {problem}")])


def _read_file(path: str, location: tuple[str, ...]) -> str:
    try:
        return Path(path).expanduser().read_text()
    except OSError as error:
        raise SpecError([FieldIssue.at(location, f"{path} cannot be read: {error.strerror}")]) from error
    except UnicodeDecodeError:
        pass  # the text of this error shows the value
    raise SpecError([FieldIssue.at(location, f"{path} is not UTF-8 text; encode bytes, for example as Base64")])
