import { expect, test } from "vitest";
import { budgetOf, budgetText, hasChangeableBudget } from "./budget";

test("the newest request counts before the spec", () => {
  const spec = { budget: { device_hours: 5, cost: null } } as never;
  expect(budgetOf({ intents: {}, spec })).toEqual({ unit: "device_hours", amount: 5 });
  expect(budgetOf({ intents: { budget: { cost: 70 } }, spec })).toEqual({ unit: "cost", amount: 70 });
  expect(budgetOf({ intents: {}, spec: null })).toBeUndefined();
});

test("a budget is text with its unit", () => {
  expect(budgetText({ unit: "device_hours", amount: 500 })).toBe("500 device-hours");
  expect(budgetText({ unit: "cost", amount: 70 })).toBe("70 (cost)");
});

test("a job that has ended has no budget to change", () => {
  expect([hasChangeableBudget({ state: "RUNNING" }), hasChangeableBudget({ state: "FAILED" })]).toEqual([true, false]);
});
