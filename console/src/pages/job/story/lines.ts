/** Progress as lines: steps that count, and steps that were repeated. Pure. */

import type { Story } from "./entries";

export interface Point {
  /** Seconds since the submission. */
  time: number;
  step: number;
}

export interface ProgressLine {
  generation: number;
  isRepeated: boolean;
  points: Point[];
}

/** Return a line for the steps of each generation that count, and one for those that a later one repeated. */
export function progressLines(story: Story): ProgressLine[] {
  const sampled = new Map<number, Point[]>();
  for (const each of story.progress) {
    const points = sampled.get(each.generation) ?? [];
    points.push({ time: each.time_s - story.from_s, step: each.step });
    sampled.set(each.generation, points);
  }
  const lines: ProgressLine[] = [];
  for (const each of story.generations) {
    const points = sampled.get(each.number) ?? [];
    if (each.first_step_s !== null)
      points.unshift({ time: each.first_step_s - story.from_s, step: each.start_step + 1 });
    if (each.last_step_s !== null && each.last_step !== null) {
      points.push({ time: each.last_step_s - story.from_s, step: each.last_step });
    }
    const kept = each.kept_until_step ?? Number.POSITIVE_INFINITY;
    const counted = points.filter((point) => point.step <= kept);
    const repeated = points.filter((point) => point.step > kept);
    const last = counted.at(-1);
    if (counted.length > 0) lines.push({ generation: each.number, isRepeated: false, points: counted });
    if (repeated.length > 0) {
      lines.push({ generation: each.number, isRepeated: true, points: last ? [last, ...repeated] : repeated });
    }
  }
  return lines;
}
