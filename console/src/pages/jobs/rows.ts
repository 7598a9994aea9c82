/** The rows of a list of jobs, newest first, and how answers of the server change them. Pure. */

import type { Schema } from "../../api/types";

export type Row = Schema<"JobSummary">;

/** Jobs from the newest to the last one that was loaded. */
export interface Rows {
  list: readonly Row[];
  /** True if all jobs that match the filter are in the list. */
  isComplete: boolean;
}

/** Add an older page. */
export function addPage(rows: Rows, page: readonly Row[], isLast: boolean): Rows {
  const known = new Set(rows.list.map((row) => row.id));
  return { list: [...rows.list, ...page.filter((row) => !known.has(row.id))], isComplete: isLast };
}

/** Return whether a job has, or may get, a place among the rows. Ids grow with time. */
export function concerns(rows: Rows, id: string): boolean {
  const oldest = rows.list.at(-1);
  return rows.isComplete || oldest === undefined || id >= oldest.id;
}

/** Replace jobs by their newest state. Jobs that were asked for and not found do not match the filter any more. */
export function applyStates(rows: Rows, asked: Iterable<string>, found: readonly Row[]): Rows {
  const isAsked = new Set(asked);
  const byId = new Map(found.map((row) => [row.id, row]));
  const list: Row[] = [];
  let isSame = true;
  for (const row of rows.list) {
    const next = isAsked.has(row.id) ? byId.get(row.id) : row;
    byId.delete(row.id);
    if (next === undefined) {
      isSame = false;
      continue;
    }
    const kept = next.etag === row.etag ? row : next;
    isSame &&= kept === row;
    list.push(kept);
  }
  const added = [...byId.values()].filter((row) => concerns(rows, row.id));
  if (added.length > 0) {
    list.push(...added);
    list.sort((a, b) => (a.id < b.id ? 1 : -1));
  } else if (isSame) return rows;
  return { ...rows, list };
}

/** Return the outdated jobs that a reader can notice: those in view, then those that have no row yet. */
export function visibleFirst(
  outdated: ReadonlySet<string>,
  rows: readonly Row[],
  inView: readonly string[],
): readonly string[] {
  if (outdated.size === 0) return [];
  const known = new Set(rows.map((row) => row.id));
  return [...inView.filter((id) => outdated.has(id)), ...[...outdated].filter((id) => !known.has(id))];
}
