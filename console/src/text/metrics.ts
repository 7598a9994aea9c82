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

/** Ids of the metrics that most jobs have. */
export const USUAL_METRICS: readonly string[] = NAMED.map((metric) => metric.id);

/** Return the metric with this id. A metric of `extra` has its id as its name, and no known unit. */
export function metricOf(id: string): Metric {
  return NAMED.find((metric) => metric.id === id) ?? { id, label: id, format: numberText, isBetterHigh: false };
}
