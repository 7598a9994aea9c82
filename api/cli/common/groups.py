"""The help of the command line: all commands in groups, each with its whole first sentence."""

from typing import Any

import typer
from typer.core import TyperGroup

_OTHERS = "Commands"


class GroupedCommands(TyperGroup):
    """A group whose help lists commands under the headings of their `rich_help_panel`, and cuts no text."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write one section for each heading. Longer texts continue on the next line."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command: Any = self.get_command(ctx, name)
            if command is None or command.hidden:
                continue
            heading = getattr(command, "rich_help_panel", None)
            row = (name, first_sentence(str(command.help or command.short_help or "")))
            sections.setdefault(heading if isinstance(heading, str) else _OTHERS, []).append(row)
        for heading, rows in sections.items():
            with formatter.section(heading):
                formatter.write_dl(rows)


def first_sentence(text: str) -> str:
    """Return the first sentence of a command's help, on one line."""
    words = " ".join(text.split("\n\n")[0].split())
    end = words.find(". ")
    return words if end < 0 else words[: end + 1]


def show_help(context: typer.Context) -> None:
    """Show this help."""
    root: Any = context.find_root()
    print(root.get_help())


def show_version() -> None:
    """Print the version."""
    from regroup import __version__

    print(f"regroup {__version__}")
