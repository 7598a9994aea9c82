import { expect, it } from "vitest";
import { readValue, toYaml } from "./yaml";

it("writes mappings, lists and words", () => {
  const spec = { name: "gpt", steps: 10, tags: ["a", { b: 1, c: [2] }], empty: {}, none: null, flag: true };
  expect(toYaml(spec)).toBe(
    "name: gpt\nsteps: 10\ntags:\n  - a\n  - b: 1\n    c:\n      - 2\nempty: {}\nnone: null\nflag: true\n",
  );
});

it("quotes what would be read as another value", () => {
  expect(toYaml({ eps: 1e-8, large: 2e21, half: 0.5 })).toBe("eps: 1.0e-8\nlarge: 2.0e+21\nhalf: 0.5\n");
  expect(toYaml({ a: "no", b: "1", c: "x: y", d: "" })).toBe('a: "no"\nb: "1"\nc: "x: y"\nd: ""\n');
});

it("writes text of several lines as a block", () => {
  expect(toYaml({ run: "one\n\n  two" })).toBe("run: |-\n  one\n\n    two\n");
});

it("reads values as a person means them", () => {
  expect(["8", "true", "null", "[1]", "adam", '"8"'].map(readValue)).toEqual([8, true, null, [1], "adam", "8"]);
});
