import { expect, test } from "vitest";
import { linePath } from "./line-path";

test("the largest value is at the top, and the line goes from left to right", () => {
  expect(linePath([3, 1, 2], 102, 22, 1)).toBe("M1 1h0L51 21L101 11");
});

test("a missing value interrupts the line", () => {
  expect(linePath([1, null, 2, null], 32, 12, 1)).toBe("M1 11h0M21 1h0");
});

test("equal values are a line in the middle", () => {
  expect(linePath([5, 5], 12, 10, 1)).toBe("M1 5h0L11 5");
});
