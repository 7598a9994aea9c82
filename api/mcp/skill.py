"""The skill file: how an agent uses regroup's commands and tools. It is part of the wheel."""

from importlib import resources

FILE = "SKILL.md"


def read_skill() -> str:
    """Return the text of the skill file."""
    return resources.files("regroup.api.mcp").joinpath(FILE).read_text(encoding="utf-8")
