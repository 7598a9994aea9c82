/** The exception that ended a job, with ways to its output and evidence. */

import type { Schema } from "../../../api/types";
import { href } from "../../../state/router";

interface Failure {
  kind?: string;
  message?: string;
  traceback?: string;
  rank?: number;
  step?: number;
  phase?: string;
}

export function FailureCard({ why }: { why: Schema<"Why"> }) {
  const error = why.error as Failure | null;
  if (error === null) return null;
  const last = why.incidents.at(-1);
  const place = [
    error.rank === undefined ? "" : `rank ${error.rank}`,
    error.step === undefined ? "" : `step ${error.step}`,
    error.phase ?? "",
  ].filter((each) => each !== "");
  const log = { rank: String(error.rank ?? 0), stream: "stderr" };
  return (
    <section class="card" aria-labelledby="why-error">
      <h2 id="why-error">{error.kind || "Error"}</h2>
      <p>
        {error.message}
        {place.length > 0 && <span class="quiet"> ({place.join(", ")})</span>}
      </p>
      {error.traceback && (
        <section aria-label="Traceback">
          {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a long traceback scrolls with the keyboard */}
          <pre class="why-traceback" tabIndex={0}>
            {error.traceback}
          </pre>
        </section>
      )}
      <p class="row">
        <a href={href(`jobs/${why.id}/logs`, log)}>Log of rank {error.rank ?? 0}</a>
        {last && <a href={href(`jobs/${why.id}/story`, { incident: String(last.number) })}>Evidence of the incident</a>}
      </p>
    </section>
  );
}
