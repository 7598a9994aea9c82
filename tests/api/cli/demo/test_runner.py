"""The link to the story that the demo prints."""

from typing import Any
from urllib.parse import parse_qs, urlsplit

from regroup.api.cli.demo.runner import story_link


async def test_the_link_signs_a_browser_in_and_leads_to_the_story_once(live: Any) -> None:
    job = (await live.submit())["id"]
    link = await live.client(lambda client: story_link(client, job))
    assert link.startswith(f"{live.url}/sign-in?")
    assert parse_qs(urlsplit(link).query)["page"] == [f"jobs/{job}/story"]
    opened = await live.http.get(link)
    assert opened.status_code == 200 and f"/console/jobs/{job}/story" in opened.text
    assert (await live.http.get(link)).status_code == 403
