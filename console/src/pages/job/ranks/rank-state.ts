/** The states of ranks: a letter, a word and a tone, so that colour is never alone. */

import type { Schema } from "../../../api/types";
import type { Tone } from "../../../components/badge";

export type RankView = Schema<"RankView">;

export interface Shown {
  letter: string;
  label: string;
  tone: Tone;
  meaning: string;
}

export const STATES: Record<RankView["state"], Shown> = {
  slow: { letter: "S", label: "Slow", tone: "bad", meaning: "works longer than the others, which wait for it" },
  crowded: {
    letter: "C",
    label: "Crowded",
    tone: "warning",
    meaning: "waits for a processor that another process uses",
  },
  behind: { letter: "B", label: "Behind", tone: "warning", meaning: "stays at an older step than the others" },
  works: { letter: "W", label: "Works", tone: "good", meaning: "computes for most of a step" },
  waits: { letter: "–", label: "Waits", tone: "active", meaning: "waits for other ranks for most of a step" },
  unknown: { letter: "?", label: "Unknown", tone: "neutral", meaning: "has not reported yet, or has ended" },
};

const ORDER = Object.keys(STATES);

export type SortKey = "rank" | "node" | "state" | "work" | "wait" | "factor";

/** Return ranks in an order: numbers from the largest, ranks and nodes from the first. */
export function sortRanks(ranks: readonly RankView[], key: SortKey): RankView[] {
  const number = (value: number | null) => value ?? -1;
  const compare: Record<SortKey, (one: RankView, two: RankView) => number> = {
    rank: (one, two) => one.rank - two.rank,
    node: (one, two) => one.node.localeCompare(two.node, "en", { numeric: true }),
    state: (one, two) => ORDER.indexOf(one.state) - ORDER.indexOf(two.state),
    work: (one, two) => number(two.work_s) - number(one.work_s),
    wait: (one, two) => number(two.wait_s) - number(one.wait_s),
    factor: (one, two) => number(two.factor) - number(one.factor),
  };
  return [...ranks].sort((one, two) => compare[key](one, two) || one.rank - two.rank);
}

/** Group ranks by their node, in the order of the first rank of each. */
export function ranksByNode(ranks: readonly RankView[]): [string, RankView[]][] {
  const groups = new Map<string, RankView[]>();
  for (const each of ranks) {
    const group = groups.get(each.node);
    if (group === undefined) groups.set(each.node, [each]);
    else group.push(each);
  }
  return [...groups];
}

/** Read a list of ranks from the address: `3,7-9`. */
export function parseRanks(text: string): number[] {
  const found = new Set<number>();
  for (const part of text.split(",")) {
    const match = /^(\d{1,6})(?:-(\d{1,6}))?$/.exec(part);
    if (match === null) continue;
    const [first, last] = [Number(match[1]), Number(match[2] ?? match[1])];
    for (let rank = first; rank <= Math.min(last, first + 4095); rank += 1) found.add(rank);
  }
  return [...found].sort((one, two) => one - two);
}

/** Return a list of ranks as text; neighbours become a range. */
export function ranksText(ranks: readonly number[]): string {
  const parts: string[] = [];
  const sorted = [...ranks].sort((one, two) => one - two);
  for (let index = 0; index < sorted.length; index += 1) {
    const first = sorted[index] as number;
    while (sorted[index + 1] === (sorted[index] as number) + 1) index += 1;
    const last = sorted[index] as number;
    parts.push(first === last ? `${first}` : `${first}-${last}`);
  }
  return parts.join(",");
}
