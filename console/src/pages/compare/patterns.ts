/** Patterns of lines, so that the colour is not the only difference between jobs. */

const PATTERNS: readonly (readonly number[])[] = [
  [],
  [9, 4],
  [2, 3],
  [10, 3, 2, 3],
  [16, 4],
  [5, 5],
  [10, 3, 2, 3, 2, 3],
  [4, 2, 1, 2],
];

/** Return the lengths of dashes and gaps of the line with a number from 1. */
export function patternOf(series: number): readonly number[] {
  return PATTERNS[(series - 1) % PATTERNS.length] ?? [];
}
