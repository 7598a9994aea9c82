/** The history of a job as a live table, with kinds and a search. */

import { useRef, useState } from "preact/hooks";
import { get } from "../../../api/client";
import type { Schema } from "../../../api/types";
import { type Column, DataTable } from "../../../components/data-table";
import { ResourceView } from "../../../components/resource-view";
import { EmptyState } from "../../../components/states";
import { useChanges } from "../../../state/changes";
import { useResource } from "../../../state/resource";
import { query, setQuery } from "../../../state/router";
import { countText } from "../../../text/numbers";
import { timeText } from "../../../text/time";
import { eventText } from "./event-text";

type Event = Schema<"Event">;
const PAGE = 1000;
/** Most events that the page holds: the newest ones. */
const HELD = 20_000;

export function Events({ job }: { job: Schema<"Job"> }) {
  const [isFollowing, setFollowing] = useState(true);
  const known = useRef<readonly Event[]>([]);
  const events = useResource(
    async (signal) => {
      known.current = await readEvents(job.id, known.current, signal);
      return known.current;
    },
    [job.id],
  );
  useChanges((change) => isFollowing && change.job === job.id, events.refresh);
  return (
    <section class="card spec-events" aria-labelledby="spec-events-title">
      <ResourceView resource={events} label="Loading the events">
        {(found) => (
          <Table
            events={found}
            isFollowing={isFollowing}
            onFollow={() => {
              if (!isFollowing) events.refresh();
              setFollowing(!isFollowing);
            }}
          />
        )}
      </ResourceView>
    </section>
  );
}

function Table(props: { events: readonly Event[]; isFollowing: boolean; onFollow: () => void }) {
  const kind = query.value.get("kind") ?? "";
  const text = query.value.get("search") ?? "";
  const kinds = [...new Set(props.events.map((each) => each.type))].sort();
  const wanted = text.toLowerCase();
  const rows = props.events
    .filter((each) => kind === "" || each.type === kind)
    .map((each) => ({ ...each, about: eventText(each.type, each.data) }))
    .filter((each) => wanted === "" || `${each.about} ${each.actor} ${each.type}`.toLowerCase().includes(wanted))
    .reverse();
  const columns: Column<Event & { about: string }>[] = [
    { id: "number", label: "Number", isNumber: true, width: 5.5, cell: (row) => row.number },
    { id: "time", label: "Time", width: 12.5, cell: (row) => timeText(row.time_s) },
    { id: "kind", label: "Kind", width: 9, cell: (row) => row.type.replaceAll("_", " ") },
    {
      id: "generation",
      label: "Generation",
      isNumber: true,
      width: 7.5,
      cell: (row) => (row.generation === 0 ? "–" : row.generation),
    },
    { id: "actor", label: "By", width: 9, cell: (row) => row.actor },
    { id: "about", label: "What happened", cell: (row) => <span title={row.about}>{row.about}</span> },
  ];
  return (
    <>
      <header class="row spec-events-header">
        <h2 id="spec-events-title">Events</h2>
        <span class="quiet">
          {rows.length === props.events.length
            ? countText(rows.length, "event")
            : `${rows.length} of ${countText(props.events.length, "event")}`}
        </span>
        <span class="row spec-filters">
          <label>
            Kind
            <select value={kind} onChange={(event) => setQuery({ kind: event.currentTarget.value })}>
              <option value="">all kinds</option>
              {kinds.map((each) => (
                <option key={each} value={each}>
                  {each.replaceAll("_", " ")}
                </option>
              ))}
            </select>
          </label>
          <label>
            Search
            <input
              type="search"
              data-filter
              value={text}
              onInput={(event) => setQuery({ search: event.currentTarget.value })}
            />
          </label>
          <label class="check">
            <input type="checkbox" checked={props.isFollowing} onChange={props.onFollow} />
            Follow
          </label>
        </span>
      </header>
      {rows.length === 0 ? (
        <EmptyState title="No events match">
          <p>
            <button type="button" onClick={() => setQuery({ kind: undefined, search: undefined })}>
              Show all events
            </button>
          </p>
        </EmptyState>
      ) : (
        <div class="spec-table" style={{ height: `${Math.min(14, rows.length + 1) * 34 + 24}px` }}>
          <DataTable label="Events" columns={columns} rows={rows} rowKey={(row) => String(row.number)} />
        </div>
      )}
    </>
  );
}

/** Return the events that are known, and those after them. */
async function readEvents(job: string, known: readonly Event[], signal: AbortSignal): Promise<readonly Event[]> {
  let found = known[0] === undefined || known[0].job_id === job ? known : [];
  for (;;) {
    const after = found.at(-1)?.number ?? 0;
    const { events } = await get("/v1/jobs/{job}/events", { path: { job }, query: { after, limit: PAGE }, signal });
    if (events.length > 0) found = [...found, ...events].slice(-HELD);
    if (events.length < PAGE) return found;
  }
}
