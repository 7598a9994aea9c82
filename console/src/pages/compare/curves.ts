/** Curves of several jobs beside each other: lines of one chart, and the step from which they differ. */

import type { Schema } from "../../api/types";
import type { ChartLine } from "../../components/chart/options";
import { smooth } from "../../text/smooth";
import { patternOf } from "./patterns";

export interface JobPoints {
  job: Schema<"Job">;
  points: Schema<"CurvePoints">;
}

export type CompareAxis = "step" | "time";

/** Return one line for each job. On the axis of time, each job begins at zero. */
export function linesOfJobs(
  jobs: readonly JobPoints[],
  axis: CompareAxis,
  weight: number,
): { x: number[]; lines: ChartLine[] } {
  const places = jobs.map(({ job, points }) =>
    axis === "step"
      ? points.steps
      : points.times_s.map((time_s) => time_s - (job.started_at ?? points.times_s[0] ?? 0)),
  );
  const x = [...new Set(places.flat())].sort((one, two) => one - two);
  const lines = jobs.map(({ job, points }, index) => {
    const values = smooth(points.mean, weight);
    const found = new Map((places[index] ?? []).map((place, position) => [place, values[position] ?? null]));
    const line = x.map((place) => found.get(place) ?? null);
    const series = index + 1;
    return { label: job.name, values: line, style: "solid", series, dash: patternOf(series) } satisfies ChartLine;
  });
  return { x, lines };
}

/** A part of the horizontal axis, in its unit. A missing end is that of the curves. */
export interface Range {
  from: number | undefined;
  to: number | undefined;
}

/** Return the range that an address contains. */
export function rangeOf(query: URLSearchParams): Range {
  const [from, to] = ["from", "to"].map((name) => {
    const value = Number(query.get(name) ?? "");
    return query.get(name) && Number.isFinite(value) && value >= 0 ? value : undefined;
  });
  return { from, to };
}

/** Return the points of lines inside a range. */
export function cut(x: number[], lines: ChartLine[], range: Range): { x: number[]; lines: ChartLine[] } {
  const { from = Number.NEGATIVE_INFINITY, to = Number.POSITIVE_INFINITY } = range;
  const isInside = (_: unknown, index: number) => (x[index] ?? 0) >= from && (x[index] ?? 0) <= to;
  return {
    x: x.filter(isInside),
    lines: lines.map((line) => ({ ...line, values: line.values.filter(isInside) })),
  };
}

/**
 * Return the first step of both curves at which they differ by more than a part of the first one's value.
 *
 * `after` is the last common step before it, so that a finer request finds the exact step between them.
 */
export function firstDifference(
  one: Schema<"CurvePoints">,
  two: Schema<"CurvePoints">,
  threshold: number,
): { step: number; after: number } | undefined {
  const others = new Map(two.steps.map((step, index) => [step, two.mean[index]]));
  let after = 0;
  for (const [index, step] of one.steps.entries()) {
    const [first, second] = [one.mean[index], others.get(step)];
    if (first === undefined || second === undefined) continue;
    if (Math.abs(second - first) > threshold * Math.abs(first)) return { step, after };
    after = step;
  }
  return undefined;
}

export interface Summary {
  last: number | undefined;
  best: number | undefined;
  bestStep: number | undefined;
}

/** Return the last and the best value of a curve. */
export function summaryOf(points: Schema<"CurvePoints">, isBetterHigh: boolean): Summary {
  const extremes = isBetterHigh ? points.high : points.low;
  const best = extremes.length === 0 ? undefined : isBetterHigh ? Math.max(...extremes) : Math.min(...extremes);
  return {
    last: points.mean.at(-1),
    best,
    bestStep: best === undefined ? undefined : points.steps[extremes.indexOf(best)],
  };
}

export interface DifferingField {
  path: string;
  /** One value for each job, in their order. */
  values: readonly unknown[];
}

/** Return the fields in which any spec differs from the first one. `others` compare the first job with each other. */
export function fieldsOf(others: readonly Schema<"SpecDifferences">[]): DifferingField[] {
  const paths = new Map<string, unknown>();
  for (const each of others) for (const found of each.differences) paths.set(found.path, found.first);
  return [...paths.keys()].sort().map((path) => {
    const first = paths.get(path);
    const values = others.map((each) => {
      const found = each.differences.find((field) => field.path === path);
      return found === undefined ? first : found.second;
    });
    return { path, values: [first, ...values] };
  });
}
