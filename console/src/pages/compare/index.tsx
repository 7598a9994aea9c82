/** Up to eight jobs next to each other: a metric, its results, and the differences of their specs. */

import { useSignal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { LineChart } from "../../components/chart/line-chart";
import { PageHeader } from "../../components/page-header";
import { ResourceView } from "../../components/resource-view";
import { EmptyState } from "../../components/states";
import { useChanges } from "../../state/changes";
import { useResource } from "../../state/resource";
import { query, setQuery } from "../../state/router";
import { useThrottled } from "../../state/throttle";
import { metricOf, USUAL_METRICS } from "../../text/metrics";
import { AddJob } from "./add-job";
import "./compare.css";
import { cut, linesOfJobs, rangeOf } from "./curves";
import { type Comparison, loadComparison } from "./load";
import { endText, RangeFields } from "./range-fields";
import { Readout } from "./readout";
import { ResultTable, SpecTable } from "./tables";

const MAX_JOBS = 8;
const LIVE_MS = 1000;
const WHOLE = { from: undefined, to: undefined };

export default function ComparePage() {
  const ids = query.value.getAll("job").slice(0, MAX_JOBS);
  const metric = query.value.get("metric") || "loss";
  const percent = Number(query.value.get("threshold") ?? 5);
  const threshold = percent >= 0 ? percent / 100 : 0.05;
  // A range of the axis of time is cut here; one of steps is loaded with finer points.
  const { from, to } = rangeOf(query.value);
  const steps = query.value.get("x") === "time" ? { from: undefined, to: undefined } : { from, to };
  const loaded = useResource(
    (signal) => loadComparison(ids, metric, threshold, steps, signal),
    [ids.join(" "), metric, threshold, steps.from, steps.to],
  );
  const refresh = useThrottled(loaded.refresh, LIVE_MS);
  useChanges((change) => ids.includes(change.job ?? ""), refresh);
  return (
    <div class="compare">
      <PageHeader title="Compare" />
      <AddJob ids={ids} isFull={ids.length >= MAX_JOBS} />
      {ids.length === 0 ? (
        <EmptyState title="No job chosen">
          <p>Add two jobs by their names or ids to see their curves and the differences of their specs.</p>
        </EmptyState>
      ) : (
        <ResourceView resource={loaded} label="Loading the jobs">
          {(data) => <ComparedJobs data={data} metric={metric} percent={threshold * 100} />}
        </ResourceView>
      )}
    </div>
  );
}

function ComparedJobs({ data, metric, percent }: { data: Comparison; metric: string; percent: number }) {
  const cursor = useSignal<number | undefined>(undefined);
  const axis = query.value.get("x") === "time" ? "time" : "step";
  const weight = Number(query.value.get("smooth") ?? 0);
  const { label, format } = metricOf(metric);
  const range = rangeOf(query.value);
  const { x, lines } = useMemo(() => {
    const found = linesOfJobs(data.shown, axis, weight > 0 && weight < 1 ? weight : 0);
    return cut(found.x, found.lines, range);
  }, [data, axis, weight, range.from, range.to]);
  const choices = [...new Set([...USUAL_METRICS, metric])];
  return (
    <>
      <div class="row compare-settings">
        <label>
          Metric
          <select value={metric} onChange={(event) => setQuery({ metric: event.currentTarget.value })}>
            {choices.map((id) => (
              <option key={id} value={id}>
                {metricOf(id).label}
              </option>
            ))}
          </select>
        </label>
        <label>
          Axis
          <select value={axis} onChange={(event) => setQuery({ x: event.currentTarget.value, ...WHOLE })}>
            <option value="step">step</option>
            <option value="time">time since the start</option>
          </select>
        </label>
        <label>
          Smoothing
          <select
            value={weight ? String(weight) : ""}
            onChange={(event) => setQuery({ smooth: event.currentTarget.value })}
          >
            <option value="">none</option>
            <option value="0.6">light</option>
            <option value="0.9">medium</option>
            <option value="0.97">strong</option>
          </select>
        </label>
        <RangeFields axis={axis} range={range} />
        <label>
          Differ by more than (%)
          <input
            type="number"
            min="0"
            step="any"
            defaultValue={percent}
            onChange={(event) => setQuery({ threshold: event.currentTarget.value })}
          />
        </label>
      </div>
      {x.length === 0 ? (
        <EmptyState title={`No values of ${label.toLowerCase()}`}>
          <p>Choose another metric or range, or wait for the first steps of these jobs.</p>
        </EmptyState>
      ) : (
        <section class="card">
          <h2>{label}</h2>
          <Readout x={x} lines={lines} axis={axis} format={format} cursor={cursor} />
          <LineChart
            label={`${label} of ${data.jobs.map(({ job }) => job.name).join(", ")}; the table below has the results`}
            x={x}
            lines={lines}
            marks={[]}
            axis="step"
            isLogarithmic={false}
            format={format}
            cursor={cursor}
            onZoom={(start, end) => setQuery({ from: endText(start), to: endText(end) })}
            onReset={() => setQuery(WHOLE)}
          />
        </section>
      )}
      <ResultTable data={data} metric={metric} percent={percent} />
      <SpecTable data={data} />
    </>
  );
}
