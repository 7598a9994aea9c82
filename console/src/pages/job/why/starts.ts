/** Predicted starts of a queued job as one sentence. Pure. */

import type { Schema } from "../../../api/types";
import { countText } from "../../../text/numbers";
import { durationText, timeText } from "../../../text/time";

export type Start = Schema<"SizeStart">;

const SAME_S = 60;

/** Return the answer in one sentence: the largest size that starts now, or else the one that starts first. */
export function answerOf(starts: readonly Start[]): string {
  const requested = starts.find((each) => each.is_requested);
  const now = starts.find((each) => each.is_now);
  if (requested?.is_now)
    return "Enough devices are free for the requested size: the next pass of the scheduler starts the job.";
  if (now !== undefined) return `With ${countText(now.ranks, "rank")}, the job would start now.`;
  const first = [...starts].sort((one, two) => (one.start_s ?? Infinity) - (two.start_s ?? Infinity))[0];
  const before = requested?.start_s ?? Infinity;
  if (first?.start_s == null || before - first.start_s < SAME_S) return "No smaller size would start sooner.";
  const gain = before === Infinity ? "" : `, ${durationText(before - first.start_s)} sooner`;
  return `No size would start now. With ${countText(first.ranks, "rank")}, the job would start at ${timeText(first.start_s)}${gain}.`;
}
