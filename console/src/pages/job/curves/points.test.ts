import { expect, test } from "vitest";
import type { Schema } from "../../../api/types";
import { smooth } from "../../../text/smooth";
import { axisOf, csvOf, linesOf, marksOf, predictionAt, rowsOf, tokensPerStep } from "./points";
import { readView } from "./view";

const points = (steps: number[], mean: number[] = steps) => ({
  steps,
  times_s: steps.map((step) => 1000 + step),
  mean,
  low: mean,
  high: mean,
});
const curve: Schema<"Curve"> = {
  metric: "loss",
  committed: points([1, 2, 3], [4, 3, 2]),
  repeated: [{ generation: 1, points: points([3, 4], [2.5, 1.5]) }],
  predicted: [
    { generation: 1, start_step: 0, value: 7 },
    { generation: 2, start_step: 2, value: 8 },
  ],
};

test("repeated steps are faint lines below the committed line, and predictions are dashed", () => {
  const found = linesOf(curve, axisOf("step", undefined), 0, 1);
  expect(found.x).toEqual([1, 2, 3, 4]);
  expect(found.lines.map((line) => [line.style, line.values])).toEqual([
    ["faint", [null, null, 2.5, 1.5]],
    ["solid", [4, 3, 2, null]],
    ["dashed", [7, 7, 8, null]],
  ]);
  expect(predictionAt([], 1)).toBeNull();
});

test("the axis can be time or tokens, where each step has the same number of them", () => {
  expect(linesOf(curve, axisOf("time", undefined), 0, 1).x).toEqual([1001, 1002, 1003, 1004]);
  expect(linesOf(curve, axisOf("tokens", 64), 0, 1).x).toEqual([64, 128, 192, 256]);
  expect(axisOf("tokens", undefined).kind).toBe("step");
  expect(tokensPerStep({ ...curve, committed: points([1, 2], [64, 64]) })).toBe(64);
  expect(tokensPerStep(curve)).toBeUndefined();
});

test("smoothing starts at the first value and skips missing ones", () => {
  expect(smooth([4, null, 4], 0.9)[0]).toBeCloseTo(4);
  expect(smooth([4, null, 4], 0.9)[1]).toBeNull();
  expect(smooth([0, 10], 0.5)[1]).toBeCloseTo(20 / 3);
  expect(smooth([1, 2], 0)).toEqual([1, 2]);
});

test("generations after the first one and incidents are marks", () => {
  const generations = [
    { number: 1, start_step: 0 },
    { number: 2, start_step: 2 },
  ] as Schema<"Generation">[];
  const incidents = [
    { number: 1, at_step: 3 },
    { number: 2, at_step: null },
  ] as unknown as Schema<"Incident">[];
  expect(marksOf(generations, incidents, curve.committed, axisOf("step", undefined))).toEqual([
    { x: 2, label: "g2", kind: "generation" },
    { x: 3, label: "incident 1", kind: "incident" },
  ]);
});

test("a table has committed steps, and CSV has all", () => {
  const other = { ...curve, metric: "a,b", committed: points([3], [9]), repeated: [] };
  expect(rowsOf([curve, other]).map((row) => row.values)).toEqual([{ loss: 4 }, { loss: 3 }, { loss: 2, "a,b": 9 }]);
  expect(csvOf([curve, other]).trim().split("\n")).toEqual([
    "metric,repeated_generation,step,time_s,mean,low,high",
    "loss,,1,1001,4,4,4",
    "loss,,2,1002,3,3,3",
    "loss,,3,1003,2,2,2",
    "loss,1,3,1003,2.5,2.5,2.5",
    "loss,1,4,1004,1.5,1.5,1.5",
    '"a,b",,3,1003,9,9,9',
  ]);
});

test("an address with values that are not valid shows everything", () => {
  const view = readView(new URLSearchParams("metrics=loss,mfu&from=3&to=x&smooth=2&scale=log&x=moon"));
  expect(view).toEqual({
    metrics: ["loss", "mfu"],
    from: 3,
    to: undefined,
    smooth: 0,
    isLogarithmic: true,
    axis: "step",
  });
});
