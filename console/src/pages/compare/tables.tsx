/** Results of the compared jobs, and the fields in which their specs differ. */

import { JobStateBadge } from "../../components/badge";
import { href } from "../../state/router";
import { metricOf } from "../../text/metrics";
import { numberText } from "../../text/numbers";
import { durationText } from "../../text/time";
import { showJobs } from "./add-job";
import { fieldsOf, summaryOf } from "./curves";
import { LineSample } from "./line-sample";
import type { Comparison } from "./load";

export function ResultTable({ data, metric, percent }: { data: Comparison; metric: string; percent: number }) {
  const { label, format, isBetterHigh } = metricOf(metric);
  const ids = data.jobs.map(({ job }) => job.id);
  const text = (value: number | undefined) => (value === undefined ? "–" : format(value));
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: the table scrolls with the keyboard
    <section class="compare-table" tabIndex={0} aria-label="Results">
      <table>
        <thead>
          <tr>
            <th scope="col">Job</th>
            <th scope="col">State</th>
            <th scope="col" class="number">
              Step
            </th>
            <th scope="col" class="number">
              Last {label.toLowerCase()}
            </th>
            <th scope="col" class="number">
              Best, at step
            </th>
            <th scope="col" class="number">
              Run time
            </th>
            <th scope="col" class="number">
              Differs from step
            </th>
            <th scope="col">
              <span class="visually-hidden">Remove</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {data.jobs.map(({ job, points }, index) => {
            const found = summaryOf(points, isBetterHigh);
            const end = job.finished_at ?? Date.now() / 1000;
            return (
              <tr key={job.id}>
                <th scope="row">
                  <LineSample series={index + 1} /> <a href={href(`jobs/${job.id}/curves`)}>{job.name}</a>
                </th>
                <td>
                  <JobStateBadge state={job.state} />
                </td>
                <td class="number">{numberText(job.step, 12)}</td>
                <td class="number">{text(found.last)}</td>
                <td class="number">
                  {text(found.best)}
                  {found.bestStep !== undefined && `, ${numberText(found.bestStep, 12)}`}
                </td>
                <td class="number">{job.started_at === null ? "–" : durationText(end - job.started_at)}</td>
                <td class="number">
                  {index === 0 ? "reference" : differenceText(data.differences[index - 1], percent)}
                </td>
                <td>
                  <button
                    type="button"
                    class="plain"
                    aria-label={`Remove ${job.name}`}
                    onClick={() => showJobs(ids.filter((id) => id !== job.id))}
                  >
                    Remove
                  </button>
                </td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </section>
  );
}

export function SpecTable({ data }: { data: Comparison }) {
  const fields = fieldsOf(data.specs);
  if (data.jobs.length < 2) return <p class="quiet">Add another job to see the differences of the specs.</p>;
  if (fields.length === 0) return <p>The specs are equal.</p>;
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: the table scrolls with the keyboard
    <section class="compare-table" tabIndex={0} aria-label="Differences of the specs">
      <table>
        <thead>
          <tr>
            <th scope="col">Field of the spec</th>
            {data.jobs.map(({ job }) => (
              <th key={job.id} scope="col">
                {job.name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {fields.map(({ path, values }) => (
            <tr key={path}>
              <th scope="row">
                <code>{path}</code>
              </th>
              {values.map((value, index) => (
                <td key={data.jobs[index]?.job.id} class={value === values[0] ? "" : "compare-changed"}>
                  {valueText(value)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function differenceText(step: number | undefined, percent: number): string {
  return step === undefined ? `within ${numberText(percent)} %` : numberText(step, 12);
}

function valueText(value: unknown): string {
  if (value === null || value === undefined) return "–";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}
