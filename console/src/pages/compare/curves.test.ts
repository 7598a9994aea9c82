import { expect, test } from "vitest";
import type { Schema } from "../../api/types";
import { cut, fieldsOf, firstDifference, linesOfJobs, rangeOf, summaryOf } from "./curves";

const points = (steps: number[], mean: number[]) => ({
  steps,
  times_s: steps.map((step) => 100 + step),
  mean,
  low: mean,
  high: mean,
});
const job = (name: string) => ({ name, started_at: 100 }) as Schema<"Job">;

test("jobs are lines over their common axis", () => {
  const jobs = [
    { job: job("one"), points: points([1, 2], [3, 2]) },
    { job: job("two"), points: points([2, 3], [5, 4]) },
  ];
  const found = linesOfJobs(jobs, "step", 0);
  expect(found.x).toEqual([1, 2, 3]);
  expect(found.lines.map((line) => [line.label, line.series, line.values])).toEqual([
    ["one", 1, [3, 2, null]],
    ["two", 2, [null, 5, 4]],
  ]);
  expect(linesOfJobs(jobs, "time", 0).x).toEqual([1, 2, 3]);
});

test("a range of the address cuts the lines", () => {
  const jobs = [{ job: job("one"), points: points([1, 2, 3, 4], [4, 3, 2, 1]) }];
  const { x, lines } = linesOfJobs(jobs, "step", 0);
  const shown = (address: string) => {
    const found = cut(x, lines, rangeOf(new URLSearchParams(address)));
    return [found.x, found.lines[0]?.values];
  };
  expect(shown("from=2&to=3")).toEqual([
    [2, 3],
    [3, 2],
  ]);
  expect(shown("from=4")).toEqual([[4], [1]]);
  expect(shown("from=x&to=-1")).toEqual([x, [4, 3, 2, 1]]);
});

test("curves differ at the first common step above the threshold", () => {
  const [one, two] = [points([1, 2, 3, 4], [4, 4, 4, 4]), points([1, 2, 4], [4, 4.1, 5])];
  expect(firstDifference(one, two, 0.05)).toEqual({ step: 4, after: 2 });
  expect(firstDifference(one, two, 0.01)).toEqual({ step: 2, after: 1 });
  expect(firstDifference(one, one, 0)).toBeUndefined();
});

test("the best value is the smallest, or the largest where more is better", () => {
  const found = points([1, 2, 3], [3, 1, 2]);
  expect(summaryOf(found, false)).toEqual({ last: 2, best: 1, bestStep: 2 });
  expect(summaryOf(found, true).best).toBe(3);
  expect(summaryOf(points([], []), false).best).toBeUndefined();
});

test("a field that differs in any job has a value for each", () => {
  const first = { first: "a", second: "b", differences: [{ path: "seed", first: 1, second: 2 }] };
  const second = { first: "a", second: "c", differences: [{ path: "name", first: "x", second: "y" }] };
  expect(fieldsOf([first, second])).toEqual([
    { path: "name", values: ["x", "x", "y"] },
    { path: "seed", values: [1, 2, 1] },
  ]);
});
