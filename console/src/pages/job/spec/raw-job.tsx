/** The job as the API answers it. */

import { useState } from "preact/hooks";
import type { Schema } from "../../../api/types";
import { commandText } from "../../../text/commands";

export function RawJob({ job }: { job: Schema<"Job"> }) {
  const [isOpen, setOpen] = useState(false);
  const [isCopied, setCopied] = useState(false);
  const text = isOpen ? JSON.stringify(job, null, 2) : "";
  const copy = () => navigator.clipboard.writeText(text).then(() => setCopied(true));
  return (
    <details class="card" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        <h2>The job as JSON</h2>
      </summary>
      {isOpen && (
        <>
          <p class="row">
            <code>{commandText("regroup", "get", job.id, "--json")}</code>
            <button type="button" onClick={() => void copy()}>
              {isCopied ? "Copied" : "Copy the JSON"}
            </button>
          </p>
          {/* biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls with the keyboard */}
          <section class="spec-json" tabIndex={0} aria-label="The job as JSON">
            <pre>{text}</pre>
          </section>
        </>
      )}
    </details>
  );
}
