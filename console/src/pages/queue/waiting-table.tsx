/** Waiting jobs in scheduling order, with their predicted starts on one time axis. */

import type { Schema } from "../../api/types";
import { type Column, DataTable } from "../../components/data-table";
import { href } from "../../state/router";
import { agoText, durationText, timeText } from "../../text/time";

type Job = Schema<"QueuedJob">;

export function WaitingTable(props: { jobs: readonly Job[]; total: number; onNearEnd?: (() => void) | undefined }) {
  const now_s = Date.now() / 1000;
  const starts = props.jobs.flatMap((job) => (job.estimated_start_s === null ? [] : [job.estimated_start_s]));
  const end_s = Math.max(now_s + 60, ...starts);
  const columns: readonly Column<Job>[] = [
    {
      id: "place",
      label: "Place",
      isNumber: true,
      width: 4,
      cell: (job) => (job.position === null ? "–" : job.position + 1),
    },
    { id: "job", label: "Job", width: 12, cell: (job) => <a href={href(`jobs/${job.id}/why`)}>{job.name}</a> },
    { id: "project", label: "Project", width: 8, cell: (job) => job.project },
    { id: "priority", label: "Priority", width: 6, cell: (job) => job.priority },
    { id: "ranks", label: "Devices", isNumber: true, width: 5.5, cell: (job) => job.ranks ?? "–" },
    { id: "waits", label: "Waits", isNumber: true, width: 7, cell: (job) => durationText(now_s - job.queued_at_s) },
    {
      id: "start",
      label: "Predicted start",
      width: 17,
      cell: (job) => <Start at_s={job.estimated_start_s} now_s={now_s} end_s={end_s} />,
    },
    {
      id: "why",
      label: "Waits because",
      cell: (job) => <span title={job.message}>{job.message || "not evaluated yet"}</span>,
    },
  ];
  return (
    <DataTable
      label="Waiting jobs in scheduling order"
      columns={columns}
      rows={props.jobs}
      rowKey={(job) => job.id}
      total={props.total}
      {...(props.onNearEnd && { onNearEnd: props.onNearEnd })}
    />
  );
}

function Start({ at_s, now_s, end_s }: { at_s: number | null; now_s: number; end_s: number }) {
  if (at_s === null) return <span class="quiet">not predicted</span>;
  const x = Math.max(1, Math.min(99, (100 * (at_s - now_s)) / (end_s - now_s)));
  return (
    <span class="queue-start">
      <svg viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">
        <line class="queue-axis" x2="100" y1="5" y2="5" />
        <rect class="fill-1" x={x - 1} y="1" width="2" height="8" />
      </svg>
      <span title={timeText(at_s)}>{agoText(at_s, now_s)}</span>
    </span>
  );
}
