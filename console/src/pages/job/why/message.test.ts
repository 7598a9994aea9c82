import { expect, test } from "vitest";
import { groupedItems, messageItems, textParts } from "./message";

test("commands and jobs in a text", () => {
  expect(textParts("run `regroup why j` after job_4k2m9qxa ends")).toEqual([
    { kind: "text", text: "run " },
    { kind: "code", text: "regroup why j" },
    { kind: "text", text: " after " },
    { kind: "job", text: "job_4k2m9qxa" },
    { kind: "text", text: " ends" },
  ]);
  expect(textParts("")).toEqual([]);
});

test("the nodes of a message", () => {
  const message = "needs 4 ranks; 2 of 8 are free now: a holds 1 (CPU: 1 of 4 free); b holds 1 (CPU: 1 of 4 free)";
  const found = messageItems(message);
  expect(found.head).toBe("needs 4 ranks; 2 of 8 are free now");
  expect(groupedItems(found.items)).toEqual([{ names: ["a", "b"], text: "holds 1 (CPU: 1 of 4 free)" }]);
});

test("a message without a list stays whole", () => {
  expect(messageItems("rank 1 works 2 s; check its node; and more")).toEqual({
    head: "rank 1 works 2 s; check its node; and more",
    items: [],
  });
});
