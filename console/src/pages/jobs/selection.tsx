/** The selected jobs, and what can be done with all of them. */

import { useState } from "preact/hooks";
import { isPossible, JobActionDialog, type JobVerb, MOST_JOBS_OF_ACTION } from "../../components/job-actions";
import { countText } from "../../text/numbers";
import type { Row } from "./rows";

const VERBS: readonly { verb: JobVerb; label: string }[] = [
  { verb: "suspend", label: "Suspend" },
  { verb: "resume", label: "Resume" },
  { verb: "cancel", label: "Cancel" },
];

export function SelectionBar(props: { jobs: readonly Row[]; onClear: () => void; onDone: (ids: string[]) => void }) {
  const { jobs, onClear, onDone } = props;
  const [verb, setVerb] = useState<JobVerb>();
  if (jobs.length === 0 && verb === undefined) return null;
  const isTooMany = jobs.length > MOST_JOBS_OF_ACTION;
  return (
    <section class="jobs-selection" aria-label="Selected jobs">
      <b role="status">{countText(jobs.length, "job")} selected</b>
      {VERBS.map((each) => (
        <button
          key={each.verb}
          type="button"
          disabled={isTooMany || !jobs.some((job) => isPossible(each.verb, job))}
          onClick={() => setVerb(each.verb)}
        >
          {each.label}
        </button>
      ))}
      <button type="button" class="link" onClick={onClear}>
        Clear
      </button>
      {isTooMany && <span class="quiet">Select at most {MOST_JOBS_OF_ACTION} jobs to change them.</span>}
      {verb !== undefined && (
        <JobActionDialog
          verb={verb}
          jobs={jobs}
          onClose={() => setVerb(undefined)}
          onDone={(outcomes) => onDone(outcomes.map((each) => each.job.id))}
        />
      )}
    </section>
  );
}
