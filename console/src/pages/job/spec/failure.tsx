/** Why a job failed, with the error of the training code. */

import type { Schema } from "../../../api/types";
import { href } from "../../../state/router";

export function Failure({ job }: { job: Schema<"Job"> }) {
  if (job.state !== "FAILED") return null;
  const error = job.error as { kind?: string; message?: string; traceback?: string } | null;
  return (
    <section class="notice error" aria-label="Why the job failed">
      <p>
        <b>
          Failed: {job.reason.replaceAll("_", " ")}
          {job.message && `, ${job.message}`}
        </b>
        {error?.kind && (
          <>
            {" "}
            <code>
              {error.kind}: {error.message}
            </code>
          </>
        )}
      </p>
      {error?.traceback && (
        <details>
          <summary>Traceback</summary>
          {/* biome-ignore lint/a11y/noNoninteractiveTabindex: long lines scroll with the keyboard */}
          <pre tabIndex={0}>{error.traceback}</pre>
        </details>
      )}
      <p>
        <a href={href(`jobs/${job.id}/why`)}>Remedies</a> · <a href={href(`jobs/${job.id}/logs`)}>Logs</a>
      </p>
    </section>
  );
}
