import { expect, test } from "vitest";
import { completeFilter, parseFilter } from "./filter";

test("a filter has the parameters of the API", () => {
  expect(parseFilter('state:running,QUEUED project:vision label:team=nlp label:"note=two words" author:me')).toEqual({
    filters: {
      state: ["RUNNING", "QUEUED"],
      project: "vision",
      label: ["team=nlp", "note=two words"],
      author: "me",
    },
    faults: [],
  });
  expect(parseFilter("  ")).toEqual({ filters: {}, faults: [] });
  expect(parseFilter("state:RUNNING state:RUNNING state:FAILED").filters.state).toEqual(["RUNNING", "FAILED"]);
});

test.each([
  ["gpt", "name:gpt"],
  ["stat:RUNNING", "unknown key"],
  ["state:SLEEPING", "unknown state SLEEPING"],
  ["label:team", "KEY=VALUE"],
  ["project:", "no value"],
  ["name:Two", "lower-case"],
  ["project:a project:b", "second project"],
])("the fault of %s says %s", (text, message) => {
  const { faults } = parseFilter(text);
  expect(faults).toHaveLength(1);
  expect(faults[0]?.message).toContain(message);
});

test("a part that is wrong leaves the others in effect", () => {
  expect(parseFilter("state:QUEUED oops").filters).toEqual({ state: ["QUEUED"] });
});

test("keys and values are completed at the caret", () => {
  expect(completeFilter("", 0, {}).map((each) => each.label)).toContain("state:");
  expect(completeFilter("pro", 3, {})).toEqual([{ label: "project:", text: "project:", caret: 8 }]);
  expect(completeFilter("state:RU", 8, {})[0]?.text).toBe("state:RUNNING ");
  const inside = completeFilter("project:v name:gpt", 9, { project: ["vision", "speech"] });
  expect(inside).toEqual([{ label: "project:vision", text: "project:vision name:gpt", caret: 15 }]);
  expect(completeFilter("label:", 6, { label: ["note=two words"] })[0]?.text).toBe('label:"note=two words" ');
  expect(completeFilter("oops:x", 6, {})).toEqual([]);
});
