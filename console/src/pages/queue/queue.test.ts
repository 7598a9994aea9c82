import { expect, test } from "vitest";
import type { Schema } from "../../api/types";
import { changesOf, fieldsOf, settingsOf } from "./settings";
import { laneOf, scaleOf } from "./shares";

const project = {
  name: "vision",
  guaranteed: 8,
  limit: 32,
  weight: 2,
  spares: 1,
  borrowable: 4,
  admits: { max_ranks: 16 },
  defaults: { priority: "low" },
  allocated: 12,
  running: 2,
  queued: 1,
  budget: null,
  etag: "x",
} as unknown as Schema<"Project">;

test("a lane splits the devices in use at the guarantee", () => {
  const lane = laneOf(project, { project: "vision", jobs: 1, devices: 40 });
  expect([lane.own, lane.borrowed, lane.waiting, lane.waitingJobs]).toEqual([8, 4, 40, 1]);
  expect(scaleOf([lane])).toBe(52);
});

test("settings that the form does not show stay", () => {
  const settings = settingsOf({ ...fieldsOf(project), limit: "", budget: "100" }, project);
  expect(settings).toMatchObject({
    guaranteed: 8,
    limit: null,
    spares: 1,
    borrowable: 4,
    admits: { max_ranks: 16 },
    budget: { device_hours: 100 },
  });
});

test.each([
  [{ limit: "64" }, ["limit=64"]],
  [{ limit: "", weight: "3" }, ["limit=null", "weight=3"]],
  [{ budget: "5", budgetUnit: "cost" }, ['budget={"cost":5}']],
  [{}, []],
])("the fields %s are the words %s", (fields, words) => {
  const before = fieldsOf(project);
  expect(changesOf({ ...before, ...fields }, before)).toEqual(words);
});

test("an empty budget removes it", () => {
  const before = { ...fieldsOf(project), budget: "5" };
  expect(changesOf({ ...before, budget: "" }, before)).toEqual(["budget=null"]);
});
