/** All jobs: filter, saved views, a table that loads as it scrolls, and actions on several jobs. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { DataTable } from "../../components/data-table";
import { PageHeader } from "../../components/page-header";
import { EmptyState, ErrorState, Loading, StaleNotice } from "../../components/states";
import { isMissed, useChanges } from "../../state/changes";
import { useInterval } from "../../state/interval";
import { useKeys } from "../../state/keys";
import { href, navigate, query, setQuery } from "../../state/router";
import { countText } from "../../text/numbers";
import { jobColumns } from "./columns";
import { parseFilter } from "./filter";
import { FilterField } from "./filter-field";
import { JobRows } from "./job-rows";
import { useKnownValues } from "./known-values";
import "./jobs.css";
import { RowCurves } from "./row-curves";
import type { Row } from "./rows";
import { selectColumn, useSelection } from "./select-rows";
import { SelectionBar } from "./selection";
import { ViewChips } from "./view-chips";

/** Steps cause no notice, so what runs is loaded again at this interval. */
const PROGRESS_MS = 5_000;
const STILL: readonly Row["state"][] = ["SUCCEEDED", "FAILED", "CANCELLED", "QUEUED", "SUSPENDED"];

export default function JobsPage() {
  const filter = query.value.get("q") ?? "";
  const [attempt, setAttempt] = useState(0);
  const jobs = useMemo(() => new JobRows(parseFilter(filter).filters), [filter, attempt]);
  const curves = useMemo(() => new RowCurves(), []);
  useEffect(() => () => curves.stop(), []);
  const inView = useRef<readonly Row[]>([]);
  const [current, setCurrent] = useState<string>();
  const rows = jobs.rows.value?.list ?? [];
  const selection = useSelection(rows);
  useEffect(() => {
    void jobs.loadMore();
    return () => jobs.stop();
  }, [jobs]);
  useChanges(
    (change) => change.job != null,
    (changes) => {
      if (changes.some(isMissed)) setAttempt(attempt + 1);
      else jobs.update(changes.flatMap((change) => change.job ?? []));
    },
  );
  useInterval(() => {
    jobs.update(inView.current.filter((job) => !STILL.includes(job.state)).map((job) => job.id));
  }, PROGRESS_MS);
  const move = (step: number) => {
    const index = rows.findIndex((job) => job.id === current);
    setCurrent(rows[Math.max(0, Math.min(rows.length - 1, index + step))]?.id);
  };
  useKeys([
    { key: "j", label: "Next job", run: () => move(1) },
    { key: "k", label: "Previous job", run: () => move(-1) },
    { key: "x", label: "Select the job", run: () => current && selection.toggle(current) },
    { key: "Enter", label: "Open the job", run: () => current && navigate(href(`jobs/${current}`)) },
    { key: "Escape", label: "Clear the selection", run: selection.clear },
  ]);
  const columns = useMemo(() => [selectColumn(selection), ...jobColumns(curves)], [selection, curves]);
  return (
    <>
      <PageHeader title="Jobs" subtitle={<Count jobs={jobs} />}>
        <a class="button" href={href("submit")}>
          Submit a job
        </a>
      </PageHeader>
      <div class="jobs-tools">
        <FilterField value={filter} known={useKnownValues(rows)} onChange={(q) => setQuery({ q })} />
        <ViewChips filter={filter} />
      </div>
      <SelectionBar jobs={selection.jobs} onClear={selection.clear} onDone={(ids) => jobs.update(ids)} />
      {jobs.problem.value && jobs.rows.value && (
        <StaleNotice problem={jobs.problem.value} onRetry={() => void jobs.loadMore()} />
      )}
      <Body jobs={jobs} filter={filter} onRetry={() => setAttempt(attempt + 1)}>
        <DataTable
          label="Jobs"
          columns={columns}
          rows={rows}
          rowKey={rowKey}
          current={current}
          isSelected={(job) => selection.ids.has(job.id)}
          onRowClick={(job) => setCurrent(job.id)}
          onCurrent={setCurrent}
          onNearEnd={() => void jobs.loadMore()}
          onView={(shown) => {
            inView.current = shown;
            jobs.show(shown.map(rowKey));
            curves.show(shown);
          }}
        />
      </Body>
    </>
  );
}

function Body(props: { jobs: JobRows; filter: string; onRetry: () => void; children: preact.ComponentChildren }) {
  const { jobs, filter, onRetry } = props;
  const rows = jobs.rows.value;
  if (rows === undefined) {
    const problem = jobs.problem.value;
    return problem === undefined ? (
      <Loading label="Loading jobs" />
    ) : (
      <ErrorState problem={problem} onRetry={onRetry} />
    );
  }
  if (rows.list.length > 0 || !rows.isComplete) return <>{props.children}</>;
  if (filter === "") {
    return (
      <EmptyState title="There is no job yet">
        <p>
          <a href={href("submit")}>Submit a job</a>, or run <code>regroup submit SPEC</code>.
        </p>
      </EmptyState>
    );
  }
  return (
    <EmptyState title="No job matches the filter">
      <p>
        Change the filter, or <a href={href("jobs")}>show all jobs</a>.
      </p>
    </EmptyState>
  );
}

function Count({ jobs }: { jobs: JobRows }) {
  const rows = jobs.rows.value;
  if (rows === undefined) return <span>…</span>;
  return (
    <>
      {countText(rows.list.length, "job")}
      {rows.isComplete ? "" : " loaded; more load as you scroll"}
    </>
  );
}

function rowKey(job: Row): string {
  return job.id;
}
