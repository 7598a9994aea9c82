"""The addresses of all pages of the console, on a server with something to show on each of them."""

import re
from pathlib import Path
from typing import Any

from tests.support.console.shown_jobs import add_node, failed_job, job_with_ranks, talking_job, waiting_job
from tests.support.console.trained_job import trained_job
from tests.support.inputs.eventful_job import HANG, run_eventful_job

_PAGES = Path(__file__).parents[3] / "console" / "src" / "pages"


async def fill_server(live: Any) -> list[str]:
    """Prepare jobs, nodes, people and settings; return the address of each page, tabs included."""
    add_node(live, "node-9")
    http = live.http
    for subject in ("kim@example.com", "an-identity-with-a-long-name@research.example.com"):
        await http.post("/v1/identities", json={"subject": subject, "kind": "user"})
        await http.put(f"/v1/projects/default/members/{subject}", json={"role": "editor", "permissions": ["exec"]})
    await http.post("/v1/tokens", json={"name": "notebook", "subject": "kim@example.com", "role": "viewer"})
    await http.post("/v1/projects/default/hooks", json={"name": "alerts", "url": "https://hooks.example.com/a?key=s"})
    await http.put("/v1/projects/default/secrets/HF_TOKEN", json={"value": "hf_secret"})
    for project in ("default", "vision-and-language-pretraining"):
        await http.put(f"/v1/projects/{project}", json={"guaranteed": 4, "limit": 16})
    eventful, trained = await run_eventful_job(live), await trained_job(live)
    waits = await waiting_job(live, "a-job-with-a-long-name-that-waits-for-devices")
    failed, ranks, talks = await failed_job(live), await job_with_ranks(live), await talking_job(live)
    return [
        "", "jobs", "submit", f"compare?job={eventful.id}&job={trained['id']}", "cluster", "cluster?select=node:node-9",
        "queue", "what-if", "reliability", "usage", "admin", "no-such-page",
        *(f"admin/{tab}" for tab in tabs_of("admin")),
        f"jobs/{eventful.id}/story?incident={HANG}", f"jobs/{eventful.id}/story?view=table",
        f"jobs/{trained['id']}/curves", f"jobs/{waits}/why", f"jobs/{failed}/why",
        f"jobs/{ranks}/ranks?ranks=3&view=stacks", f"jobs/{ranks}/ranks?view=terminal", f"jobs/{talks}/logs?rank=2",
        f"jobs/{trained['id']}/layout", f"jobs/{trained['id']}/data", f"jobs/{trained['id']}/spec",
        f"jobs/{eventful.id}",
    ]  # fmt: skip


def tabs_of(page: str) -> list[str]:
    """Return the ids of the tabs of a page."""
    return re.findall(r'id: "(\w+)"', (_PAGES / page / "tabs.ts").read_text())


def patterns() -> list[str]:
    """Return the addresses of all pages, as `console/src/pages/index.ts` lists them: `:name` stands for one part."""
    return re.findall(r'pattern: "([^"*]*)"', (_PAGES / "index.ts").read_text())


def missing_pages(addresses: list[str]) -> list[str]:
    """Return the pages and tabs of jobs that are not among the addresses."""
    paths = [address.split("?")[0] for address in addresses]
    expected = [
        *patterns(),
        *(f"jobs/:job/{tab}" for tab in tabs_of("job")),
        *(f"admin/{tab}" for tab in tabs_of("admin")),
    ]
    found = [re.compile(re.sub(r":\w+", "[^/]+", pattern)) for pattern in expected]
    return [each.pattern for each in found if not any(each.fullmatch(path) for path in paths)]


def as_text(faults: dict[str, list[str]]) -> str:
    """Return the faults of pages with one line for each."""
    return "\n".join(f"{address or 'overview'}: {fault}" for address, found in faults.items() for fault in found)
