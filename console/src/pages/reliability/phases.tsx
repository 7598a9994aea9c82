/** Time to recover, by phase: from the fault to the first step after it. */

import type { Schema } from "../../api/types";
import { ShareBar } from "../../components/share-bar";
import { ShortTable } from "../../components/short-table";
import { numberText } from "../../text/numbers";
import { durationText } from "../../text/time";

type Report = Schema<"Reliability">;

const NAMES: Record<string, string> = {
  detect: "Fault → seen",
  teardown: "Seen → old ranks dead",
  decide: "Dead → decided",
  form: "Decided → formed",
  restore: "Formed → state restored",
  first_step: "Restored → first step",
};

export function Phases({ report }: { report: Report }) {
  const { phases, recovery } = report;
  return (
    <section class="card" aria-labelledby="phases">
      <h2 id="phases">Time to recover, by phase</h2>
      {phases.length === 0 ? (
        <p class="quiet">No phase of a recovery is complete in this window.</p>
      ) : (
        <>
          <ShareBar
            label="Mean time of each phase of a recovery"
            shares={phases.map((each, index) => ({
              label: NAMES[each.phase] ?? each.phase,
              value: each.mean_s,
              text: durationText(each.mean_s),
              series: index + 1,
            }))}
          />
          <ShortTable
            label="Time of each phase of the recoveries"
            rows={phases}
            rowKey={(row) => row.phase}
            columns={[
              { id: "phase", label: "Phase", cell: (row) => NAMES[row.phase] ?? row.phase },
              { id: "count", label: "Times", isNumber: true, cell: (row) => numberText(row.count, 12) },
              { id: "mean", label: "Mean", isNumber: true, cell: (row) => durationText(row.mean_s) },
              { id: "median", label: "Median", isNumber: true, cell: (row) => durationText(row.median_s) },
              { id: "p95", label: "95 %", isNumber: true, cell: (row) => durationText(row.p95_s) },
              { id: "max", label: "Longest", isNumber: true, cell: (row) => durationText(row.max_s) },
            ]}
            {...(recovery
              ? {
                  footer: [
                    "Fault → first step",
                    numberText(recovery.count, 12),
                    durationText(recovery.mean_s),
                    durationText(recovery.median_s),
                    durationText(recovery.p95_s),
                    durationText(recovery.max_s),
                  ],
                }
              : {})}
          />
        </>
      )}
    </section>
  );
}
