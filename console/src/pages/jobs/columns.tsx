/** The columns of the table of jobs. */

import { JobStateBadge } from "../../components/badge";
import type { Column } from "../../components/data-table";
import { Sparkline } from "../../components/sparkline";
import { href } from "../../state/router";
import { compactText, numberText, percentText } from "../../text/numbers";
import { agoText, durationText, timeText } from "../../text/time";
import type { RowCurves } from "./row-curves";
import type { Row } from "./rows";

/** Return the columns after the one that selects rows. */
export function jobColumns(curves: RowCurves): Column<Row>[] {
  return [
    { id: "state", label: "State", width: 8, cell: (job) => <JobStateBadge state={job.state} /> },
    { id: "name", label: "Name", cell: (job) => <NameCell job={job} /> },
    { id: "project", label: "Project", width: 5.2, isExtra: true, cell: (job) => job.project },
    { id: "progress", label: "Progress", width: 7.5, cell: (job) => <Progress job={job} /> },
    { id: "loss", label: "Loss", width: 4.8, isNumber: true, isExtra: true, cell: (job) => numberText(job.loss) },
    {
      id: "losses",
      label: "Loss trend",
      width: 6.7,
      isExtra: true,
      cell: (job) => <Trend {...{ curves, job }} metric="loss" />,
    },
    {
      id: "durations",
      label: "Step time",
      width: 6.7,
      isExtra: true,
      cell: (job) => <Trend {...{ curves, job }} metric="stepS" />,
    },
    {
      id: "speed",
      label: "Tokens/s",
      width: 5.6,
      isNumber: true,
      isExtra: true,
      cell: (job) => compactText(job.tokens_per_s),
    },
    {
      id: "goodput",
      label: "Goodput",
      width: 5.6,
      isNumber: true,
      isExtra: true,
      cell: (job) => percentText(job.goodput),
    },
    { id: "eta", label: "Left", width: 7.6, isNumber: true, isExtra: true, cell: (job) => durationText(job.eta_s) },
    { id: "age", label: "Age", width: 5.4, isNumber: true, isExtra: true, cell: (job) => <Age job={job} /> },
  ];
}

function NameCell({ job }: { job: Row }) {
  const labels = Object.entries(job.labels).map(([key, value]) => `${key}=${value}`);
  const note = job.message || labels.join(" ");
  return (
    <span title={[job.name, job.id, job.message, ...labels].filter((each) => each !== "").join("\n")}>
      <a href={href(`jobs/${job.id}`)}>{job.name}</a> <span class="quiet">{note}</span>
    </span>
  );
}

function Trend({ curves, job, metric }: { curves: RowCurves; job: Row; metric: "loss" | "stepS" }) {
  const values = curves.byJob.value.get(job.id)?.[metric] ?? [];
  if (metric === "loss") return <Sparkline label={`loss of ${job.name}`} values={values} />;
  return <Sparkline label={`step time of ${job.name}`} values={values} format={durationText} />;
}

function Progress({ job }: { job: Row }) {
  if (job.steps === null) return <span class="jobs-progress">{numberText(job.step, 12)}</span>;
  const fraction = job.steps === 0 ? 0 : Math.min(1, job.step / job.steps);
  return (
    <span class="jobs-progress" title={`step ${numberText(job.step, 12)} of ${numberText(job.steps, 12)}`}>
      <svg viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">
        <rect width="100" height="6" class="track" />
        <rect width={100 * fraction} height="6" class="done" />
      </svg>
      {compactText(job.step)} / {compactText(job.steps)}
    </span>
  );
}

function Age({ job }: { job: Row }) {
  return <span title={`submitted ${timeText(job.created_at)}`}>{agoText(job.created_at).replace(/ ago$/, "")}</span>;
}
