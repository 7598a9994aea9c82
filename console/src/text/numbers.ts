/** Quantities as text. A missing value is a dash. */

const SIZES = ["B", "kB", "MB", "GB", "TB", "PB"];
const SCALES: readonly (readonly [number, string])[] = [
  [1e12, "T"],
  [1e9, "G"],
  [1e6, "M"],
  [1e3, "k"],
];

type Maybe = number | null | undefined;

/** Return a number with at most `digits` significant digits: `1.234`, `12 300`, `4.5e-7`. */
export function numberText(value: Maybe, digits = 4): string {
  if (value === null || value === undefined) return "–";
  if (!Number.isFinite(value)) return String(value);
  if (value !== 0 && (Math.abs(value) < 1e-4 || Math.abs(value) >= 1e12)) return value.toExponential(digits - 1);
  return Number(value.toPrecision(Math.max(digits, Math.ceil(Math.log10(Math.abs(value) || 1)))))
    .toLocaleString("en-US", { maximumFractionDigits: 10 })
    .replaceAll(",", " ");
}

/** Return a number with a letter for its thousands: `12.3k`. */
export function compactText(value: Maybe): string {
  if (value === null || value === undefined) return "–";
  for (const [scale, letter] of SCALES) {
    if (Math.abs(value) >= scale) return `${Number((value / scale).toPrecision(3))}${letter}`;
  }
  return numberText(value, 3);
}

/** Return a number of bytes: `1.5 GB`. */
export function bytesText(value: Maybe): string {
  if (value === null || value === undefined) return "–";
  let size = value;
  let unit = 0;
  while (Math.abs(size) >= 1000 && unit < SIZES.length - 1) {
    size /= 1000;
    unit += 1;
  }
  return `${Number(size.toPrecision(3))} ${SIZES[unit]}`;
}

/** Return a fraction as percent: `98.5 %`. */
export function percentText(value: Maybe): string {
  return value === null || value === undefined ? "–" : `${Number((value * 100).toPrecision(3))} %`;
}

/** Return a count with its noun: `1 node`, `2 nodes`. */
export function countText(count: number, noun: string, plural = `${noun}s`): string {
  return `${numberText(count, 12)} ${count === 1 ? noun : plural}`;
}
