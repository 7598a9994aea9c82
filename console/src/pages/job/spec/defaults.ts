/** Fields of a spec that have another value than their default. Pure. */

type Json = Record<string, unknown>;

/** Return the spec without the fields whose value is the default of the schema. Required fields stay. */
export function withoutDefaults(
  spec: unknown,
  schema: Json,
  definitions: Json = (schema.$defs ?? {}) as Json,
): unknown {
  const shape = shapeOf(spec, schema, definitions);
  const properties = (shape.properties ?? {}) as Record<string, Json>;
  if (!isMapping(spec) || Object.keys(properties).length === 0) return spec;
  const required = new Set((shape.required as string[] | undefined) ?? []);
  const kept: Json = {};
  for (const [name, value] of Object.entries(spec)) {
    const property = properties[name];
    if (property === undefined || required.has(name) || "const" in property) kept[name] = value;
    if (property === undefined) continue;
    if (!required.has(name) && "default" in property && isEqual(value, property.default)) continue;
    const inner = withoutDefaults(value, property, definitions);
    if (required.has(name) || !isEmpty(inner) || isEmpty(value)) kept[name] = inner;
  }
  return kept;
}

/** Return the schema of a value: follows references, and chooses among alternatives by the names of the fields. */
function shapeOf(value: unknown, schema: Json, definitions: Json): Json {
  if (typeof schema.$ref === "string") {
    return shapeOf(value, (definitions[schema.$ref.replace("#/$defs/", "")] ?? {}) as Json, definitions);
  }
  const choices = (schema.anyOf ?? schema.oneOf) as Json[] | undefined;
  if (choices === undefined) return schema;
  const shapes = choices.map((each) => shapeOf(value, each, definitions));
  return shapes.find((each) => fits(value, each)) ?? {};
}

function fits(value: unknown, shape: Json): boolean {
  const properties = shape.properties as Record<string, Json> | undefined;
  if (!isMapping(value) || properties === undefined) return false;
  return Object.entries(value).every(([name, each]) => {
    const property = properties[name];
    return property !== undefined && (!("const" in property) || property.const === each);
  });
}

function isMapping(value: unknown): value is Json {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isEmpty(value: unknown): boolean {
  return isMapping(value) && Object.keys(value).length === 0;
}

function isEqual(one: unknown, other: unknown): boolean {
  if (!isMapping(one) || !isMapping(other)) return JSON.stringify(one) === JSON.stringify(other);
  const names = new Set([...Object.keys(one), ...Object.keys(other)]);
  return [...names].every((name) => isEqual(one[name], other[name]));
}
