import { expect, it } from "vitest";
import { changedSpec, newName, readChanges } from "./spec-changes";

it("reads one change of each line", () => {
  expect(readChanges("training.steps=20\n\n layout.tp : 2\nenv.A=x=y").changes).toEqual([
    { path: "training.steps", value: 20 },
    { path: "layout.tp", value: 2 },
    { path: "env.A", value: "x=y" },
  ]);
  expect(readChanges("faster").problem).toContain('"faster"');
});

it("changes a copy of the spec", () => {
  const spec = { name: "a", training: { steps: 1, seed: 2 }, code: null };
  const changes = readChanges("training.steps=5\ntraining.seed=null\ncode.archive=x").changes;
  expect(changedSpec(spec, changes)).toEqual({ name: "a", training: { steps: 5 }, code: { archive: "x" } });
  expect(spec.training).toEqual({ steps: 1, seed: 2 });
});

it("names a copy within the longest name", () => {
  expect(newName("gpt", 400)).toBe("gpt-from-400");
  expect(newName("x".repeat(80))).toHaveLength(63);
});
