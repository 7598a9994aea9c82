/** Device-hours and money by project, user, class and job, in a window of time; and the budgets of projects. */

import { useMemo } from "preact/hooks";
import { get } from "../../api/client";
import { PageHeader } from "../../components/page-header";
import { ProjectField } from "../../components/project-select";
import { ResourceView } from "../../components/resource-view";
import { WindowPicker } from "../../components/window-picker";
import { useResource } from "../../state/resource";
import { query, setQuery } from "../../state/router";
import { windowOf } from "../../text/window";
import { Budgets } from "./budgets";
import { CsvButton } from "./csv-button";
import { Days } from "./days";
import { GROUPS, groupsOf, type UsageQuery, usageQuery } from "./groups";
import { UsageTable } from "./table";
import "./usage.css";

const MOST_PAGES = 5;

export default function UsagePage() {
  const address = query.value.toString();
  const shown = useMemo(() => windowOf(query.value, "month"), [address]);
  const groups = groupsOf(query.value.get("by"));
  const project = query.value.get("project") ?? "";
  const request = usageQuery(groups, shown, project);
  const key = JSON.stringify(request);
  const report = useResource((signal) => loadReport(request, signal), [key]);
  return (
    <>
      <PageHeader title="Usage" subtitle="Device-hours that jobs held, and what they cost">
        <CsvButton request={request} />
      </PageHeader>
      <div class="filters">
        <WindowPicker shown={shown} />
        <ProjectField />
        <fieldset>
          <legend>Group by</legend>
          {GROUPS.map(([group, label]) => (
            <label key={group} class="check">
              <input
                type="checkbox"
                checked={groups.includes(group)}
                onChange={() => setQuery({ by: toggled(groups, group) })}
              />
              {label}
            </label>
          ))}
        </fieldset>
      </div>
      <ResourceView resource={report} label="Loading the use of devices">
        {(data) => (
          <>
            <section class="card">
              <Days request={request} window={{ from_s: data.from_s, to_s: data.to_s }} />
            </section>
            <section class="card">
              <UsageTable report={data} groups={groups} />
            </section>
          </>
        )}
      </ResourceView>
      <Budgets />
    </>
  );
}

async function loadReport(request: UsageQuery, signal: AbortSignal) {
  const first = await get("/v1/usage", { query: request, signal });
  const rows = [...first.rows];
  let next = first.next_page_token;
  for (let page = 1; next !== "" && page < MOST_PAGES; page++) {
    const more = await get("/v1/usage", { query: { ...request, page_token: next }, signal });
    rows.push(...more.rows);
    next = more.next_page_token;
  }
  return { ...first, rows, isPartial: next !== "" };
}

function toggled(groups: readonly string[], group: string): string {
  const left = groups.includes(group) ? groups.filter((each) => each !== group) : [...groups, group];
  return left.length === 0 ? groups.join(",") : left.join(",");
}
