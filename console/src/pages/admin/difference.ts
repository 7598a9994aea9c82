/** What differs between two states of an object, field by field. */

import { timeText } from "../../text/time";

export interface Difference {
  /** Place of the field, for example `budget.device_hours`; empty for the whole object. */
  path: string;
  /** Value as text; undefined if the field did not exist. */
  before: string | undefined;
  after: string | undefined;
}

/** Return the fields that differ, in the order in which they appear. */
export function differencesOf(before: unknown, after: unknown): Difference[] {
  const first = flat(before);
  const second = flat(after);
  return [...new Set([...first.keys(), ...second.keys()])]
    .filter((path) => first.get(path) !== second.get(path))
    .map((path) => ({ path, before: first.get(path), after: second.get(path) }));
}

function flat(value: unknown, path = "", found = new Map<string, string>()): Map<string, string> {
  if (value === null || value === undefined) {
    if (path !== "") found.set(path, "none");
  } else if (Array.isArray(value)) {
    found.set(path, value.map(textOf).join(", ") || "none");
  } else if (typeof value === "object") {
    for (const [name, each] of Object.entries(value)) flat(each, path === "" ? name : `${path}.${name}`, found);
  } else {
    found.set(path, isTime(path, value) ? timeText(value as number) : textOf(value));
  }
  return found;
}

/** Times have names such as `created_at`, and are seconds since 1970. */
function isTime(path: string, value: unknown): boolean {
  return /_(at|until)$/.test(path) && typeof value === "number" && value > 0;
}

function textOf(value: unknown): string {
  return typeof value === "object" && value !== null ? JSON.stringify(value) : String(value);
}
