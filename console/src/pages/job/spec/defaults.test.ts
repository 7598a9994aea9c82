import { expect, it } from "vitest";
import { withoutDefaults } from "./defaults";

const SCHEMA = {
  required: ["name", "workload"],
  properties: {
    name: {},
    steps: { default: 10 },
    layout: { $ref: "#/$defs/Layout", default: { tp: 1, pp: 1 } },
    workload: { oneOf: [{ $ref: "#/$defs/Script" }, { $ref: "#/$defs/Builtin" }] },
    code: { anyOf: [{ $ref: "#/$defs/Layout" }, { type: "null" }], default: null },
  },
  $defs: {
    Layout: { properties: { tp: { default: 1 }, pp: { default: 1 } } },
    Script: { required: ["kind"], properties: { kind: { const: "script" }, args: { default: [] } } },
    Builtin: { required: ["kind"], properties: { kind: { const: "builtin" }, depth: { default: 2 } } },
  },
};

it("leaves out what has its default", () => {
  const spec = { name: "a", steps: 10, layout: { tp: 1, pp: 1 }, workload: { kind: "script", args: [] }, code: null };
  expect(withoutDefaults(spec, SCHEMA)).toEqual({ name: "a", workload: { kind: "script" } });
});

it("keeps what differs, with its section", () => {
  const spec = {
    name: "a",
    steps: 11,
    layout: { tp: 2, pp: 1 },
    workload: { kind: "builtin", depth: 2 },
    code: { tp: 1, pp: 3 },
  };
  expect(withoutDefaults(spec, SCHEMA)).toEqual({
    name: "a",
    steps: 11,
    layout: { tp: 2 },
    workload: { kind: "builtin" },
    code: { pp: 3 },
  });
});

it("keeps fields that the schema does not know", () => {
  expect(withoutDefaults({ name: "a", other: { b: 1 } }, SCHEMA)).toEqual({ name: "a", other: { b: 1 } });
});
