"""The list of tools: each has schemas, bounds, descriptions and annotations."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from regroup.api.mcp.calls.tool import Tool
from regroup.api.mcp.catalog import TOOLS
from regroup.api.mcp.server import describe
from regroup.api.mcp.skill import read_skill
from regroup.service.domain.states import Reason
from tests.support.checks.schema_bounds import unbounded

MAX_LIST_BYTES = 150_000
"""Largest list of tools: agents read all of it."""
FREE_FORM = {"spec", "set_fields", "question", "scenario"}
"""Parameters of plain data, whose bounds are those of the API."""
each_tool = pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)


def test_names_are_unique_verbs_with_objects() -> None:
    names = [tool.name for tool in TOOLS]
    assert len(names) == len(set(names)) > 50
    assert [name for name in names if not re.fullmatch(r"[a-z]+(_[a-z]+){0,3}", name)] == []


@each_tool
def test_each_tool_has_schemas_a_description_and_annotations(tool: Tool) -> None:
    found = describe(tool)
    for schema in (found.input_schema, found.output_schema):
        assert schema is not None and schema["type"] == "object"
        jsonschema.Draft202012Validator.check_schema(schema)
    assert found.title and found.description and len(found.description) > 20
    assert found.input_schema["additionalProperties"] is False
    about = found.annotations
    assert about is not None and about.read_only_hint is ("confirm" not in found.input_schema["properties"])
    assert None not in (about.destructive_hint, about.idempotent_hint, about.open_world_hint)
    assert not (about.read_only_hint and about.destructive_hint)


@each_tool
def test_each_argument_has_a_bound_and_a_description(tool: Tool) -> None:
    schema = describe(tool).input_schema
    assert list(unbounded(schema, free_form=FREE_FORM)) == []
    assert [name for name, each in schema["properties"].items() if not each.get("description")] == []


@each_tool
def test_a_tool_that_changes_something_explains_its_preview(tool: Tool) -> None:
    if not tool.effect.is_read_only:
        assert "Without `confirm`, it is a dry run" in describe(tool).description  # type: ignore[operator]


def test_the_list_is_short_enough_to_be_read() -> None:
    assert sum(len(describe(tool).model_dump_json(exclude_none=True)) for tool in TOOLS) < MAX_LIST_BYTES


def test_the_server_imports_neither_torch_nor_ray_nor_the_database() -> None:
    heavy = ("torch", "ray", "numpy", "sqlalchemy", "fastapi", "matplotlib", "pandas")
    code = f"""
import sys
import regroup.api.mcp.stdio, regroup.api.mcp.http
loaded = [name for name in {heavy!r} if name in sys.modules]
assert not loaded, loaded
"""
    subprocess.run([sys.executable, "-c", code], check=True)


# ------------------------------------------------------------ the skill file


def test_the_skill_file_has_the_front_matter_of_skills() -> None:
    head = re.match(r"---\nname: ([a-z0-9-]{1,64})\ndescription: (.{20,1024})\n---\n\n# ", read_skill())
    assert head is not None and head[1] == "regroup"
    assert len(read_skill()) < 12_000


def test_each_tool_that_the_skill_file_names_exists() -> None:
    names = {tool.name for tool in TOOLS}
    named = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)`", read_skill()))
    fields = {name for tool in TOOLS for name in describe(tool).input_schema["properties"]}
    fields |= {"left_out", "next_cursor", "next_offset", "next_line", "next_after"}
    assert named - names - fields - {str(reason) for reason in Reason} == set()
    assert len(named & names) > 25


def commands_of_the_skill() -> list[list[str]]:
    text = read_skill()
    return [line.split() for line in re.findall(r"`regroup ([^`]+)`", text)]


def test_each_command_and_option_that_the_skill_file_names_exists() -> None:
    import typer

    from regroup.api.cli.main import app

    root: Any = typer.main.get_command(app)
    found = commands_of_the_skill()
    assert len(found) > 15
    for words in found:
        command, options, rest = root, {each for one in root.params for each in one.opts}, list(words)
        if rest[0] in options:
            rest.pop(0)
        while rest and rest[0] in getattr(command, "commands", {}):
            command = command.commands[rest.pop(0)]
            options = options | {each for one in command.params for each in (*one.opts, *one.secondary_opts)}
        assert command is not root, words
        unknown = [word for word in rest if word.startswith("--") and word.split("=")[0] not in options]
        assert unknown == [], words


def test_the_page_lists_each_tool() -> None:
    page = (Path(__file__).parents[3] / "docs" / "operations" / "agents.md").read_text()
    assert [tool.name for tool in TOOLS if f"`{tool.name}`" not in page] == []
