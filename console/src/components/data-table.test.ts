import { expect, test } from "vitest";
import { nextRow } from "./data-table";

test("arrow keys choose the next row, and stop at the ends", () => {
  expect([nextRow("ArrowDown", -1, 5, 2), nextRow("ArrowDown", 4, 5, 2)]).toEqual([0, 4]);
  expect([nextRow("ArrowUp", -1, 5, 2), nextRow("ArrowUp", 2, 5, 2), nextRow("ArrowUp", 0, 5, 2)]).toEqual([4, 1, 0]);
});

test("pages and ends", () => {
  expect([nextRow("PageDown", 1, 9, 3), nextRow("PageUp", 1, 9, 3)]).toEqual([4, 0]);
  expect([nextRow("Home", 5, 9, 3), nextRow("End", 5, 9, 3)]).toEqual([0, 8]);
});

test("other keys and an empty table choose none", () => {
  expect([nextRow("a", 1, 5, 2), nextRow("Tab", 1, 5, 2)]).toEqual([-1, -1]);
});
