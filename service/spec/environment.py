"""Environment section of a job spec: the Python in which the ranks run."""

import re
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from packaging.requirements import InvalidRequirement, Requirement
from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from regroup.service.spec.types import AbsolutePath, LabelValue, Location, SpecModel


def _requirement(text: str) -> str:
    if text.startswith("-"):
        raise PydanticCustomError(
            "requirement",
            "pip options are not allowed: set them as variables in env or secrets, for example PIP_INDEX_URL, "
            "PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS",
        )
    if re.match(r"(\.{0,2}/|~)", text):
        raise PydanticCustomError(
            "requirement",
            "local paths are not allowed (they resolve differently on every node): list a package, or ship your code "
            "with `code`",
        )
    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        raise PydanticCustomError(
            "requirement", "not a requirement such as `torch==2.13.0`: {why}", {"why": str(error).splitlines()[0]}
        ) from error
    if requirement.url is not None:
        _check_address(requirement.url)
    return text


def _check_address(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme in ("", "file"):
        raise PydanticCustomError(
            "requirement",
            "file URLs are not allowed (they resolve differently on every node): publish the package where every node "
            "can read it, and set env.PIP_FIND_LINKS or env.PIP_INDEX_URL",
        )
    if parts.username and not re.fullmatch(r"\$\{\w+\}", parts.password or parts.username):
        raise PydanticCustomError(
            "requirement", "a spec must not contain credentials: define a secret, and use ${{SECRET_NAME}} in the URL"
        )


class Environment(SpecModel):
    """The Python environment of a job: the platform's own unless `requirements` or `interpreter` is set."""

    requirements: Annotated[list[Annotated[Location, AfterValidator(_requirement)]], Field(max_length=1000)] = []
    """Requirements in the syntax of pip, installed on every node, once for all jobs with the same list. Pin the
    versions. `regroup submit SPEC --requirements FILE` reads them from a file."""
    base: Literal["platform", "none"] = "platform"
    """Packages that the ranks see in addition to `requirements`: those of the `platform` (torch and numpy among them),
    or `none`."""
    interpreter: AbsolutePath | None = None
    """Absolute path of a Python interpreter, with torch, that exists on every node. Mutually exclusive with
    `requirements`."""

    image: LabelValue | None = None
    """Container image that the nodes must run, as named by the node label `regroup.io/image`. Default: any image."""

    @model_validator(mode="before")
    @classmethod
    def _check_no_local_file(cls, data: Any) -> Any:
        if isinstance(data, dict) and "requirements_file" in data:
            raise PydanticCustomError(
                "requirements_file",
                "requirements_file is a local file that the server cannot read: submit with `regroup submit SPEC`, "
                "which reads the file, or list its lines in requirements",
            )
        return data

    @model_validator(mode="after")
    def _check_one_python(self) -> Self:
        if self.interpreter is not None and self.requirements:
            raise PydanticCustomError(
                "environment",
                "set requirements or interpreter, not both: nothing is installed into an existing interpreter",
            )
        if self.base == "none" and not self.requirements:
            raise PydanticCustomError(
                "environment", "base: none needs requirements: list torch and all other packages that the job needs"
            )
        return self
