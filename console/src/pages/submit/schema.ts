/** The JSON Schema of a spec, as completion and help need it. Pure. */

export interface SchemaNode {
  $ref?: string;
  $defs?: Record<string, SchemaNode>;
  type?: string;
  description?: string;
  default?: unknown;
  const?: unknown;
  enum?: unknown[];
  properties?: Record<string, SchemaNode>;
  additionalProperties?: SchemaNode | boolean;
  required?: string[];
  items?: SchemaNode;
  anyOf?: SchemaNode[];
  oneOf?: SchemaNode[];
  minimum?: number;
  maximum?: number;
}

/** A field that may be at a place. */
export interface FieldHelp {
  name: string;
  description: string;
  isRequired: boolean;
  /** Type and default, for people. */
  about: string;
}

/** Return the alternatives of a node, without references. */
export function alternatives(root: SchemaNode, node: SchemaNode): SchemaNode[] {
  if (node.$ref !== undefined) {
    const found = root.$defs?.[node.$ref.split("/").at(-1) ?? ""];
    return found === undefined ? [] : alternatives(root, found);
  }
  const options = node.anyOf ?? node.oneOf;
  return options === undefined ? [node] : options.flatMap((option) => alternatives(root, option));
}

/** Return the nodes that a path of field names leads to. Items of lists have no name. */
export function nodesAt(root: SchemaNode, path: readonly string[]): SchemaNode[] {
  let nodes = alternatives(root, root);
  for (const name of path) {
    nodes = withItems(root, nodes).flatMap((node) => {
      const next =
        node.properties?.[name] ??
        (typeof node.additionalProperties === "object" ? node.additionalProperties : undefined);
      return next === undefined ? [] : alternatives(root, next);
    });
  }
  return nodes;
}

/** Return the fields that may follow at a path. */
export function fieldsAt(root: SchemaNode, path: readonly string[]): FieldHelp[] {
  const found = new Map<string, FieldHelp>();
  for (const node of withItems(root, nodesAt(root, path))) {
    for (const [name, child] of Object.entries(node.properties ?? {})) {
      if (found.has(name)) continue;
      const isRequired = node.required?.includes(name) ?? false;
      found.set(name, { name, description: child.description ?? "", isRequired, about: aboutText(root, child) });
    }
  }
  return [...found.values()];
}

/** Return the help of one field; undefined if the schema does not know it. */
export function fieldHelp(root: SchemaNode, path: readonly string[]): FieldHelp | undefined {
  const name = path.at(-1);
  return fieldsAt(root, path.slice(0, -1)).find((field) => field.name === name);
}

/** Return the values that a field can have, if it has few. */
export function valuesAt(root: SchemaNode, path: readonly string[]): string[] {
  const values = withItems(root, nodesAt(root, path)).flatMap((node) => {
    if (node.const !== undefined) return [node.const];
    return node.type === "boolean" ? [true, false] : (node.enum ?? []);
  });
  return [...new Set(values.map(String))];
}

function withItems(root: SchemaNode, nodes: readonly SchemaNode[]): SchemaNode[] {
  return nodes.flatMap((node) => (node.items === undefined ? [node] : [node, ...alternatives(root, node.items)]));
}

function aboutText(root: SchemaNode, node: SchemaNode): string {
  const options = alternatives(root, node);
  const kinds = options.map((option) => {
    if (option.enum !== undefined) return option.enum.join(", ");
    return option.const !== undefined ? String(option.const) : (option.type ?? "");
  });
  const text = [...new Set(kinds.filter((kind) => kind !== "" && kind !== "null"))].join(" or ");
  const isPlain = node.default !== undefined && node.default !== null && typeof node.default !== "object";
  return isPlain ? `${text}; default ${String(node.default)}` : text;
}
