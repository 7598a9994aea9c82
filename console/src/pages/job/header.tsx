/** Name, state and progress of a job. */

import type { Schema } from "../../api/types";
import { JobStateBadge } from "../../components/badge";
import { PageHeader } from "../../components/page-header";
import { numberText } from "../../text/numbers";
import { agoText, durationText } from "../../text/time";

export function JobHeader({ job }: { job: Schema<"Job">; refresh: () => void }) {
  const subtitle = (
    <>
      <JobStateBadge state={job.state} /> {job.message} · {job.project} · {job.author || job.owner} · submitted{" "}
      {agoText(job.created_at)} · step {numberText(job.step, 12)}
      {job.steps !== null && ` of ${numberText(job.steps, 12)}`}
      {job.eta_s !== null && ` · ${durationText(job.eta_s)} left`}
    </>
  );
  return <PageHeader title={job.name} subtitle={subtitle} />;
}
