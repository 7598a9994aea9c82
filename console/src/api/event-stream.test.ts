import { expect, test } from "vitest";
import { EventParser } from "./event-stream";

test("an event in several pieces is complete at its empty line", () => {
  const parser = new EventParser();
  expect(parser.feed("id: 7\nevent: st")).toEqual([]);
  expect(parser.feed('ep\ndata: {"a":\ndata: 1}\n\n: keepalive\n\n')).toEqual([
    { id: "7", kind: "step", data: '{"a":\n1}' },
  ]);
});

test("an event without data is not delivered", () => {
  expect(new EventParser().feed("event: end\n\nid: 1\ndata: x\n\n")).toEqual([{ id: "1", kind: "message", data: "x" }]);
});
