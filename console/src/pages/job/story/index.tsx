/** Story of a job: one time axis for all that happened, the same as a table, and the evidence of its incidents. */

import { useEffect, useMemo, useState } from "preact/hooks";
import { get } from "../../../api/client";
import { CommandBlock } from "../../../components/command-block";
import { ResourceView } from "../../../components/resource-view";
import { useChanges } from "../../../state/changes";
import { useInterval } from "../../../state/interval";
import { useResource } from "../../../state/resource";
import { query, setQuery } from "../../../state/router";
import { commandText, curlText } from "../../../text/commands";
import { durationText, timeText } from "../../../text/time";
import { useJob } from "../job-context";
import { entriesOf, type Story } from "./entries";
import { EntryTable } from "./entry-table";
import { IncidentPanel } from "./incident-panel";
import { Legend } from "./legend";
import "./story.css";
import { Timeline } from "./timeline";
import { panned, readSpan, type Span, spanQuery, zoomed } from "./window";

/** Steps announce no change of the job: a running story is loaded again this often. */
const REFRESH_MS = 5_000;
const GROWTH_MS = 1_000;

export default function StoryTab() {
  const { job } = useJob();
  const story = useResource((signal) => get("/v1/jobs/{job}/story", { path: { job: job.id }, signal }), [job.id]);
  useChanges((change) => change.job === job.id, story.refresh);
  const isOver = story.data.value?.is_over ?? false;
  useInterval(story.refresh, isOver ? undefined : REFRESH_MS);
  return (
    <ResourceView resource={story} label="Loading the story">
      {(data) => <StoryView story={data} job={job.id} />}
    </ResourceView>
  );
}

function StoryView({ story, job }: { story: Story; job: string }) {
  const end = useEnd(story);
  const entries = useMemo(() => entriesOf(story, end), [story, end]);
  const whole = { from: 0, to: Math.max(end, 1) };
  const span = readSpan(query.value.get("from"), query.value.get("to"), whole);
  const selected = Number(query.value.get("incident")) || undefined;
  const generation = Number(query.value.get("generation")) || undefined;
  const incident = story.incidents.find((each) => each.number === selected);
  const show = (next: Span) => setQuery(spanQuery(next, whole));
  const select = (number: number | undefined) => setQuery({ incident: number === undefined ? "" : String(number) });
  const selectGeneration = (number: number) => setQuery({ generation: number === generation ? "" : String(number) });
  const isTable = query.value.get("view") === "table";
  const kind = query.value.get("kind") ?? "";
  return (
    <div class="story">
      <Toolbar story={story} span={span} whole={whole} onSpan={show} isTable={isTable} />
      {isTable ? (
        <EntryTable entries={entries} story={story} kind={kind} onIncident={select} />
      ) : (
        <>
          <Timeline
            story={story}
            entries={entries}
            whole={whole}
            span={span}
            onSpan={show}
            incident={selected}
            generation={generation}
            onIncident={(number) => select(number === selected ? undefined : number)}
            onGeneration={selectGeneration}
          />
          <Legend story={story} />
        </>
      )}
      {incident && (
        <IncidentPanel key={incident.number} job={job} incident={incident} onClose={() => select(undefined)} />
      )}
      {selected !== undefined && incident === undefined && (
        <p class="notice warning">This job has no incident {selected}.</p>
      )}
      <CommandBlock
        commands={[commandText("regroup", "story", job)]}
        curl={curlText({ method: "get", path: "/v1/jobs/{job}/story", values: { job } })}
      />
    </div>
  );
}

function Toolbar(props: { story: Story; span: Span; whole: Span; onSpan: (span: Span) => void; isTable: boolean }) {
  const { story, span, whole, onSpan } = props;
  const middle = (span.from + span.to) / 2;
  return (
    <div class="row story-tools">
      <div class="row">
        <button type="button" aria-label="Earlier" onClick={() => onSpan(panned(span, -0.5, whole))}>
          ←
        </button>
        <button type="button" aria-label="Later" onClick={() => onSpan(panned(span, 0.5, whole))}>
          →
        </button>
        <button type="button" aria-label="Zoom in" onClick={() => onSpan(zoomed(span, 2, middle, whole))}>
          +
        </button>
        <button type="button" aria-label="Zoom out" onClick={() => onSpan(zoomed(span, 0.5, middle, whole))}>
          −
        </button>
        <button type="button" onClick={() => onSpan(whole)}>
          Whole job
        </button>
        <button type="button" onClick={() => setQuery({ view: props.isTable ? "" : "table" })}>
          {props.isTable ? "As a drawing" : "As a table"}
        </button>
      </div>
      <span class="quiet">
        {timeText(story.from_s + span.from)} to {timeText(story.from_s + span.to)} · {durationText(span.to - span.from)}
        {story.is_over ? "" : " · it runs"}
      </span>
    </div>
  );
}

/** Return the end of the axis, seconds since the submission. That of a running job grows each second. */
function useEnd(story: Story): number {
  const [loaded, setLoaded] = useState({ story, at: Date.now() });
  const [, setNow] = useState(0);
  if (loaded.story !== story) setLoaded({ story, at: Date.now() });
  useEffect(() => {
    if (story.is_over) return;
    const timer = setInterval(() => setNow(Date.now()), GROWTH_MS);
    return () => clearInterval(timer);
  }, [story.is_over]);
  const grown = story.is_over ? 0 : Math.round((Date.now() - loaded.at) / GROWTH_MS);
  return story.until_s - story.from_s + grown;
}
