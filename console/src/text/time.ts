/** Times and durations as text. Times are seconds since 1970, as in the API. */

const UNITS: readonly (readonly [number, string])[] = [
  [86_400, "d"],
  [3_600, "h"],
  [60, "min"],
  [1, "s"],
];

/** Return a duration in its two largest units, for example `2 h 5 min`; below a minute with three digits: `4.25 s`. */
export function durationText(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  if (seconds < 0) return `−${durationText(-seconds)}`;
  if (seconds < 0.9995) return `${Number((seconds * 1000).toPrecision(3))} ms`;
  if (seconds < 59.95) return `${Number(seconds.toPrecision(3))} s`;
  let rest = Math.round(seconds);
  const parts: string[] = [];
  for (const [size, unit] of UNITS) {
    const count = Math.floor(rest / size);
    rest -= count * size;
    if (count > 0) parts.push(`${count} ${unit}`);
    if (parts.length === 2 || (parts.length === 1 && count === 0)) break;
  }
  return parts.join(" ");
}

/** Return how long ago a time was, for example `5 min ago`. */
export function agoText(time_s: number | null | undefined, now_s: number = Date.now() / 1000): string {
  if (time_s === null || time_s === undefined) return "–";
  const passed = now_s - time_s;
  if (passed < 0) return `in ${durationText(roughly(-passed))}`;
  return passed < 1 ? "now" : `${durationText(roughly(passed))} ago`;
}

/** Return a time of the browser's zone: the hour today, else the day and the hour. */
export function timeText(time_s: number | null | undefined, now_s: number = Date.now() / 1000): string {
  if (time_s === null || time_s === undefined) return "–";
  const time = new Date(time_s * 1000);
  const hour = time.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
  if (time.toDateString() === new Date(now_s * 1000).toDateString()) return hour;
  return `${dayText(time_s)} ${hour}`;
}

/** Return the day of a time in the browser's zone, `2026-11-27`. */
export function dayText(time_s: number): string {
  const time = new Date(time_s * 1000);
  const two = (value: number) => String(value).padStart(2, "0");
  return `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())}`;
}

function roughly(seconds: number): number {
  return seconds < 60 ? Math.max(1, Math.floor(seconds)) : seconds;
}
