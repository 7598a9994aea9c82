/** Differences between the spec of this job and that of another one. */

import { useState } from "preact/hooks";
import { get } from "../../../api/client";
import type { Schema } from "../../../api/types";
import { ResourceView } from "../../../components/resource-view";
import { ScrollBox } from "../../../components/scroll-box";
import { useResource } from "../../../state/resource";
import { href, query, setQuery } from "../../../state/router";
import { countText } from "../../../text/numbers";
import { scalarText } from "../../../text/yaml";

const LISTED = 100;

export function Differences({ job }: { job: Schema<"Job"> }) {
  const other = query.value.get("with") ?? "";
  const [text, setText] = useState(other);
  const known = useResource(
    (signal) => get("/v1/jobs", { query: { project: job.project, page_size: LISTED }, signal }),
    [job.project],
  );
  const jobs = (known.data.value?.jobs ?? []).filter((each) => each.id !== job.id);
  return (
    <section class="card" aria-labelledby="spec-diff-title">
      <h2 id="spec-diff-title">Differences from another job</h2>
      <form
        class="row"
        onSubmit={(event) => {
          event.preventDefault();
          setQuery({ with: text.trim() || undefined });
        }}
      >
        <label class="spec-other">
          Other job
          <input
            list="spec-jobs"
            value={text}
            placeholder="name or id"
            onInput={(event) => setText(event.currentTarget.value)}
            onChange={(event) => setQuery({ with: event.currentTarget.value.trim() || undefined })}
          />
          <datalist id="spec-jobs">
            {jobs.map((each) => (
              <option key={each.id} value={each.id} label={`${each.name}, ${each.state}`} />
            ))}
          </datalist>
        </label>
        <button type="submit">Compare</button>
        {other && <a href={href("compare", { job: job.id, with: other })}>Compare the curves, too</a>}
      </form>
      {other && <Found key={other} job={job} other={other} />}
    </section>
  );
}

function Found({ job, other }: { job: Schema<"Job">; other: string }) {
  const found = useResource(
    (signal) =>
      get("/v1/jobs/{job}/diff", { path: { job: job.id }, query: { with: other, project: job.project }, signal }),
    [job.id, other],
  );
  return (
    <ResourceView resource={found} label="Comparing">
      {({ differences }) =>
        differences.length === 0 ? (
          <p class="notice">The specs are equal.</p>
        ) : (
          <ScrollBox label="Fields that differ">
            <p class="quiet">{countText(differences.length, "field")} differ</p>
            <table>
              <thead>
                <tr>
                  <th scope="col">Field</th>
                  <th scope="col">{job.name}</th>
                  <th scope="col">{other}</th>
                </tr>
              </thead>
              <tbody>
                {differences.map((each) => (
                  <tr key={each.path}>
                    <td>
                      <code>{each.path}</code>
                    </td>
                    <td>
                      <code>{scalarText(each.first ?? null)}</code>
                    </td>
                    <td>
                      <code>{scalarText(each.second ?? null)}</code>
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </ScrollBox>
        )
      }
    </ResourceView>
  );
}
