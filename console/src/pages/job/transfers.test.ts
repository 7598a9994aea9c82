import { expect, test } from "vitest";
import { transfersOf } from "./transfers";

const save = { step: 40, generation: 2, message: "", done_bytes: 1, total_bytes: 4, bytes_per_s: 2 };
const figures = { done_bytes: 3, total_bytes: 5, bytes_per_s: 1 };

test("a checkpoint that is written is named by its step", () => {
  expect(transfersOf({ phase: null, save })).toEqual([
    { label: "Writing checkpoint of step 40", doneBytes: 1, totalBytes: 4, bytesPerS: 2 },
  ]);
});

test("a restore comes before a save that goes on meanwhile", () => {
  const phase = { phase: "restoring", ...figures };
  expect(transfersOf({ phase, save }).map((each) => [each.label, each.doneBytes])).toEqual([
    ["Restoring state from checkpoint", 3],
    ["Writing checkpoint of step 40", 1],
  ]);
});

test("other phases, and a restore without figures, have no bar", () => {
  expect(transfersOf({ phase: { phase: "data", ...figures }, save: null })).toEqual([]);
  expect(transfersOf({ phase: { phase: "restoring", total_bytes: null }, save: null })).toEqual([]);
  expect(transfersOf({ phase: null })).toEqual([]);
});
