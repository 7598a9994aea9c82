"""Page with the settings of the control plane and every environment variable, from the code that reads them."""

import ast
import json
import re

import typer.main

from generators.source import PRODUCT, ROOT, attribute_docs, find_class, parse_module, table_row
from regroup.api.cli.main import app
from regroup.service.domain.environment_variables import VARIABLES
from regroup.service.settings import Settings

_HEAD = """# Settings and environment variables

The control plane reads its settings from the flags of `regroup serve` and from environment variables. A flag
overrides a variable. A list or mapping is JSON. `make docs` writes this page from `service/settings.py` and from the
code that reads the other variables.

## Settings of the control plane

| variable | flag of `serve` | default | meaning |
|---|---|---|---|
"""
_OTHERS = """
## Other environment variables

| variable | used by | meaning |
|---|---|---|
"""
_NOT_VARIABLES = {"REGROUP_DATABASE"}
"""Prefixes, and names that only appear in lists of variables that ranks must not get."""


def render() -> str:
    """Return the page.

    Raises:
        LookupError: the code reads a variable that `service/domain/environment_variables.py` does not describe, or
            does not read one that it describes.
    """
    docs = attribute_docs(find_class(ROOT / "service" / "settings.py", "Settings"))
    flags = {
        parameter.name: parameter.opts[0]
        for parameter in typer.main.get_command(app).commands["serve"].params  # type: ignore[attr-defined]
    }
    rows: list[str] = []
    variables = {f"REGROUP_{name.upper()}" for name in Settings.model_fields}
    for name, field in Settings.model_fields.items():
        default = "" if field.default in (None, "", {}) else json.dumps(field.default, default=str)
        flag = f"`{flags[name]}`" if name in flags else ""
        default = f"`{default.strip(chr(34))}`" if default else ""
        rows.append(table_row(f"`REGROUP_{name.upper()}`", flag, default, docs[name]))
    found = _names_in_code() - variables - _NOT_VARIABLES
    if found != VARIABLES.keys():
        raise LookupError(
            f"describe or remove in service/domain/environment_variables.py: {sorted(found ^ VARIABLES.keys())}"
        )
    others = [table_row(f"`{name}`", user, meaning) for name, (user, meaning) in sorted(VARIABLES.items())]
    return _HEAD + "\n".join(rows) + "\n" + _OTHERS + "\n".join(others) + "\n"


def _names_in_code() -> set[str]:
    """Return each string constant that is the name of a variable."""
    return {
        node.value
        for folder in PRODUCT
        for path in (ROOT / folder).rglob("*.py")
        if path.name != "environment_variables.py"
        for node in ast.walk(parse_module(path))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.fullmatch("REGROUP_[A-Z_]+", node.value)
    }
