/** Curves of a job's metrics: committed steps, repeated steps, predictions, incidents. */

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { get } from "../../../api/client";
import { follow } from "../../../api/event-stream";
import type { Schema } from "../../../api/types";
import { ResourceView } from "../../../components/resource-view";
import { EmptyState } from "../../../components/states";
import { useChanges } from "../../../state/changes";
import { useResource } from "../../../state/resource";
import { href, query, setQuery } from "../../../state/router";
import { useThrottled } from "../../../state/throttle";
import { USUAL_METRICS } from "../../../text/metrics";
import { useJob } from "../job-context";
import { Charts } from "./charts";
import "./curves.css";
import { PointsTable } from "./points-table";
import { Toolbar } from "./toolbar";
import { MAX_METRICS, readView } from "./view";

/** Points of a line: about two for each pixel column of a wide chart. */
const POINTS = 600;
const LIVE_MS = 1000;

interface Loaded {
  /** Names of the metrics that the newest step has in `extra`. */
  extra: readonly string[];
  /** Number of the newest step row; 0 before the first one. */
  newest: number;
  curves: Schema<"Curves">;
  tokens: Schema<"Curve"> | undefined;
  generations: readonly Schema<"Generation">[];
}

export default function CurvesTab() {
  const { job } = useJob();
  const view = readView(query.value);
  const cursor = useSignal<number | undefined>(undefined);
  const metrics = view.metrics ?? USUAL_METRICS;
  const loaded = useResource(
    (signal) => load(job, metrics, view.from, view.to, signal),
    [job.id, metrics.join(","), view.from, view.to],
  );
  const refresh = useThrottled(loaded.refresh, LIVE_MS);
  useChanges((change) => change.job === job.id, refresh);
  const newest = loaded.data.value?.newest;
  useEffect(() => {
    // Steps are no changes of the job: they have a stream of their own. It ends with the job.
    if (newest === undefined || job.finished_at !== null) return;
    return follow(`/v1/jobs/${job.id}/steps?follow=true&after=${newest}`, { onEvent: refresh });
  }, [job.id, newest === undefined, job.finished_at]);
  return (
    <ResourceView resource={loaded} label="Loading curves">
      {(data) => {
        const isEmpty = data.curves.curves.every((curve) => curve.committed.steps.length === 0);
        if (isEmpty && job.step === 0) return <NoSteps job={job} />;
        return (
          <div class="curves">
            <Toolbar job={job} view={view} data={data} metrics={metrics} />
            {isEmpty ? (
              <EmptyState title="No values in these steps">
                <button type="button" onClick={() => setQuery({ from: undefined, to: undefined, metrics: undefined })}>
                  Show all steps
                </button>
              </EmptyState>
            ) : (
              <>
                <Charts job={job} view={view} data={data} cursor={cursor} />
                <PointsTable job={job} curves={data.curves.curves} />
              </>
            )}
          </div>
        );
      }}
    </ResourceView>
  );
}

function NoSteps({ job }: { job: Schema<"Job"> }) {
  return (
    <EmptyState title="No steps yet">
      <p>
        The job is {job.state} and has committed no step. Curves appear with the first one;{" "}
        <a href={href(`jobs/${job.id}/why`)}>why it has none</a> explains what happens until then.
      </p>
    </EmptyState>
  );
}

async function load(
  job: Schema<"Job">,
  metrics: readonly string[],
  from: number | undefined,
  to: number | undefined,
  signal: AbortSignal,
): Promise<Loaded> {
  const path = { job: job.id };
  const names = [...metrics.slice(0, MAX_METRICS - 1), "tokens"];
  const range = { ...(from === undefined ? {} : { from_step: from }), ...(to === undefined ? {} : { to_step: to }) };
  const [curves, generations, newest] = await Promise.all([
    get("/v1/jobs/{job}/curves", { path, query: { metric: names, points: POINTS, ...range }, signal }),
    get("/v1/jobs/{job}/generations", { path, signal }),
    get("/v1/jobs/{job}/steps", { path, query: { after: Math.max(0, job.step - 1), limit: 1 }, signal }),
  ]);
  const shown = curves.curves.filter((curve) => metrics.includes(curve.metric));
  return {
    newest: newest.steps[0]?.number ?? 0,
    extra: Object.keys(newest.steps[0]?.extra ?? {}),
    curves: { ...curves, curves: shown },
    tokens: curves.curves.find((curve) => curve.metric === "tokens"),
    generations: generations.generations,
  };
}

export type { Loaded };
