/** Name, state and progress of a job, and what can be done with it. */

import { useState } from "preact/hooks";
import { get } from "../../api/client";
import type { Schema } from "../../api/types";
import { JobStateBadge } from "../../components/badge";
import { isPossible, JobActionDialog, type JobVerb } from "../../components/job-actions";
import { PageHeader } from "../../components/page-header";
import { useResource } from "../../state/resource";
import { href, query, setQuery } from "../../state/router";
import { numberText } from "../../text/numbers";
import { agoText, durationText } from "../../text/time";
import { budgetOf, budgetText, hasChangeableBudget } from "./budget";
import { BudgetDialog } from "./budget-dialog";

const BUTTONS: readonly { verb: JobVerb; label: string }[] = [
  { verb: "suspend", label: "Suspend" },
  { verb: "resume", label: "Resume" },
  { verb: "release", label: "Release nodes" },
  { verb: "cancel", label: "Cancel" },
];

export function JobHeader({ job, refresh }: { job: Schema<"Job">; refresh: () => void }) {
  // The address can open an action, so that other pages and messages link to it.
  const asked = BUTTONS.find((each) => each.verb === query.value.get("action"))?.verb;
  const [chosen, setChosen] = useState<JobVerb>();
  const [isBudgetOpen, setBudgetOpen] = useState(query.value.get("action") === "budget");
  const verb = chosen ?? asked;
  const budget = budgetOf(job);
  const close = () => {
    setChosen(undefined);
    setBudgetOpen(false);
    setQuery({ action: undefined });
  };
  const subtitle = (
    <>
      <JobStateBadge state={job.state} /> {job.message} · {job.project} · {job.author || job.owner} · submitted{" "}
      {agoText(job.created_at)} · step {numberText(job.step, 12)}
      {job.steps !== null && ` of ${numberText(job.steps, 12)}`}
      {job.eta_s !== null && ` · ${durationText(job.eta_s)} left`}
      {budget !== undefined && ` · budget ${budgetText(budget)}`}
    </>
  );
  return (
    <PageHeader title={job.name} subtitle={subtitle}>
      <OtherSystems job={job} />
      <a class="button" href={href("submit", { from: job.id })}>
        Clone
      </a>
      {hasChangeableBudget(job) && (
        <button type="button" onClick={() => setBudgetOpen(true)}>
          Budget
        </button>
      )}
      {BUTTONS.filter((each) => isPossible(each.verb, job)).map((each) => (
        <button
          key={each.verb}
          type="button"
          class={each.verb === "cancel" ? "danger" : ""}
          onClick={() => setChosen(each.verb)}
        >
          {each.label}
        </button>
      ))}
      {verb !== undefined && <JobActionDialog key={verb} verb={verb} jobs={[job]} onClose={close} onDone={refresh} />}
      {isBudgetOpen && hasChangeableBudget(job) && <BudgetDialog job={job} onClose={close} onDone={refresh} />}
    </PageHeader>
  );
}

/** Links to the job's runs in experiment trackers, and to the dashboards that the operator configured. */
function OtherSystems({ job }: { job: Schema<"Job"> }) {
  const links = useResource((signal) => get("/version", { signal }), []).data.value?.links;
  const shown = [
    ...(job.links ?? []),
    { name: "Grafana", url: links?.grafana },
    { name: "Ray dashboard", url: links?.ray_dashboard },
  ];
  return (
    <>
      {shown.map(
        ({ name, url }) =>
          url && (
            <a key={name} class="plain" href={url} target="_blank" rel="noreferrer">
              {name}
            </a>
          ),
      )}
    </>
  );
}
