/** Stacks of ranks, grouped by equal stacks: a rank that hangs alone is in a small group. Pure. */

import type { Schema } from "../../../api/types";

export type RankStack = Schema<"RankStack">;

export interface StackGroup {
  ranks: RankStack[];
  /** Lines of one of its stacks. */
  lines: string[];
  /** True if most ranks are in another group. */
  isOutlier: boolean;
}

/** Group ranks whose stacks are equal but for addresses and ids of threads; the smallest group first. */
export function groupStacks(stacks: readonly RankStack[]): StackGroup[] {
  const groups = new Map<string, RankStack[]>();
  for (const each of stacks) {
    const key = comparable(each.text);
    groups.set(key, [...(groups.get(key) ?? []), each]);
  }
  const most = Math.max(0, ...[...groups.values()].map((ranks) => ranks.length));
  const isOutlier = (ranks: RankStack[]) => groups.size > 1 && (ranks.length < most || 2 * most <= stacks.length);
  return [...groups.values()]
    .map((ranks) => ({ ranks, lines: (ranks[0]?.text ?? "").trimEnd().split("\n"), isOutlier: isOutlier(ranks) }))
    .sort((one, two) => one.ranks.length - two.ranks.length);
}

/** Return which lines of a group are not in the other one. */
export function differentLines(group: StackGroup, other: StackGroup | undefined): boolean[] {
  if (other === undefined || other === group) return group.lines.map(() => false);
  const present = new Set(other.lines.map(comparable));
  return group.lines.map((line) => line.trim() !== "" && !present.has(comparable(line)));
}

function comparable(text: string): string {
  return text
    .replace(/0x[0-9a-f]+/gi, "0x")
    .replace(/\b(process|pid|thread) \d+/gi, "$1")
    .trim();
}
