/** The result of a simulation: one sentence, waits of projects, and the starts of jobs on one axis. */

import type { Schema } from "../../api/types";
import { type Column, DataTable } from "../../components/data-table";
import { EmptyState } from "../../components/states";
import { href, setQuery } from "../../state/router";
import { countText, percentText } from "../../text/numbers";
import { durationText } from "../../text/time";
import { toggled } from "./scenario";

type Job = Schema<"JobForecast">;
type WhatIf = Schema<"WhatIf">;

const BASIS: Record<Job["basis"], string> = {
  progress: "its remaining steps",
  max_duration: "its max_duration",
  assumed: "assumed",
  given: "as you set it",
};

export function Result(props: { result: WhatIf; isBusy: boolean; cancelled: string; assumed: string }) {
  const { result } = props;
  const jobs = result.jobs.filter((job) => !job.is_running || job.is_cancelled || job.start_after_s !== null);
  const assumed = result.jobs.filter((job) => job.basis === "assumed").length;
  return (
    <>
      <p class="what-if-summary" role="status" aria-busy={props.isBusy}>
        {result.summary}
      </p>
      <p class="quiet what-if-basis">
        {countText(result.jobs.length, "job")} simulated for {durationText(result.horizon_s)}
        {result.hidden_jobs > 0 && `, and ${countText(result.hidden_jobs, "job")} of other projects`}. Devices in use:{" "}
        {percentText(result.utilisation_before)} of the time, with the change {percentText(result.utilisation_after)}.
        The simulator assumes that no node fails and that no other job is submitted.
        {assumed > 0 &&
          ` The remaining time of ${countText(assumed, "job")} is not known: ${props.assumed} is assumed.`}
      </p>
      <Projects result={result} />
      {jobs.length === 0 ? (
        <EmptyState title="No job waits">
          <p>Add a job above to see when it would start.</p>
        </EmptyState>
      ) : (
        <JobTable jobs={jobs} result={result} cancelled={props.cancelled} />
      )}
    </>
  );
}

function Projects({ result }: { result: WhatIf }) {
  const projects = Object.entries(result.projects);
  if (projects.length === 0) return null;
  return (
    <section class="card what-if-scroll" aria-label="Waits of projects">
      <table>
        <caption class="visually-hidden">Waits from now, by project</caption>
        <thead>
          <tr>
            <th scope="col">Project</th>
            <th scope="col" class="number">
              Waiting jobs
            </th>
            <th scope="col" class="number">
              Median wait now
            </th>
            <th scope="col" class="number">
              With the change
            </th>
            <th scope="col" class="number">
              Earlier
            </th>
            <th scope="col" class="number">
              Later
            </th>
            <th scope="col" class="number">
              No start
            </th>
          </tr>
        </thead>
        <tbody>
          {projects.map(([name, waits]) => (
            <tr key={name}>
              <th scope="row">{name}</th>
              <td class="number">{waits.jobs}</td>
              <td class="number">{durationText(Math.round(waits.median_before_s))}</td>
              <td class="number">{durationText(Math.round(waits.median_after_s))}</td>
              <td class="number">{waits.earlier}</td>
              <td class="number">{waits.later}</td>
              <td class="number">{waits.never_after}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function JobTable({ jobs, result, cancelled }: { jobs: readonly Job[]; result: WhatIf; cancelled: string }) {
  const starts = jobs.flatMap((job) => [job.start_before_s, job.start_after_s]).filter((at_s) => at_s !== null);
  const end_s = Math.max(result.now_s + 60, ...starts);
  const columns: readonly Column<Job>[] = [
    {
      id: "job",
      label: "Job",
      width: 11,
      cell: (job) => (job.is_added ? <span>{job.name} (added)</span> : <a href={href(`jobs/${job.id}`)}>{job.name}</a>),
    },
    { id: "project", label: "Project", width: 7, cell: (job) => job.project },
    { id: "ranks", label: "Devices", isNumber: true, width: 5.5, cell: (job) => job.ranks },
    {
      id: "before",
      label: "Starts now in",
      isNumber: true,
      width: 9,
      cell: (job) => startText(job.start_before_s, job, result),
    },
    { id: "after", label: "With the change", isNumber: true, width: 10, cell: (job) => afterText(job, result) },
    {
      id: "axis",
      label: "○ now, ● with the change",
      width: 16,
      cell: (job) => <Axis job={job} begin_s={result.now_s} end_s={end_s} />,
    },
    { id: "basis", label: "Remaining time from", width: 12.5, cell: (job) => BASIS[job.basis] },
    {
      id: "cancel",
      label: "",
      cell: (job) =>
        !job.is_added && (
          <button
            type="button"
            class="link"
            aria-label={`${job.is_cancelled ? "keep" : "cancel"} ${job.name} in the scenario`}
            onClick={() => setQuery({ cancel: toggled(cancelled, job.id) })}
          >
            {job.is_cancelled ? "keep" : "cancel"}
          </button>
        ),
    },
  ];
  return (
    <div class="what-if-jobs">
      <DataTable label="Starts of jobs" columns={columns} rows={jobs} rowKey={(job) => job.id} />
    </div>
  );
}

function Axis({ job, begin_s, end_s }: { job: Job; begin_s: number; end_s: number }) {
  const x = (at_s: number) => 3 + (154 * (at_s - begin_s)) / (end_s - begin_s);
  const before = job.start_before_s;
  const after = job.start_after_s;
  return (
    <svg class="what-if-axis" viewBox="0 0 160 12" aria-hidden="true">
      <line x1="3" x2="157" y1="6" y2="6" class="what-if-line" />
      {before !== null && after !== null && <line x1={x(before)} x2={x(after)} y1="6" y2="6" class="what-if-shift" />}
      {before !== null && <circle cx={x(before)} cy="6" r="3.5" class="what-if-before" />}
      {after !== null && <circle cx={x(after)} cy="6" r="3" class="what-if-after" />}
    </svg>
  );
}

function startText(at_s: number | null, job: Job, result: WhatIf): string {
  if (job.is_added && at_s === null) return "–";
  if (job.is_running && at_s === null) return "runs";
  return at_s === null ? `over ${durationText(result.horizon_s)}` : durationText(Math.round(at_s - result.now_s));
}

function afterText(job: Job, result: WhatIf): string {
  if (job.is_cancelled) return "cancelled";
  const text = job.start_after_s === null ? `over ${durationText(result.horizon_s)}` : undefined;
  return text ?? durationText(Math.round((job.start_after_s ?? 0) - result.now_s));
}
