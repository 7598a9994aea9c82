import { expect, test } from "vitest";
import { fieldHelp, fieldsAt, type SchemaNode, valuesAt } from "./schema";
import { fieldOfLine, placeAt } from "./yaml-place";
import { withoutDefaults, yamlText } from "./yaml-text";

const SCHEMA: SchemaNode = {
  required: ["name"],
  properties: {
    name: { type: "string", description: "Name of the job." },
    seed: { type: "integer", default: 0 },
    workload: { oneOf: [{ $ref: "#/$defs/Script" }, { $ref: "#/$defs/Builtin" }] },
    faults: { type: "array", items: { $ref: "#/$defs/Fault" }, default: [] },
  },
  $defs: {
    Script: { properties: { kind: { const: "script" }, entrypoint: { type: "string" } } },
    Builtin: { properties: { kind: { const: "builtin" }, shuffle: { type: "boolean", default: true } } },
    Fault: { properties: { at: { properties: { rank: { type: "integer" } } }, do: { enum: ["sigkill", "hang"] } } },
  },
};
const TEXT = "name: gpt\nworkload:\n  kind: builtin\n  \nfaults:\n  - at:\n      rank: 1\n    do: s";

test("fields and values come from the schema", () => {
  expect(fieldsAt(SCHEMA, []).map((field) => field.name)).toEqual(["name", "seed", "workload", "faults"]);
  expect(fieldsAt(SCHEMA, ["workload"]).map((field) => field.name)).toEqual(["kind", "entrypoint", "shuffle"]);
  expect(fieldsAt(SCHEMA, ["faults", "at"]).map((field) => field.name)).toEqual(["rank"]);
  expect(valuesAt(SCHEMA, ["workload", "kind"])).toEqual(["script", "builtin"]);
  expect(valuesAt(SCHEMA, ["faults", "do"])).toEqual(["sigkill", "hang"]);
  expect(fieldHelp(SCHEMA, ["name"])).toMatchObject({ description: "Name of the job.", isRequired: true });
  expect(fieldHelp(SCHEMA, ["seed"])?.about).toBe("integer; default 0");
});

test("a caret has the path of its field", () => {
  expect(placeAt(TEXT, TEXT.indexOf("  \nfaults") + 2)).toEqual({ path: ["workload"], field: undefined, typed: "" });
  expect(placeAt(TEXT, TEXT.length)).toEqual({ path: ["faults"], field: "do", typed: "s" });
  expect(placeAt("na", 2)).toEqual({ path: [], field: undefined, typed: "na" });
  expect(fieldOfLine(TEXT, 7)).toEqual(["faults", "at", "rank"]);
  expect(fieldOfLine(TEXT, 4)).toEqual([]);
});

test("a spec is written without its defaults", () => {
  const spec = { name: "gpt", seed: 0, workload: { kind: "builtin", shuffle: true }, faults: [], missing: null };
  expect(withoutDefaults(SCHEMA, spec)).toEqual({ name: "gpt", workload: { kind: "builtin" } });
  expect(withoutDefaults(SCHEMA, { ...spec, seed: 7 })).toMatchObject({ seed: 7 });
});

test("text that YAML could read differently is quoted", () => {
  const text = yamlText({ a: "no", b: "1:30", c: { d: ["/x", 1], e: true }, f: "plain-text", g: {} });
  expect(text).toBe('a: "no"\nb: "1:30"\nc:\n  d: ["/x",1]\n  e: true\nf: plain-text\ng: {}\n');
});
