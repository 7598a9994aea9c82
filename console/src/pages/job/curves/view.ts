/** The part of the curves that is shown, as the address has it. */

export type AxisKind = "step" | "time" | "tokens";

export interface CurvesView {
  /** Metrics that the reader chose; undefined for the usual ones. */
  metrics: readonly string[] | undefined;
  from: number | undefined;
  to: number | undefined;
  /** Weight of the smoothing, 0 to 0.99. */
  smooth: number;
  isLogarithmic: boolean;
  axis: AxisKind;
}

/** Most metrics in one request. */
export const MAX_METRICS = 12;
const AXES: readonly AxisKind[] = ["step", "time", "tokens"];

/** Return the view of an address. Values that are not valid are ignored. */
export function readView(query: URLSearchParams): CurvesView {
  const metrics = query.get("metrics")?.split(",").filter(Boolean).slice(0, MAX_METRICS);
  const smooth = Number(query.get("smooth") ?? 0);
  return {
    metrics: metrics?.length ? metrics : undefined,
    from: stepOf(query.get("from")),
    to: stepOf(query.get("to")),
    smooth: smooth > 0 && smooth < 1 ? smooth : 0,
    isLogarithmic: query.get("scale") === "log",
    axis: AXES.find((axis) => axis === query.get("x")) ?? "step",
  };
}

/** Return a step that a text names; undefined if it names none. */
export function stepOf(text: string | null | undefined): number | undefined {
  return text && /^\d{1,15}$/.test(text) && Number(text) > 0 ? Number(text) : undefined;
}
