"""Picture of `regroup watch` after an incident, drawn by the real screen from the recorded job that the tests use."""

import io
import sys

from rich.console import Console
from rich.terminal_theme import MONOKAI

from generators.source import ROOT
from regroup.api.live.screen import screen

_WIDTH = 118
_FORMAT = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
"""Format of rich's SVG without its fonts, which a browser would load from another host."""


def render() -> str:
    """Return the picture as SVG."""
    sys.path.insert(0, str(ROOT))
    from tests.support.inputs.job_story import Story

    story = Story()
    view = story.view([*story.until_the_kill, *story.the_return])
    for step in range(151, 183):
        view = story.after(view, story.step(step, generation=2))
    console = Console(record=True, width=_WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(screen(view, now_s=119.0, width=_WIDTH))
    title = "regroup watch pretrain-cpython"
    return console.export_svg(title=title, theme=MONOKAI, code_format=_FORMAT, unique_id="watch")
