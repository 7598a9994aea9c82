/** Names and units of the metrics of steps. */

import { bytesText, compactText, numberText, percentText } from "./numbers";
import { durationText } from "./time";

export interface Metric {
  id: string;
  label: string;
  format: (value: number) => string;
  /** True if a larger value is better. */
  isBetterHigh: boolean;
}

const NAMED: readonly Metric[] = [
  { id: "loss", label: "Loss", format: numberText, isBetterHigh: false },
  { id: "validation_loss", label: "Validation loss", format: numberText, isBetterHigh: false },
  { id: "grad_norm", label: "Gradient norm", format: numberText, isBetterHigh: false },
  { id: "tokens_per_s", label: "Tokens per second", format: (value) => `${compactText(value)}/s`, isBetterHigh: true },
  { id: "step_s", label: "Step time", format: durationText, isBetterHigh: false },
  { id: "mfu", label: "MFU", format: percentText, isBetterHigh: true },
  { id: "peak_bytes", label: "Memory", format: bytesText, isBetterHigh: false },
];

/** Metrics that say why others change. */
const EXPLANATORY: readonly Metric[] = [
  { id: "exposed_communication", label: "Exposed communication", format: percentText, isBetterHigh: false },
  { id: "pipeline_idle", label: "Idle time of the pipeline", format: percentText, isBetterHigh: false },
  { id: "bubble", label: "Idle time of the pipeline in theory", format: percentText, isBetterHigh: false },
  { id: "peak_rank", label: "Rank with the most memory", format: numberText, isBetterHigh: false },
];

/** Ids of the metrics that most jobs have. */
export const USUAL_METRICS: readonly string[] = NAMED.map((metric) => metric.id);

/** Return the metric with this id. A metric of `extra` has its id as its name, and no known unit. */
export function metricOf(id: string): Metric {
  const known = [...NAMED, ...EXPLANATORY].find((metric) => metric.id === id);
  return known ?? { id, label: id, format: numberText, isBetterHigh: false };
}
