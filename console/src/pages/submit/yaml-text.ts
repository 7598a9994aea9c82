/** A spec as YAML text, without what is equal to its default. Pure. */

import { alternatives, type SchemaNode } from "./schema";

const PLAIN = /^[A-Za-z_/][\w./@+-]*$/;
/** Fields that a spec must name, even if they have their default. */
const NAMED = new Set(["micro_batch"]);
const WORDS = /^(?:y|n|yes|no|on|off|true|false|null|~)$/i;

/** Return a spec without fields that have their default. */
export function withoutDefaults(root: SchemaNode, value: unknown, node: SchemaNode = root): unknown {
  if (!isMapping(value)) return value;
  const options = alternatives(root, node).filter(
    (option) => option.properties !== undefined && fits(root, option, value),
  );
  const found: Record<string, unknown> = {};
  for (const [name, each] of Object.entries(value)) {
    const child = options.map((option) => option.properties?.[name]).find((option) => option !== undefined);
    if (each === null || each === undefined) continue;
    const kept = child === undefined ? each : withoutDefaults(root, each, child);
    const isConstant = child !== undefined && alternatives(root, child).some((option) => option.const !== undefined);
    if (!isConstant && !NAMED.has(name) && child?.default !== undefined && isSame(each, child.default)) continue;
    if (isMapping(kept) && Object.keys(kept).length === 0 && child?.default !== undefined) continue;
    if (Array.isArray(kept) && kept.length === 0) continue;
    found[name] = kept;
  }
  return found;
}

/** Return a value as YAML. */
export function yamlText(value: unknown, indent = ""): string {
  if (!isMapping(value)) return `${indent}${scalarText(value)}\n`;
  return Object.entries(value)
    .map(([name, each]) => {
      const key = `${indent}${scalarText(name)}:`;
      if (isMapping(each) && Object.keys(each).length > 0) return `${key}\n${yamlText(each, `${indent}  `)}`;
      return `${key} ${scalarText(each)}\n`;
    })
    .join("");
}

/** Lists and texts that YAML could read differently are written as in JSON, which is also YAML. */
function scalarText(value: unknown): string {
  if (typeof value === "string" && PLAIN.test(value) && !WORDS.test(value)) return value;
  return JSON.stringify(value);
}

function fits(root: SchemaNode, option: SchemaNode, value: Record<string, unknown>): boolean {
  return Object.entries(option.properties ?? {}).every(([name, child]) => {
    const constants = alternatives(root, child).flatMap((each) => (each.const === undefined ? [] : [each.const]));
    return constants.length === 0 || value[name] === undefined || constants.includes(value[name]);
  });
}

function isMapping(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Return whether two values are equal, where a default may leave out fields that have their own default. */
function isSame(value: unknown, preset: unknown): boolean {
  if (isMapping(value) && isMapping(preset)) {
    return Object.entries(value).every(
      ([name, each]) => each === null || (name in preset && isSame(each, preset[name])),
    );
  }
  if (Array.isArray(value) && Array.isArray(preset)) {
    return value.length === preset.length && value.every((each, index) => isSame(each, preset[index]));
  }
  return value === preset;
}
