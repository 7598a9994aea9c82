/** Deadlines as a person types them: a time of the browser's clock, or a duration. */

const CLOCK = /^([01]?\d|2[0-3]):([0-5]\d)$/;
const PART = /(\d+(?:\.\d+)?)\s*(s|min|m|h|d)/y;
const SECONDS: Record<string, number> = { s: 1, min: 60, m: 60, h: 3600, d: 86_400 };
const LONGEST_S = 7 * 86_400;

/** Return the seconds until a deadline such as `17:00` or `1h 30min`; undefined if the text is not one. */
export function secondsUntil(text: string, now: Date = new Date()): number | undefined {
  const clock = CLOCK.exec(text.trim());
  const seconds = clock ? untilClock(Number(clock[1]), Number(clock[2]), now) : durationOf(text.trim());
  return seconds !== undefined && seconds > 0 && seconds <= LONGEST_S ? seconds : undefined;
}

function untilClock(hours: number, minutes: number, now: Date): number {
  const at = new Date(now);
  at.setHours(hours, minutes, 0, 0);
  if (at <= now) at.setDate(at.getDate() + 1);
  return Math.round((at.getTime() - now.getTime()) / 1000);
}

function durationOf(text: string): number | undefined {
  let sum = 0;
  let end = 0;
  while (end < text.length) {
    PART.lastIndex = end;
    const part = PART.exec(text);
    if (part === null) return undefined;
    sum += Number(part[1]) * (SECONDS[part[2] ?? ""] ?? 0);
    end = PART.lastIndex;
    while (text[end] === " ") end += 1;
  }
  return end === 0 ? undefined : Math.round(sum);
}
