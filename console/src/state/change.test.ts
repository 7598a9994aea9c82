import { expect, test } from "vitest";
import { type Change, concernsNodes, concernsQueue } from "./change";

const submitted: Change = { number: 1, topic: "job", kind: "state", job: "a", event: 1, state: "QUEUED" };
const placed: Change = { ...submitted, event: 2, state: "PLACING" };
const saved: Change = { ...submitted, event: 9, kind: "checkpoint", state: "RUNNING" };

test("a submitted job concerns the queue, and no node", () => {
  expect([concernsQueue(submitted), concernsNodes(submitted)]).toEqual([true, false]);
});

test("a placed job and a drained node concern both", () => {
  const drained: Change = { number: 2, topic: "node", kind: "drain" };
  expect([placed, drained].map(concernsQueue)).toEqual([true, true]);
  expect([placed, drained].map(concernsNodes)).toEqual([true, true]);
});

test("a checkpoint concerns neither", () => {
  expect([concernsQueue(saved), concernsNodes(saved)]).toEqual([false, false]);
});

test("a quota concerns the queue, and no node", () => {
  const quota: Change = { number: 3, topic: "project", kind: "put", project: "vision" };
  expect([concernsQueue(quota), concernsNodes(quota)]).toEqual([true, false]);
});
