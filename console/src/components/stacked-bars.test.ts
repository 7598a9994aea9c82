import { expect, test } from "vitest";
import { largestParts } from "./stacked-bars";

test("the largest parts come first, and the rest is one part", () => {
  const bars = [
    { label: "1", values: { a: 1, b: 5 } },
    { label: "2", values: { a: 2, c: 4, d: 0.5 } },
  ];
  expect(largestParts(bars, 2)).toEqual([
    ["b", 5],
    ["c", 4],
    ["other", 3.5],
  ]);
  expect(largestParts(bars)).toEqual([
    ["b", 5],
    ["c", 4],
    ["a", 3],
    ["d", 0.5],
  ]);
  expect(largestParts([])).toEqual([]);
});
