/** The language of the filter: `state:RUNNING project:vision label:team=nlp author:me name:gpt`. Pure. */

import type { Schema } from "../../api/types";

export type JobState = Schema<"JobState">;

/** Filters of `GET /v1/jobs`. */
export interface ListFilters {
  state?: JobState[];
  project?: string;
  name?: string;
  author?: string;
  label?: string[];
}

/** A part of the text that is wrong: what it is, and the remedy. */
export interface FilterFault {
  part: string;
  message: string;
}

/** A part of the text between spaces. A quoted value may contain spaces. */
interface Part {
  text: string;
  start: number;
}

export const FILTER_KEYS = ["state", "project", "name", "author", "label"] as const;
type FilterKey = (typeof FILTER_KEYS)[number];

/** All states, in the order of a job's life. */
export const JOB_STATES = [
  "QUEUED",
  "PLACING",
  "STARTING",
  "RUNNING",
  "RECOVERING",
  "RESIZING",
  "DRAINING",
  "SUSPENDED",
  "SUCCEEDED",
  "FAILED",
  "CANCELLED",
] as const satisfies readonly JobState[];

/** Read a filter. Parts that are wrong have no effect. */
export function parseFilter(text: string): { filters: ListFilters; faults: FilterFault[] } {
  const filters: ListFilters = {};
  const faults: FilterFault[] = [];
  for (const part of partsOf(text)) {
    const message = addPart(filters, part.text);
    if (message !== undefined) faults.push({ part: part.text, message });
  }
  return { filters, faults };
}

/** Values that the completion offers, by key. */
export type KnownValues = Partial<Record<FilterKey, readonly string[]>>;

/** A completion: the whole text with it, and the text of the option. */
export interface Completion {
  label: string;
  text: string;
  caret: number;
}

/** Return what can follow at the caret: keys, or values of a key. */
export function completeFilter(text: string, caret: number, known: KnownValues): Completion[] {
  const part = partsOf(text).find((each) => each.start <= caret && caret <= each.start + each.text.length);
  const start = part?.start ?? caret;
  const typed = text.slice(start, caret);
  const end = part === undefined ? caret : part.start + part.text.length;
  const colon = typed.indexOf(":");
  const options =
    colon < 0 ? FILTER_KEYS.map((key) => `${key}:`) : valuesOf(typed.slice(0, colon).toLowerCase(), known);
  return options
    .filter((option) => option.toLowerCase().startsWith(typed.toLowerCase()) && option !== typed)
    .map((option) => {
      const tail = option.endsWith(":") ? "" : " ";
      const after = text.slice(end).replace(/^ +/, "");
      return {
        label: option,
        text: text.slice(0, start) + option + tail + after,
        caret: start + option.length + tail.length,
      };
    });
}

function partsOf(text: string): Part[] {
  return [...text.matchAll(/(?:"[^"]*"?|[^\s"])+/g)].map((found) => ({ text: found[0], start: found.index }));
}

function addPart(filters: ListFilters, part: string): string | undefined {
  const colon = part.indexOf(":");
  const key = part.slice(0, Math.max(colon, 0)).toLowerCase();
  if (colon < 0) return `has no key; for a name, write name:${part}`;
  const value = part.slice(colon + 1).replaceAll('"', "");
  if (!isKey(key)) return `has an unknown key; use ${FILTER_KEYS.join(", ")}`;
  if (value === "") return `has no value after ${key}:`;
  if (key === "state") return addStates(filters, value);
  if (key === "label") {
    if (!/^[^=]+=/.test(value)) return "must be label:KEY=VALUE";
    filters.label = [...(filters.label ?? []), value];
    return undefined;
  }
  if (filters[key] !== undefined) return `is a second ${key}; a job has one, so remove one of them`;
  if (key !== "author" && !/^[a-z0-9]([a-z0-9-]*[a-z0-9])?$/.test(value)) {
    return `is no name of a ${key === "name" ? "job" : key}: it has lower-case letters, digits and hyphens, and matches as a whole`;
  }
  filters[key] = value;
  return undefined;
}

function addStates(filters: ListFilters, value: string): string | undefined {
  const states = value.toUpperCase().split(",");
  const unknown = states.find((state) => !isState(state));
  if (unknown !== undefined) return `has an unknown state ${unknown}; use ${JOB_STATES.join(", ")}`;
  filters.state = [...new Set([...(filters.state ?? []), ...states.filter(isState)])];
  return undefined;
}

function valuesOf(key: string, known: KnownValues): string[] {
  if (!isKey(key)) return [];
  const values = key === "state" ? JOB_STATES : (known[key] ?? []);
  return values.map((value) => `${key}:${/\s/.test(value) ? `"${value}"` : value}`);
}

function isKey(text: string): text is FilterKey {
  return (FILTER_KEYS as readonly string[]).includes(text);
}

function isState(text: string): text is JobState {
  return (JOB_STATES as readonly string[]).includes(text);
}
