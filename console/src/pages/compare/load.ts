/** What the page of a comparison loads. */

import { get } from "../../api/client";
import type { Schema } from "../../api/types";
import { firstDifference, type JobPoints, type Range } from "./curves";

const POINTS = 600;
const FINE_POINTS = 2000;
const MAX_REFINEMENTS = 4;

export interface Comparison {
  jobs: readonly JobPoints[];
  /** The same jobs with finer curves of the chosen steps; those of `jobs` without a choice. */
  shown: readonly JobPoints[];
  /** The first job compared with each other one. */
  specs: readonly Schema<"SpecDifferences">[];
  /** For each other job the first step at which its curve differs from that of the first job. */
  differences: readonly (number | undefined)[];
}

/** Load jobs, their curves of one metric, and their differences. `steps` are those that the chart shows. */
export async function loadComparison(
  ids: readonly string[],
  metric: string,
  threshold: number,
  steps: Range,
  signal: AbortSignal,
): Promise<Comparison> {
  const jobs = await Promise.all(ids.map((job) => get("/v1/jobs/{job}", { path: { job }, signal })));
  const [first, ...others] = jobs;
  const isWhole = steps.from === undefined && steps.to === undefined;
  const range = {
    ...(steps.from !== undefined && { from_step: Math.max(1, Math.floor(steps.from)) }),
    ...(steps.to !== undefined && { to_step: Math.ceil(steps.to) }),
  };
  const [curves, finer, specs, differences] = await Promise.all([
    Promise.all(jobs.map((job) => pointsOf(job.id, metric, signal))),
    Promise.all(isWhole ? [] : jobs.map((job) => pointsOf(job.id, metric, signal, range))),
    Promise.all(
      others.map((other) =>
        get("/v1/jobs/{job}/diff", { path: { job: first?.id ?? "" }, query: { with: other.id }, signal }),
      ),
    ),
    Promise.all(
      others.map((other) => (first === undefined ? undefined : differingStep(first, other, metric, threshold, signal))),
    ),
  ]);
  const none = { steps: [], times_s: [], mean: [], low: [], high: [] };
  const whole = jobs.map((job, index) => ({ job, points: curves[index] ?? none }));
  const shown = isWhole ? whole : jobs.map((job, index) => ({ job, points: finer[index] ?? none }));
  return { jobs: whole, shown, specs, differences };
}

/** Return the first step at which two curves differ. Requests for ever shorter ranges find the exact step. */
async function differingStep(
  one: Schema<"Job">,
  two: Schema<"Job">,
  metric: string,
  threshold: number,
  signal: AbortSignal,
): Promise<number | undefined> {
  let [from, to] = [1, Math.min(one.step, two.step)];
  for (let attempt = 0; attempt < MAX_REFINEMENTS && from <= to; attempt += 1) {
    const range = { from_step: from, to_step: to, points: FINE_POINTS };
    const [first, second] = await Promise.all([
      pointsOf(one.id, metric, signal, range),
      pointsOf(two.id, metric, signal, range),
    ]);
    const found = firstDifference(first, second, threshold);
    if (found === undefined || to - from < FINE_POINTS) return found?.step;
    [from, to] = [found.after + 1, found.step];
  }
  return to;
}

async function pointsOf(
  job: string,
  metric: string,
  signal: AbortSignal,
  range: { from_step?: number; to_step?: number; points?: number } = {},
): Promise<Schema<"CurvePoints">> {
  const query = { metric: [metric], points: POINTS, ...range };
  const found = await get("/v1/jobs/{job}/curves", { path: { job }, query, signal });
  const [curve] = found.curves;
  if (curve === undefined) throw new Error(`the answer has no curve of ${metric}`);
  return curve.committed;
}
