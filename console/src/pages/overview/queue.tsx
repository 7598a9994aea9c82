/** Why jobs wait, and how many jobs have which state. */

import type { Schema } from "../../api/types";
import { href } from "../../state/router";
import { countText } from "../../text/numbers";

/** Reasons as people read them; others are shown as they are. */
const REASONS: Record<string, string> = {
  submitted: "not examined yet",
  resources: "devices are in use",
  priority: "a job ahead has priority",
  no_nodes: "no node takes ranks",
  too_large: "larger than the cluster",
  nodes_closed: "nodes are closed",
  project_limit: "limit of the project",
  project_quota: "quota of the project",
  dependency: "another job must succeed first",
  preemption: "others make room",
  job_budget: "budget of the job",
  project_budget: "budget of the project",
  requeued: "queued again",
};

export function QueueCard({ overview }: { overview: Schema<"Overview"> }) {
  const waiting = overview.jobs.QUEUED ?? 0;
  const ended = Object.entries(overview.ended);
  return (
    <section class="card">
      <h2>
        <a href={href("queue")}>Queue</a>
      </h2>
      {waiting === 0 ? (
        <p class="quiet">No job waits.</p>
      ) : (
        <table class="overview-queue">
          <caption class="visually-hidden">Queued jobs by the reason why they wait</caption>
          <tbody>
            {overview.queue.map((each) => (
              <tr key={each.reason}>
                <td class="number">
                  <b>{each.jobs}</b>
                </td>
                <td title={each.message}>{REASONS[each.reason] ?? each.reason.replaceAll("_", " ")}</td>
                <td>
                  <a href={href(`jobs/${each.job}/why`)}>{each.job_name}</a>
                  {each.jobs > 1 && <span class="quiet"> and others</span>}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      <p class="quiet">
        In the last 24 hours,{" "}
        {ended.length === 0
          ? "no job ended."
          : ended.map(([state, count], index) => (
              <span key={state}>
                {index > 0 && ", "}
                <a href={href("jobs", { q: `state:${state}` })}>
                  {countText(count, "job")} {state === "CANCELLED" ? "were" : ""} {state.toLowerCase()}
                </a>
              </span>
            ))}
      </p>
    </section>
  );
}
