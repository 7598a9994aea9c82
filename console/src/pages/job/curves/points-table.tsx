/** The points of the curves as a table, and as a file. */

import { useState } from "preact/hooks";
import type { Schema } from "../../../api/types";
import { type Column, DataTable } from "../../../components/data-table";
import { saveText } from "../../../state/download";
import { metricOf } from "../../../text/metrics";
import { numberText } from "../../../text/numbers";
import { timeText } from "../../../text/time";
import { csvOf, type PointRow, rowsOf } from "./points";

export function PointsTable({ job, curves }: { job: Schema<"Job">; curves: readonly Schema<"Curve">[] }) {
  const [isOpen, setOpen] = useState(false);
  const columns: Column<PointRow>[] = [
    { id: "step", label: "Step", cell: (row) => numberText(row.step, 12), isNumber: true, width: 7 },
    { id: "time", label: "Time", cell: (row) => timeText(row.time_s), width: 12 },
    ...curves
      .filter((curve) => curve.committed.steps.length > 0)
      .map(({ metric }) => {
        const { label, format } = metricOf(metric);
        const cell = (row: PointRow) => {
          const value = row.values[metric];
          return value === undefined ? "–" : format(value);
        };
        return { id: metric, label, cell, isNumber: true };
      }),
  ];
  const save = () => saveText(`${job.name}-curves.csv`, "text/csv", csvOf(curves));
  return (
    <section class="curves-points">
      <div class="row">
        <button type="button" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
          {isOpen ? "Hide the table" : "Show the points as a table"}
        </button>
        <button type="button" onClick={save}>
          Download CSV
        </button>
      </div>
      {isOpen && (
        <div class="curves-table">
          <DataTable
            label="Points of the committed steps"
            columns={columns}
            rows={rowsOf(curves)}
            rowKey={(row) => String(row.step)}
          />
        </div>
      )}
    </section>
  );
}
