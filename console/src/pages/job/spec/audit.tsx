/** Who changed this job, if the reader may see it. */

import { useState } from "preact/hooks";
import { get } from "../../../api/client";
import type { Schema } from "../../../api/types";
import { ResourceView } from "../../../components/resource-view";
import { ScrollBox } from "../../../components/scroll-box";
import { useResource } from "../../../state/resource";
import { href } from "../../../state/router";
import { timeText } from "../../../text/time";
import { scalarText } from "../../../text/yaml";

const SHOWN = 100;

export function Audit({ job }: { job: Schema<"Job"> }) {
  const [isOpen, setOpen] = useState(false);
  return (
    <details class="card spec-audit" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        <h2>Requests that changed it</h2>
      </summary>
      {isOpen && <Records job={job} />}
    </details>
  );
}

function Records({ job }: { job: Schema<"Job"> }) {
  const found = useResource(
    (signal) => get("/v1/audit", { query: { object: job.id, page_size: SHOWN }, signal }),
    [job.id, job.version],
  );
  if (found.data.value === undefined && found.problem.value?.status === 403) {
    return <p class="quiet">Only admins of the project {job.project} see who changed its jobs. Ask one of them.</p>;
  }
  return (
    <ResourceView resource={found} label="Loading the records">
      {({ records }) =>
        records.length === 0 ? (
          <p class="quiet">No request has changed this job.</p>
        ) : (
          <ScrollBox label="Requests that changed the job">
            <table>
              <thead>
                <tr>
                  <th scope="col">Time</th>
                  <th scope="col">By</th>
                  <th scope="col">Action</th>
                  <th scope="col">Changes</th>
                  <th scope="col">From</th>
                </tr>
              </thead>
              <tbody>
                {records.map((each) => (
                  <tr key={each.id}>
                    <td>{timeText(each.time_s)}</td>
                    <td>{each.actor}</td>
                    <td>{each.action}</td>
                    <td>{changesText(each)}</td>
                    <td>{each.address}</td>
                  </tr>
                ))}
              </tbody>
            </table>
            {records.length === SHOWN && <a href={href("admin/audit", { object: job.id })}>All records</a>}
          </ScrollBox>
        )
      }
    </ResourceView>
  );
}

/** Return the fields that a request changed, with their new values. */
export function changesText(record: Schema<"AuditRecord">): string {
  const before = (record.before ?? {}) as Record<string, unknown>;
  const after = (record.after ?? {}) as Record<string, unknown>;
  const names = Object.keys(after).filter((name) => JSON.stringify(before[name]) !== JSON.stringify(after[name]));
  const shown = names.slice(0, 4).map((name) => `${name}: ${shortText(after[name])}`);
  return shown.join(", ") + (names.length > 4 ? `, and ${names.length - 4} more` : "");
}

function shortText(value: unknown): string {
  const text = scalarText(value);
  return text.length > 60 ? `${text.slice(0, 59)}…` : text;
}
