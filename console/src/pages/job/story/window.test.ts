import { expect, test } from "vitest";
import { clamped, panned, position, readSpan, spanQuery, ticks, timeAt, zoomed } from "./window";

const WHOLE = { from: 0, to: 100 };

test("a zoom keeps the time under the pointer", () => {
  const near = zoomed({ from: 20, to: 60 }, 2, 30, WHOLE);
  expect(near).toEqual({ from: 25, to: 45 });
  expect(position(30, near, 400)).toBe(position(30, { from: 20, to: 60 }, 400));
  expect(zoomed(near, 0.01, 30, WHOLE)).toEqual(WHOLE);
});

test("a span stays inside the job, and has a shortest length", () => {
  expect(panned({ from: 70, to: 90 }, 1, WHOLE)).toEqual({ from: 80, to: 100 });
  expect(panned({ from: 5, to: 25 }, -0.5, WHOLE)).toEqual({ from: 0, to: 20 });
  expect(clamped({ from: 50, to: 50 }, WHOLE)).toEqual({ from: 50, to: 50.2 });
});

test("ticks are round and few", () => {
  expect(ticks({ from: 3, to: 47 }, 8)).toEqual([10, 20, 30, 40]);
  expect(ticks({ from: 0.9, to: 1.25 }, 5)).toEqual([0.9, 1, 1.1, 1.2]);
  expect(ticks({ from: 0, to: 20 * 86_400 }, 8).length).toBeLessThanOrEqual(4);
});

test("an address gives the visible part, and bad values the whole job", () => {
  expect(readSpan("10", "20.5", WHOLE)).toEqual({ from: 10, to: 20.5 });
  expect(readSpan(null, "20", WHOLE)).toEqual({ from: 0, to: 20 });
  expect(readSpan("x", "-5", WHOLE)).toEqual(WHOLE);
  expect(readSpan("30", "20", WHOLE)).toEqual(WHOLE);
  expect(spanQuery({ from: 10.128, to: 100 }, WHOLE)).toEqual({ from: "10.13", to: "" });
  expect(timeAt(50, WHOLE, 100)).toBe(50);
});
