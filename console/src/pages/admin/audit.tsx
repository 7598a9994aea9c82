/** Who changed what: the records of changes, filtered in the address, with the values before and after. */

import { useMemo, useState } from "preact/hooks";
import { get, target } from "../../api/client";
import { saveAnswer } from "../../api/download";
import type { Problem } from "../../api/problem";
import { toProblem } from "../../api/problem";
import type { Schema } from "../../api/types";
import { present } from "../../api/values";
import { TextField } from "../../components/field";
import { ProjectField } from "../../components/project-select";
import { ResourceView } from "../../components/resource-view";
import { ShortTable } from "../../components/short-table";
import { EmptyState } from "../../components/states";
import { WindowPicker } from "../../components/window-picker";
import { useChanges } from "../../state/changes";
import { me } from "../../state/identity";
import { useResource } from "../../state/resource";
import { query, setQuery } from "../../state/router";
import { dayText, timeText } from "../../text/time";
import { windowOf } from "../../text/window";
import { ACTIONS } from "./actions";
import { Chain } from "./chain";
import { type Difference, differencesOf } from "./difference";

type Record = Schema<"AuditRecord">;

const MOST_FIELDS = 6;

export default function Audit() {
  const address = query.value;
  const shown = useMemo(() => windowOf(address, "30d"), [address.toString()]);
  const value = (name: string) => address.get(name) || undefined;
  const names = ["action", "object", "actor", "project"] as const;
  const chosen = Object.fromEntries(names.map((name) => [name, value(name)])) as {
    [K in (typeof names)[number]]?: string;
  };
  const filter = { ...present(chosen), since: shown.from_s, ...present({ until: shown.to_s }) };
  const [pages, setPages] = useState(1);
  const records = useResource((signal) => loadRecords(filter, pages, signal), [JSON.stringify(filter), pages]);
  const [problem, setProblem] = useState<Problem>();
  useChanges((change) => !change.job, records.refresh);
  const save = () => {
    setProblem(undefined);
    const name = `audit-${dayText(Date.now() / 1000)}.jsonl`;
    saveAnswer(target("/v1/audit/export", {}, filter), name).catch((error) => setProblem(toProblem(error)));
  };
  return (
    <>
      <div class="filters">
        <TextField
          label="Action"
          value={value("action") ?? ""}
          options={ACTIONS}
          placeholder="all"
          isFilter
          onInput={(action) => setQuery({ action })}
        />
        <TextField
          label="Object"
          value={value("object") ?? ""}
          placeholder="all"
          onInput={(object) => setQuery({ object })}
        />
        <TextField
          label="Actor"
          value={value("actor") ?? ""}
          placeholder="all"
          onInput={(actor) => setQuery({ actor })}
        />
        <ProjectField />
        <WindowPicker shown={shown} />
        <button type="button" onClick={save}>
          Export JSON lines
        </button>
      </div>
      {problem && (
        <p class="notice error" role="alert">
          {problem.message}
        </p>
      )}
      <section class="card admin-audit" aria-labelledby="records">
        <h2 id="records">Changes, newest first</h2>
        <ResourceView resource={records} label="Loading the records">
          {(data) =>
            data.records.length === 0 ? (
              <EmptyState title="No change matches">
                <p>Remove a filter or choose a longer window. Decisions of the server itself are events of jobs.</p>
              </EmptyState>
            ) : (
              <>
                <RecordTable records={data.records} />
                {data.hasMore && (
                  <button type="button" onClick={() => setPages(pages + 1)}>
                    Show older changes
                  </button>
                )}
              </>
            )
          }
        </ResourceView>
      </section>
      {me.value?.is_operator && <Chain />}
    </>
  );
}

async function loadRecords(filter: object, pages: number, signal: AbortSignal) {
  const records: Record[] = [];
  let next = "";
  for (let page = 0; page < pages; page++) {
    const found = await get("/v1/audit", { query: { ...filter, ...present({ page_token: next }) }, signal });
    records.push(...found.records);
    next = found.next_page_token;
    if (next === "") break;
  }
  return { records, hasMore: next !== "" };
}

function RecordTable({ records }: { records: readonly Record[] }) {
  return (
    <ShortTable
      label="Records of changes"
      rows={records}
      rowKey={(record) => String(record.id)}
      columns={[
        { id: "time", label: "Time", cell: (record) => timeText(record.time_s) },
        { id: "actor", label: "Actor", cell: (record) => record.actor },
        { id: "action", label: "Action", cell: (record) => record.action },
        { id: "object", label: "Object", cell: (record) => record.object },
        { id: "project", label: "Project", cell: (record) => record.project ?? "" },
        { id: "change", label: "Change", cell: (record) => <Fields record={record} /> },
        { id: "from", label: "From", cell: (record) => record.address },
        { id: "position", label: "Chain", isNumber: true, cell: (record) => record.position ?? "not sealed yet" },
      ]}
    />
  );
}

function Fields({ record }: { record: Record }) {
  const found = differencesOf(record.before, record.after);
  const [first, rest] = [found.slice(0, MOST_FIELDS), found.slice(MOST_FIELDS)];
  const isKnown = record.before !== null && record.after !== null;
  return (
    <>
      <DifferenceList differences={first} isKnown={isKnown} />
      {rest.length > 0 && (
        <details>
          <summary>{rest.length} more</summary>
          <DifferenceList differences={rest} isKnown={isKnown} />
        </details>
      )}
    </>
  );
}

function DifferenceList({ differences, isKnown }: { differences: readonly Difference[]; isKnown: boolean }) {
  return (
    <dl class="admin-difference">
      {differences.map(({ path, before, after }) => (
        <div key={path}>
          <dt>{path}</dt>
          <dd>
            {before !== undefined && <del>{before}</del>}
            {(isKnown || (before !== undefined && after !== undefined)) && " → "}
            {after !== undefined ? <ins>{after}</ins> : isKnown && "removed"}
          </dd>
        </div>
      ))}
    </dl>
  );
}
