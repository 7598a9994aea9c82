/** Windows of time in an address: this month, last month, the last days, or two dates. Days are those of the browser. */

import { dayText } from "./time";

export const WINDOWS = {
  month: "This month",
  "last-month": "Last month",
  "1d": "Last day",
  "7d": "Last 7 days",
  "30d": "Last 30 days",
  custom: "Custom",
} as const;

export type WindowName = keyof typeof WINDOWS;

export interface TimeWindow {
  name: WindowName;
  from_s: number;
  /** End of the window; undefined for now. */
  to_s: number | undefined;
}

const HOUR_S = 3_600;
const DAY_S = 24 * HOUR_S;

/** Return the window of an address. */
export function windowOf(query: URLSearchParams, usual: WindowName, now_s: number = Date.now() / 1000): TimeWindow {
  const given = query.get("window") ?? "";
  const name = given in WINDOWS ? (given as WindowName) : usual;
  const now = new Date(now_s * 1000);
  const month = (offset: number) => new Date(now.getFullYear(), now.getMonth() + offset, 1).getTime() / 1000;
  if (name === "month") return { name, from_s: month(0), to_s: undefined };
  if (name === "last-month") return { name, from_s: month(-1), to_s: month(0) };
  if (name === "custom") {
    const from_s = dayStart(query.get("from")) ?? month(0);
    const last = dayStart(query.get("to"));
    return { name, from_s, to_s: last === undefined ? undefined : nextDay(last) };
  }
  // The start of the hour, so that the window does not move while the page is open.
  return { name, from_s: Math.floor(now_s / HOUR_S) * HOUR_S - Number.parseInt(name, 10) * DAY_S, to_s: undefined };
}

/** Return the start of each part of a window, and its end: days, or more if there would be more than `most` parts. */
export function partsOf(from_s: number, to_s: number, most = 31): number[] {
  const days = [from_s];
  for (let next = nextDay(startOfDay(from_s)); next < to_s; next = nextDay(next)) days.push(next);
  const step = Math.ceil(days.length / most);
  return [...days.filter((_, index) => index % step === 0), to_s];
}

/** Return the first and the last day of a window as text. */
export function windowText(from_s: number, to_s: number): string {
  return `${dayText(from_s)} to ${dayText(Math.max(from_s, to_s - 1))}`;
}

function dayStart(text: string | null): number | undefined {
  const found = /^(\d{4})-(\d{2})-(\d{2})$/.exec(text ?? "");
  if (found === null) return undefined;
  return new Date(Number(found[1]), Number(found[2]) - 1, Number(found[3])).getTime() / 1000;
}

function startOfDay(time_s: number): number {
  return new Date(time_s * 1000).setHours(0, 0, 0, 0) / 1000;
}

/** A day may have 23 or 25 hours. */
function nextDay(start_s: number): number {
  const day = new Date(start_s * 1000);
  return new Date(day.getFullYear(), day.getMonth(), day.getDate() + 1).getTime() / 1000;
}
