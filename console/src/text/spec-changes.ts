/** Changes of the fields of a spec, as a person writes them. Pure. */

import { readValue } from "./yaml";

export interface FieldChange {
  /** Names of the field and of those that contain it, with dots between them. */
  path: string;
  /** New value; null removes the field. */
  value: unknown;
}

const LONGEST_NAME = 63;

/** Return the changes of lines `path=value`, or the problem of the first line that is not one. */
export function readChanges(text: string): { changes: FieldChange[]; problem: string } {
  const changes: FieldChange[] = [];
  for (const line of text.split("\n")) {
    if (line.trim() === "") continue;
    const match = /^\s*([\w.-]+)\s*[=:]\s*(.*)$/.exec(line);
    if (match === null) return { changes, problem: `${JSON.stringify(line)} is not a path, =, and a value` };
    changes.push({ path: match[1] ?? "", value: readValue(match[2] ?? "") });
  }
  return { changes, problem: "" };
}

/** Return a spec with changed fields. */
export function changedSpec(spec: object, changes: readonly FieldChange[]): object {
  const changed = structuredClone(spec) as Record<string, unknown>;
  for (const { path, value } of changes) {
    const parents = path.split(".");
    const last = parents.pop() ?? "";
    let place = changed;
    for (const part of parents) {
      const inside = place[part];
      if (typeof inside !== "object" || inside === null || Array.isArray(inside)) place[part] = {};
      place = place[part] as Record<string, unknown>;
    }
    if (value === null) delete place[last];
    else place[last] = value;
  }
  return changed;
}

/** Return a name for a copy of a job. */
export function newName(name: string, step?: number): string {
  const end = step === undefined ? "-copy" : `-from-${step}`;
  return name.slice(0, LONGEST_NAME - end.length) + end;
}
