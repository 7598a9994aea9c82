/** Causes of incidents, those with the largest loss first. */

import type { Schema } from "../../api/types";
import { ShareBar } from "../../components/share-bar";
import { ShortTable } from "../../components/short-table";
import { numberText } from "../../text/numbers";
import { durationText } from "../../text/time";

const MOST_SHARES = 8;

export function Causes({ report }: { report: Schema<"Reliability"> }) {
  const lossy = report.causes.filter((each) => each.lost_device_hours > 0).slice(0, MOST_SHARES);
  return (
    <section class="card" aria-labelledby="causes">
      <h2 id="causes">Causes and lost device-hours</h2>
      {lossy.length > 0 && (
        <ShareBar
          label="Lost device-hours by cause"
          shares={lossy.map((each, index) => ({
            label: wordsOf(each.reason),
            value: each.lost_device_hours,
            text: `${numberText(each.lost_device_hours, 3)} h`,
            series: index + 1,
          }))}
        />
      )}
      <ShortTable
        label="Causes of incidents"
        rows={report.causes}
        rowKey={(row) => row.reason}
        columns={[
          { id: "cause", label: "Cause", cell: (row) => wordsOf(row.reason) },
          { id: "kind", label: "Kind", cell: (row) => (row.is_planned ? "planned" : "failure") },
          { id: "count", label: "Incidents", isNumber: true, cell: (row) => numberText(row.incidents, 12) },
          { id: "mean", label: "Mean", isNumber: true, cell: (row) => durationText(row.recovery?.mean_s) },
          { id: "p95", label: "95 %", isNumber: true, cell: (row) => durationText(row.recovery?.p95_s) },
          { id: "steps", label: "Steps lost", isNumber: true, cell: (row) => numberText(row.steps_lost, 12) },
          { id: "hours", label: "Lost hours", isNumber: true, cell: (row) => numberText(row.lost_device_hours) },
        ]}
      />
    </section>
  );
}

/** Return a word of the API as words: `rank_exit` is `rank exit`. */
export function wordsOf(name: string): string {
  return name.replaceAll("_", " ");
}
