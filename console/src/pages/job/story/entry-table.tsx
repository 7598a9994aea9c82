/** The time axis as a table: everything that is drawn, in order. */

import { type Column, DataTable } from "../../../components/data-table";
import { EmptyState } from "../../../components/states";
import { setQuery } from "../../../state/router";
import { durationText, timeText } from "../../../text/time";
import type { Entry, Story } from "./entries";

export function EntryTable(props: {
  entries: readonly Entry[];
  story: Story;
  kind: string;
  onIncident: (number: number) => void;
}) {
  const { entries, story, kind } = props;
  const kinds = [...new Set(entries.map((each) => each.kind))].sort();
  const rows = entries.filter((each) => kind === "" || each.kind === kind);
  const columns: Column<Entry>[] = [
    { id: "after", label: "After", width: 7, isNumber: true, cell: (each) => durationText(each.from) },
    { id: "time", label: "Time", width: 12, cell: (each) => timeText(story.from_s + each.from) },
    {
      id: "lasted",
      label: "Lasted",
      width: 7,
      isNumber: true,
      cell: (each) => (each.to === undefined ? "" : durationText(each.to - each.from)),
    },
    { id: "kind", label: "Kind", width: 8, cell: (each) => each.kind },
    { id: "what", label: "What happened", cell: (each) => <What entry={each} onIncident={props.onIncident} /> },
  ];
  return (
    <div class="story-table">
      <label>
        Kind
        <select value={kind} onChange={(event) => setQuery({ kind: event.currentTarget.value })}>
          <option value="">all</option>
          {kinds.map((each) => (
            <option key={each}>{each}</option>
          ))}
        </select>
      </label>
      {rows.length === 0 ? (
        <EmptyState title="Nothing of this kind happened">
          <p>Choose another kind.</p>
        </EmptyState>
      ) : (
        <DataTable label="Story as a table" columns={columns} rows={rows} rowKey={(each) => each.id} />
      )}
    </div>
  );
}

function What({ entry, onIncident }: { entry: Entry; onIncident: (number: number) => void }) {
  const number = entry.incident;
  if (number === undefined) return <span title={entry.text}>{entry.text}</span>;
  return (
    <button type="button" class="link" title={entry.text} onClick={() => onIncident(number)}>
      {entry.text}
    </button>
  );
}
