/** The submission, with its effect before it happens. */

import { change, get } from "../../api/client";
import type { Schema } from "../../api/types";
import { type Action, ActionDialog } from "../../components/action-dialog";
import { href, navigate } from "../../state/router";
import { countText } from "../../text/numbers";
import { storeDraft } from "./draft";

interface Outcome {
  job: Schema<"Job">;
  /** Number of jobs that wait now. */
  waiting: number;
}

export function SubmitDialog({ text, name, onClose }: { text: string; name: string; onClose: () => void }) {
  const action: Action<Outcome> = {
    title: `Submit ${name}`,
    requests: [{ method: "post", path: "/v1/jobs", yamlFile: "spec.yaml" }],
    commands: ["regroup submit spec.yaml"],
    run: async (isDryRun) => {
      const job = await change("post", "/v1/jobs", { yaml: text, query: { dry_run: isDryRun } });
      const waiting = isDryRun ? ((await get("/v1/overview")).jobs.QUEUED ?? 0) : 0;
      return { job, waiting };
    },
    done: ({ job }) => `Submitted ${job.name}`,
  };
  return (
    <ActionDialog
      action={action}
      effect={(preview) => <Effect {...preview} />}
      onClose={onClose}
      onDone={({ job }) => {
        storeDraft(undefined);
        navigate(href(`jobs/${job.id}/why`));
      }}
    />
  );
}

function Effect({ job, waiting }: Outcome) {
  return (
    <>
      <p>
        Job <b>{job.name}</b> joins the queue of project <b>{job.project}</b>
        {job.resume_uri !== null && <> and continues from {job.resume_uri}</>}.
      </p>
      <p>
        {waiting === 0
          ? "No job waits now."
          : `${countText(waiting, "job waits", "jobs wait")} now; its place depends on priority and quotas.`}
      </p>
      <p class="quiet">The commands expect the text of the editor in the file spec.yaml.</p>
    </>
  );
}
