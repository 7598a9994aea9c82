"""The story of a job and of an incident as text."""

from itertools import groupby
from typing import Any

from regroup.api.cli.render.story import render_incident, render_story
from tests.support.inputs.eventful_job import HANG, KILL, run_eventful_job


async def test_the_story_is_a_bar_and_one_line_for_each_event(live: Any) -> None:
    job = await run_eventful_job(live)
    lines = render_story(await live.client(lambda client: client.story(job.id)), 63)
    bar, legend, *entries = lines
    assert len(bar) == 63 and "".join(sign for sign, _ in groupby(bar)) == "·▒█✖█↕█✖█"
    assert "✖ RECOVERING" in legend and legend.endswith("32 s in all")
    texts = [line.strip().split("  ", 1)[1] for line in entries]
    assert texts[0].startswith("QUEUED (submitted)") and texts[-1] == "SUCCEEDED (completed)"
    expected = "generation 1: dp_shard=4 from step 0, to step 20, of which 2 were repeated later"
    assert expected in texts
    assert "generation 2: dp_shard=4 from step 18, state from mirror, to step 40" in texts
    assert any(text.startswith("checkpoint of step 50, ") for text in texts)
    assert "step 18 is in the memory of other nodes, the last of 2 mirrors" in texts
    assert any(text.startswith("incident 2: Rank 1 was killed by signal 9, after step 60") for text in texts)
    assert any(text.startswith("resize requested to dp_shard=8: more nodes arrived (by ") for text in texts)


async def test_an_incident_shows_the_outlier_first(live: Any) -> None:
    job = await run_eventful_job(live)
    lines = render_incident(await live.client(lambda client: client.incident(job.id, HANG)))
    assert lines[1] == "cost: 21 s of devices (4 devices for 4.8 s, and 2 steps of 250 ms again)"
    assert lines[2].startswith("without snapshots in memory: 8 more steps, 2.0 s; ")
    ranks = [line for line in lines if line.startswith("  rank ")]
    assert ranks[0] == "  rank 3 on b: data of step 20  ← differs" and len(ranks) == 4
    stacks = [index for index, line in enumerate(lines) if line.startswith("  stack of rank ")]
    assert lines[stacks[0]] == "  stack of rank 3 (differs):" and lines[stacks[1]] == "  stack of rank 0, 1, 2:"
    assert 'File "/work/data.py", line 31 in read_batch' in lines[stacks[0] + 2]
    killed = render_incident(await live.client(lambda client: client.incident(job.id, KILL)))
    assert any(line.startswith("  missing: node a: ") for line in killed)
