"""How a spec names the Python that a job's ranks run in."""

import re
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from packaging.requirements import InvalidRequirement, Requirement
from pydantic import AfterValidator, model_validator
from pydantic_core import PydanticCustomError

from regroup.service.spec.types import AbsolutePath, LabelValue, SpecModel


def _requirement(text: str) -> str:
    if text.startswith("-"):
        raise PydanticCustomError(
            "requirement",
            "options of pip are not taken here: say them as variables in env or secrets, e.g. PIP_INDEX_URL, "
            "PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS",
        )
    if re.match(r"(\.{0,2}/|~)", text):
        raise PydanticCustomError(
            "requirement", "a path means another file on every node: name a package, and send your own code with `code`"
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
            "a file means another one on every node: put it where pip finds it there, and name that in "
            "env.PIP_FIND_LINKS or env.PIP_INDEX_URL",
        )
    if parts.username and not re.fullmatch(r"\$\{\w+\}", parts.password or parts.username):
        raise PydanticCustomError(
            "requirement", "a spec is no place for credentials: name a secret, and write ${{ITS_NAME}} in the address"
        )


class Environment(SpecModel):
    """The Python of a job: the platform's own unless `requirements` or `interpreter` say otherwise."""

    requirements: list[Annotated[str, AfterValidator(_requirement)]] = []
    """What pip installs on every node, once for all jobs that ask for the same; pin versions. With
    `regroup submit SPEC --requirements FILE` the lines of a file."""
    base: Literal["platform", "none"] = "platform"
    """What the ranks see beside `requirements`: the platform's packages (torch and numpy among them), or `none`."""
    interpreter: AbsolutePath | None = None
    """Absolute path of a Python that is on every node already, with torch in it, instead of `requirements`."""

    image: LabelValue | None = None
    """Container image that its nodes must run, as their label `regroup.io/image` names it; any if absent."""

    @model_validator(mode="before")
    @classmethod
    def _no_local_file(cls, data: Any) -> Any:
        if isinstance(data, dict) and "requirements_file" in data:
            raise PydanticCustomError(
                "requirements_file",
                "requirements_file is a file where the spec was written, which no server sees: submit with `regroup "
                "submit SPEC`, which reads it, or list its lines in requirements",
            )
        return data

    @model_validator(mode="after")
    def _one_python(self) -> Self:
        if self.interpreter is not None and self.requirements:
            raise PydanticCustomError(
                "environment", "give requirements or interpreter: what is on the nodes already is not installed into"
            )
        if self.base == "none" and not self.requirements:
            raise PydanticCustomError(
                "environment", "base: none without requirements is an empty Python: list torch, and what else it needs"
            )
        return self
