/** Everything that the time axis draws, as text in order: for tables, details and screen readers. Pure. */

import type { Schema } from "../../../api/types";
import { bytesText, countText } from "../../../text/numbers";
import { durationText } from "../../../text/time";

export type Story = Schema<"Story">;
export type Generation = Schema<"GenerationSpan">;
export type Incident = Schema<"IncidentAccount">;

export interface Entry {
  id: string;
  /** Seconds since the submission. */
  from: number;
  /** End; absent for a moment. */
  to?: number;
  kind: string;
  text: string;
  incident?: number;
  generation?: number;
}

/** Phases of a recovery: name, the time at which each ends, and the number of its colour. */
export const PHASES = [
  { id: "detect", label: "detect", from: "fault_s", to: "seen_s" },
  { id: "teardown", label: "end ranks", from: "seen_s", to: "dead_s" },
  { id: "decide", label: "decide", from: "dead_s", to: "decided_s" },
  { id: "form", label: "form", from: "decided_s", to: "formed_s" },
  { id: "restore", label: "restore", from: "formed_s", to: "restored_s" },
  { id: "first_step", label: "first step", from: "restored_s", to: "first_step_s" },
] as const;

const SOURCES = {
  nothing: "from the beginning",
  memory: "from memory",
  mirror: "from mirrors",
  disk: "from a checkpoint",
};

/** Return all entries of a story in order. */
export function entriesOf(story: Story, until: number): Entry[] {
  const since = (time: number) => time - story.from_s;
  const end = (time: number | null) => (time === null ? until : since(time));
  const found: Entry[] = [
    ...story.states.map((each, index) => ({
      id: `state-${index}`,
      from: since(each.from_s),
      to: end(each.until_s),
      kind: "State",
      text: `${each.state}${each.reason ? ` (${each.reason})` : ""}${each.message ? `: ${each.message}` : ""}`,
    })),
    ...story.generations.map((each) => ({
      id: `generation-${each.number}`,
      from: since(each.from_s),
      to: end(each.until_s),
      kind: "Generation",
      text: generationText(each),
      generation: each.number,
    })),
    ...story.incidents.map((each) => ({
      id: `incident-${each.number}`,
      from: since(each.from_s),
      to: end(each.until_s),
      kind: "Incident",
      text: `Incident ${each.number}: ${each.summary}`,
      incident: each.number,
    })),
    ...story.checkpoints.map((each) => ({
      id: `checkpoint-${each.step}-${each.generation}`,
      from: since(each.created_at),
      kind: "Checkpoint",
      text: checkpointText(each),
    })),
    ...story.mirrors.map((each) => ({
      id: `mirror-${each.generation}-${each.step}`,
      from: since(each.time_s),
      kind: "Mirror",
      text: `Step ${each.step} is mirrored: other nodes hold its state in memory`,
    })),
    ...story.marks.map((each) => ({
      id: `mark-${each.event}`,
      from: since(each.time_s),
      kind: MARK_KINDS[each.kind],
      text: `${each.text} (by ${each.actor})`,
    })),
  ];
  return found.sort((one, other) => one.from - other.from);
}

/** Words for the kinds of marks. */
export const MARK_KINDS: Record<Schema<"Mark">["kind"], string> = {
  request: "Request",
  nodes: "Nodes",
  straggler: "Slow rank",
  checkpoint: "Checkpoint",
  note: "Note",
};

/** Return what a generation is, in one sentence. */
export function generationText(each: Generation): string {
  const steps = each.last_step === null ? "no step" : `steps ${each.start_step + 1} to ${each.last_step}`;
  const repeated = each.repeated > 0 ? `, ${countText(each.repeated, "step")} repeated later` : "";
  const source = `${SOURCES[each.restored_from]} at step ${each.start_step}`;
  return `Generation ${each.number}: ${ranksText(each)}, ${source}, ${steps}${repeated}`;
}

/** Return the number of ranks of a generation, with its layout if it has one. */
export function ranksText(each: Generation): string {
  return [countText(each.world_size, "rank"), layoutText(each.layout)].filter((part) => part !== "").join(", ");
}

/** Return the degrees of a layout that are above one; empty if there is none. */
export function layoutText(layout: Schema<"Layout">): string {
  const parts = (["dp_replicate", "dp_shard", "cp", "tp", "pp"] as const)
    .filter((name) => (layout[name] ?? 1) > 1)
    .map((name) => `${name} ${layout[name]}`);
  return parts.join(" × ");
}

function checkpointText(each: Schema<"Checkpoint">): string {
  const took = each.duration_s === null ? "" : `, written in ${durationText(each.duration_s)}`;
  const gone = each.removed_at === null ? "" : ", removed since";
  return `Checkpoint of step ${each.step}, ${bytesText(each.size_bytes)}${took}${each.pinned ? ", pinned" : ""}${gone}`;
}
