"""Links to pages of the console. Pure."""

import re
from urllib.parse import unquote

MAX_LENGTH = 1000
"""Largest number of characters of a page's address."""
_CHARACTERS = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=:@/?%-]*")


def is_page(page: str) -> bool:
    """Return True for the address of a page below `/console/`, for example `jobs/ID/story?generation=2`.

    An address that leads out of the console, or to another host, is none.
    """
    path = unquote(page.partition("?")[0])
    if len(page) > MAX_LENGTH or _CHARACTERS.fullmatch(page) is None or "\\" in path or "%" in path:
        return False
    parts = path.split("/")
    return path == "" or all(part not in ("", ".", "..") for part in (parts if parts[-1] else parts[:-1]))
