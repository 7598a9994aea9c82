/** What the evidence of an incident shows: the outlier, stacks side by side, each rank, files. */

import { get } from "../../../api/client";
import type { Schema } from "../../../api/types";
import { Badge } from "../../../components/badge";
import { ResourceView } from "../../../components/resource-view";
import { useResource } from "../../../state/resource";
import { query, setQuery } from "../../../state/router";
import { bytesText } from "../../../text/numbers";
import { durationText } from "../../../text/time";

type Findings = Schema<"Findings">;
const SHOWN_RANKS = 64;

export function FindingsView({ job, number, findings }: { job: string; number: number; findings: Findings }) {
  const missing = Object.entries(findings.missing);
  return (
    <>
      {findings.verdict && (
        <p class="notice warning">
          <b>Finding.</b> {findings.verdict}
        </p>
      )}
      {findings.stacks.length > 0 && <Stacks groups={findings.stacks} />}
      {findings.ranks.length > 0 && <Ranks ranks={findings.ranks} />}
      {findings.stacks.length === 0 && (
        <p class="quiet">
          There are no stacks: the recovery did not wait to inspect the ranks. The files below have all that was kept.
        </p>
      )}
      {missing.length > 0 && (
        <ul class="quiet">
          {missing.slice(0, 8).map(([node, why]) => (
            <li key={node}>
              Node {node}: {why}
            </li>
          ))}
          {missing.length > 8 && <li>{missing.length - 8} more nodes</li>}
        </ul>
      )}
      <Files job={job} number={number} files={findings.files} />
    </>
  );
}

function Stacks({ groups }: { groups: Findings["stacks"] }) {
  return (
    <div>
      <h3>Stacks, ranks in the same place together</h3>
      <div class="story-stacks">
        {groups.map((group) => (
          <figure key={group.ranks.join()} class={group.is_outlier ? "outlier" : ""}>
            <figcaption>
              <b>{rankText(group.ranks)}</b>
              {group.is_outlier && <Badge tone="bad">Differs</Badge>}
              <span class="quiet">{group.place || "did not answer"}</span>
            </figcaption>
            {/* biome-ignore lint/a11y/noNoninteractiveTabindex: long stacks scroll with the keyboard */}
            <pre tabIndex={0}>{group.text}</pre>
          </figure>
        ))}
      </div>
    </div>
  );
}

function Ranks({ ranks }: { ranks: Findings["ranks"] }) {
  return (
    <details open={ranks.length <= 8}>
      <summary>Ranks at that moment ({ranks.length})</summary>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a wide table scrolls with the keyboard */}
      <div class="story-scroll" tabIndex={0}>
        <table>
          <thead>
            <tr>
              <th scope="col">Rank</th>
              <th scope="col">Node</th>
              <th scope="col">Phase</th>
              <th scope="col" class="number">
                No progress
              </th>
              <th scope="col">End</th>
              <th scope="col">Last collective</th>
            </tr>
          </thead>
          <tbody>
            {ranks.slice(0, SHOWN_RANKS).map((each) => (
              <tr key={each.rank} aria-current={each.is_outlier ? "true" : undefined}>
                <td>
                  {each.rank} {each.is_outlier && <Badge tone="bad">Differs</Badge>}
                </td>
                <td>{each.node}</td>
                <td>
                  {each.phase} of step {each.step}
                </td>
                <td class="number">{durationText(each.stalled_s)}</td>
                <td>{each.end || "ended by the recovery"}</td>
                <td>{each.last_collective || "–"}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </details>
  );
}

function Files({ job, number, files }: { job: string; number: number; files: Findings["files"] }) {
  const selected = query.value.get("file") ?? "";
  const names = Object.keys(files);
  return (
    <div>
      <label>
        Read a file of the evidence
        <select value={selected} onChange={(event) => setQuery({ file: event.currentTarget.value })}>
          <option value="">choose a file</option>
          {names.map((name) => (
            <option key={name} value={name}>
              {`${name} (${bytesText(files[name])})`}
            </option>
          ))}
        </select>
      </label>
      {names.includes(selected) && <FileText job={job} number={number} name={selected} />}
    </div>
  );
}

function FileText({ job, number, name }: { job: string; number: number; name: string }) {
  const part = useResource(
    (signal) =>
      get("/v1/jobs/{job}/incidents/{number}/file", { path: { job, number }, query: { name, limit: 262_144 }, signal }),
    [job, number, name],
  );
  return (
    <ResourceView resource={part} label={`Loading ${name}`}>
      {(found) => (
        <>
          {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a long file scrolls with the keyboard */}
          <pre class="story-file" tabIndex={0}>
            {found.text}
          </pre>
          {found.next_offset < found.size_bytes && (
            <p class="quiet">
              The first {bytesText(found.next_offset)} of {bytesText(found.size_bytes)}. The download has the whole
              file.
            </p>
          )}
        </>
      )}
    </ResourceView>
  );
}

function rankText(ranks: readonly number[]): string {
  const shown = ranks.slice(0, 12).join(", ");
  const more = ranks.length > 12 ? ` and ${ranks.length - 12} more` : "";
  return `${ranks.length === 1 ? "Rank" : "Ranks"} ${shown}${more}`;
}
