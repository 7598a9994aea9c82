/** The newest incidents, with links to the stories of their jobs. */

import type { Schema } from "../../api/types";
import { ShortTable } from "../../components/short-table";
import { href } from "../../state/router";
import { numberText } from "../../text/numbers";
import { durationText, timeText } from "../../text/time";
import { wordsOf } from "./causes";

type Interruption = Schema<"Interruption">;

export function NewestIncidents({ report }: { report: Schema<"Reliability"> }) {
  return (
    <section class="card" aria-labelledby="newest">
      <h2 id="newest">Newest incidents</h2>
      <ShortTable
        label="Newest incidents with their jobs"
        rows={report.newest}
        rowKey={(row) => `${row.job} ${row.number}`}
        columns={[
          { id: "time", label: "Time", cell: (row) => timeText(row.time_s) },
          { id: "job", label: "Job", cell: (row) => <StoryLink row={row} /> },
          { id: "project", label: "Project", cell: (row) => row.project },
          { id: "cause", label: "Cause", cell: (row) => wordsOf(row.reason) },
          { id: "text", label: "What happened", cell: (row) => row.cause },
          { id: "total", label: "Recovery", isNumber: true, cell: (row) => durationText(row.total_s) },
          { id: "steps", label: "Steps lost", isNumber: true, cell: (row) => numberText(row.steps_lost, 12) },
          { id: "hours", label: "Lost device-hours", isNumber: true, cell: (row) => numberText(row.lost_device_hours) },
        ]}
      />
    </section>
  );
}

function StoryLink({ row }: { row: Interruption }) {
  const address = href(`jobs/${row.job}/story`, { incident: String(row.number) });
  return (
    <a href={address}>
      {row.job_name} <span class="quiet">#{row.number}</span>
    </a>
  );
}
