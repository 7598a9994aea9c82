/** Curves of the API as lines of a chart, as rows of a table, and as CSV. */

import type { Schema } from "../../../api/types";
import type { ChartLine, ChartMark } from "../../../components/chart/options";
import { smooth } from "../../../text/smooth";
import type { AxisKind } from "./view";

type Curve = Schema<"Curve">;

/** Places of a job's steps on the horizontal axis. */
export interface Axis {
  kind: AxisKind;
  /** Return the place of a step that was committed at a time. */
  place: (step: number, time_s: number) => number;
}

export interface CurveLines {
  x: number[];
  lines: ChartLine[];
}

/** Return the axis. Tokens need the same number in each step; without it, the axis is that of steps. */
export function axisOf(kind: AxisKind, tokensPerStep: number | undefined): Axis {
  if (kind === "time") return { kind, place: (_, time_s) => time_s };
  if (kind === "tokens" && tokensPerStep !== undefined) return { kind, place: (step) => step * tokensPerStep };
  return { kind: "step", place: (step) => step };
}

/** Return the number of tokens of each step; undefined if steps differ or have none. */
export function tokensPerStep(curve: Curve | undefined): number | undefined {
  const points = curve?.committed;
  if (points === undefined || points.steps.length === 0) return undefined;
  const least = Math.min(...points.low);
  return least > 0 && least === Math.max(...points.high) ? least : undefined;
}

/** Return the lines of a metric: committed steps, repeated steps by generation, predictions. */
export function linesOf(curve: Curve, axis: Axis, weight: number, series: number): CurveLines {
  const { committed, repeated, predicted } = curve;
  const all = [committed, ...repeated.map((each) => each.points)];
  const places = all.map((points) => points.steps.map((step, index) => axis.place(step, points.times_s[index] ?? 0)));
  const x = [...new Set(places.flat())].sort((one, two) => one - two);
  const spread = (own: readonly number[], values: readonly (number | null)[]) => {
    const found = new Map(own.map((place, index) => [place, values[index] ?? null]));
    return x.map((place) => found.get(place) ?? null);
  };
  const lines: ChartLine[] = repeated.map((each, index) => ({
    label: `repeated steps of generation ${each.generation}`,
    values: spread(places[index + 1] ?? [], each.points.mean),
    style: "faint",
    series,
  }));
  lines.push({
    label: "committed",
    values: spread(places[0] ?? [], smooth(committed.mean, weight)),
    style: "solid",
    series,
  });
  if (predicted.length > 0) {
    const values = committed.steps.map((step) => predictionAt(predicted, step));
    lines.push({ label: "predicted", values: spread(places[0] ?? [], values), style: "dashed", series: 8 });
  }
  return { x, lines };
}

/** Return the prediction for a step: that of the generation which committed it. */
export function predictionAt(predicted: readonly Schema<"PredictedValue">[], step: number): number | null {
  return predicted.findLast((each) => each.start_step < step)?.value ?? null;
}

/** Return the marks of generations after the first one, and of incidents. Those outside the points are left out. */
export function marksOf(
  generations: readonly Schema<"Generation">[],
  incidents: readonly Schema<"Incident">[],
  points: Schema<"CurvePoints">,
  axis: Axis,
): ChartMark[] {
  const place = (step: number): number | undefined => {
    const index = points.steps.findIndex((each) => each >= step);
    const time_s = points.times_s[index];
    const first = points.steps[0];
    return time_s === undefined || first === undefined || step < first ? undefined : axis.place(step, time_s);
  };
  const marks: ChartMark[] = [];
  for (const each of generations.slice(1)) {
    const x = place(Math.max(1, each.start_step));
    if (x !== undefined) marks.push({ x, label: `g${each.number}`, kind: "generation" });
  }
  for (const each of incidents) {
    const x = each.at_step === null || each.at_step === undefined ? undefined : place(Math.max(1, each.at_step));
    if (x !== undefined) marks.push({ x, label: `incident ${each.number}`, kind: "incident" });
  }
  return marks;
}

export interface PointRow {
  step: number;
  time_s: number;
  /** Metric → mean of the committed steps of this point. */
  values: Record<string, number>;
}

/** Return the committed points of all curves by step. */
export function rowsOf(curves: readonly Curve[]): PointRow[] {
  const rows = new Map<number, PointRow>();
  for (const { metric, committed } of curves) {
    for (const [index, step] of committed.steps.entries()) {
      const row = rows.get(step) ?? { step, time_s: committed.times_s[index] ?? 0, values: {} };
      row.values[metric] = committed.mean[index] ?? Number.NaN;
      rows.set(step, row);
    }
  }
  return [...rows.values()].sort((one, two) => one.step - two.step);
}

/** Return all points as CSV, one line for each. Committed steps have no generation. */
export function csvOf(curves: readonly Curve[]): string {
  const lines = ["metric,repeated_generation,step,time_s,mean,low,high"];
  for (const { metric, committed, repeated } of curves) {
    const name = /[",\n]/.test(metric) ? `"${metric.replaceAll('"', '""')}"` : metric;
    for (const { generation, points } of [{ generation: "", points: committed }, ...repeated]) {
      for (const [index, step] of points.steps.entries()) {
        const values = [points.times_s, points.mean, points.low, points.high].map((each) => each[index]);
        lines.push([name, generation, step, ...values].join(","));
      }
    }
  }
  return `${lines.join("\n")}\n`;
}
