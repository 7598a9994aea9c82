"""Chromium of this machine, driven by Playwright, with names that resolve to this machine.

Playwright would download browsers of its own. It also drives the one of the distribution, which gets security updates.
"""

import contextlib
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser

_PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


def chromium_path() -> str | None:
    """Return the path of Chromium; None if this machine has none."""
    return next((path for name in _PROGRAMS if (path := shutil.which(name)) is not None), None)


@contextlib.contextmanager
def running_browser(names: str = "*.test") -> "Iterator[Browser]":
    """Start a browser without a window, and end it when the block ends.

    Args:
        names: pattern of host names that resolve to 127.0.0.1 in this browser.
    """
    from playwright.sync_api import sync_playwright  # slow to import, and all test sessions import this file

    rules = f"--host-resolver-rules=MAP {names} 127.0.0.1"
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium_path(), args=[rules])
        try:
            yield browser
        finally:
            browser.close()
