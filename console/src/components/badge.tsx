/** The state of a job or of a node: a word with a shape and a colour. */

import type { Schema } from "../api/types";

type Tone = "good" | "active" | "waiting" | "warning" | "bad" | "neutral";

const JOB_TONES: Record<Schema<"JobState">, Tone> = {
  QUEUED: "waiting",
  PLACING: "active",
  STARTING: "active",
  RUNNING: "good",
  RECOVERING: "warning",
  RESIZING: "active",
  DRAINING: "active",
  SUSPENDED: "waiting",
  SUCCEEDED: "good",
  FAILED: "bad",
  CANCELLED: "neutral",
};

export function Badge({ tone, children }: { tone: Tone; children: string }) {
  return <span class={`badge ${tone}`}>{children}</span>;
}

/** The state of a job. */
export function JobStateBadge({ state }: { state: Schema<"JobState"> }) {
  return <Badge tone={JOB_TONES[state]}>{state}</Badge>;
}

export type { Tone };
