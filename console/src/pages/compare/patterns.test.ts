import { expect, test } from "vitest";
import { patternOf } from "./patterns";

test("eight jobs have eight patterns", () => {
  const found = Array.from({ length: 8 }, (_, index) => patternOf(index + 1).join(" "));
  expect(new Set(found).size).toBe(8);
  expect(patternOf(1)).toEqual([]);
  expect(patternOf(9)).toEqual(patternOf(1));
});
