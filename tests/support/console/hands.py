"""Interactions of a person with a page, counted: clicks, fields that are filled, keys that are pressed."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from playwright.async_api import Locator, Page

    Role = Literal["button", "link", "tab", "checkbox", "row", "cell", "slider", "menuitem", "option", "radio", "img"]

MOST_INTERACTIONS = 3
"""Limit of an operator task after its page has opened."""


@dataclass
class Hands:
    """Hands of a person on a page. Every call is one interaction."""

    page: "Page"
    done: list[str] = field(default_factory=list[str])
    """Interactions in their order."""

    async def click(self, role: "Role", name: str, *, within: "Locator | None" = None) -> None:
        """Click the only element with this role and this accessible name."""
        self._count(f"click {role} {name!r}")
        await (within or self.page).get_by_role(role, name=name, exact=True).click()

    async def fill(self, label: str, text: str, *, within: "Locator | None" = None) -> None:
        """Replace the text of the field with this label. Filling one field is one interaction."""
        self._count(f"fill {label!r}")
        await (within or self.page).get_by_label(label, exact=True).fill(text)

    async def select(self, label: str, option: str, *, within: "Locator | None" = None) -> None:
        """Choose an option of the list with this label."""
        self._count(f"select {option!r} of {label!r}")
        await (within or self.page).get_by_label(label, exact=True).select_option(option)

    async def press(self, keys: str) -> None:
        """Press a key, or keys at the same time (`Control+Enter`)."""
        self._count(f"press {keys}")
        await self.page.keyboard.press(keys)

    def _count(self, text: str) -> None:
        self.done.append(text)
        assert len(self.done) <= MOST_INTERACTIONS, f"more than {MOST_INTERACTIONS} interactions: {self.done}"
