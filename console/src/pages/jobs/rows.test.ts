import { expect, test } from "vitest";
import { addPage, applyStates, concerns, type Row, type Rows, visibleFirst } from "./rows";

const row = (id: string, etag = "1"): Row => ({ id, etag }) as Row;
const rows = (...ids: string[]): Rows => ({ list: ids.map((id) => row(id)), isComplete: false });
const ids = (found: Rows): string[] => found.list.map((each) => each.id);

test("a page has each job once", () => {
  const found = addPage(rows("d", "c"), [row("c"), row("b")], true);
  expect(ids(found)).toEqual(["d", "c", "b"]);
  expect(found.isComplete).toBe(true);
});

test("newer jobs have a place, and older ones only if the list is complete", () => {
  expect(concerns(rows("d", "c"), "e")).toBe(true);
  expect(concerns(rows("d", "c"), "a")).toBe(false);
  expect(concerns({ ...rows("d"), isComplete: true }, "a")).toBe(true);
});

test("only jobs that were asked for change", () => {
  const before = rows("d", "c", "b");
  const found = applyStates(before, ["e", "c", "b"], [row("e"), row("c", "2")]);
  expect(ids(found)).toEqual(["e", "d", "c"]);
  expect(found.list[1]).toBe(before.list[0]);
  expect(found.list[2]?.etag).toBe("2");
});

test("equal states leave the rows as they are", () => {
  const before = rows("d", "c");
  expect(applyStates(before, ["d", "a"], [row("d")])).toBe(before);
});

test("a changed job out of view waits, one in view and a new one do not", () => {
  expect(visibleFirst(new Set(["e", "d", "b"]), rows("d", "c", "b").list, ["d", "c"])).toEqual(["d", "e"]);
  expect(visibleFirst(new Set(["b"]), rows("d", "c", "b").list, ["d", "c"])).toEqual([]);
});
