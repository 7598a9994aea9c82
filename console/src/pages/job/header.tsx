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
  const verb = chosen ?? asked;
  const close = () => {
    setChosen(undefined);
    setQuery({ action: undefined });
  };
  const subtitle = (
    <>
      <JobStateBadge state={job.state} /> {job.message} · {job.project} · {job.author || job.owner} · submitted{" "}
      {agoText(job.created_at)} · step {numberText(job.step, 12)}
      {job.steps !== null && ` of ${numberText(job.steps, 12)}`}
      {job.eta_s !== null && ` · ${durationText(job.eta_s)} left`}
      <Budget job={job} />
    </>
  );
  return (
    <PageHeader title={job.name} subtitle={subtitle}>
      <OtherSystems />
      <a class="button" href={href("submit", { from: job.id })}>
        Clone
      </a>
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
    </PageHeader>
  );
}

function Budget({ job }: { job: Schema<"Job"> }) {
  const budget = (job.intents.budget ?? job.spec?.budget) as
    | Partial<Record<"device_hours" | "cost", number>>
    | undefined;
  if (budget?.device_hours != null) return <> · budget {numberText(budget.device_hours)} device-hours</>;
  return budget?.cost != null ? <> · budget {numberText(budget.cost)} (cost)</> : null;
}

/** Links to the dashboards that the operator configured. */
function OtherSystems() {
  const links = useResource((signal) => get("/v1/overview", { signal }), []).data.value?.links;
  const shown = [
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
