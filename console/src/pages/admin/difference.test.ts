import { expect, test } from "vitest";
import { differencesOf } from "./difference";

test("only fields that differ are named, with both values", () => {
  const before = { limit: 3, weight: 1, budget: { device_hours: 5 }, admits: [] };
  const after = { limit: 5, weight: 1, budget: null, admits: ["H100", "A100"] };
  expect(differencesOf(before, after)).toEqual([
    { path: "limit", before: "3", after: "5" },
    { path: "budget.device_hours", before: "5", after: undefined },
    { path: "admits", before: "none", after: "H100, A100" },
    { path: "budget", before: undefined, after: "none" },
  ]);
});

test("an object that is new or gone has all its fields", () => {
  expect(differencesOf(null, { role: "viewer" })).toEqual([{ path: "role", before: undefined, after: "viewer" }]);
  expect(differencesOf({ role: "viewer" }, null)).toEqual([{ path: "role", before: "viewer", after: undefined }]);
  expect(differencesOf({ a: { b: [{ c: 1 }] } }, { a: { b: [{ c: 1 }] } })).toEqual([]);
});

test("times are those of the browser", () => {
  const at_s = new Date(2026, 0, 2, 3, 4, 5).getTime() / 1000;
  expect(differencesOf(null, { created_at: at_s })[0]?.after).toBe("2026-01-02 03:04:05");
});
