"""Address of a page of the console that signs a browser in."""

from urllib.parse import quote

from regroup.api.schemas.sessions import SessionLink


def console_link(server_url: str, link: SessionLink, page: str = "") -> str:
    """Return the address that signs a browser in and shows a page, for example `jobs/ID/story`; empty: the overview."""
    following = page.removeprefix("/console").lstrip("/")
    return f"{server_url}{link.path}" + (f"&page={quote(following, safe='')}" if following else "")
