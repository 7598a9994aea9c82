/** Values as YAML: the parts of it that specs need. Pure. */

const PLAIN = /^[A-Za-z_/][\w./@-]*$/;
const WORDS = new Set(["true", "false", "null", "yes", "no", "on", "off", "y", "n"]);

/** Return a value as YAML, with two spaces for each level. */
export function toYaml(value: unknown): string {
  return `${lines(value, "").join("\n")}\n`;
}

/** Return a value as one word or as JSON, which is YAML, too. */
export function scalarText(value: unknown): string {
  // YAML 1.1 reads 1e-8 as text, and 1.0e-8 as a number.
  if (typeof value === "number") return String(value).replace(/^(-?\d+)e/, "$1.0e");
  if (typeof value !== "string") return JSON.stringify(value);
  return PLAIN.test(value) && !WORDS.has(value.toLowerCase()) ? value : JSON.stringify(value);
}

/** Return the value that a person wrote: a number, a truth value, null, JSON, or else the text itself. */
export function readValue(text: string): unknown {
  const trimmed = text.trim();
  try {
    return JSON.parse(trimmed);
  } catch {
    return trimmed;
  }
}

function lines(value: unknown, indent: string): string[] {
  if (Array.isArray(value)) return value.flatMap((each) => item(each, indent));
  if (isMapping(value)) return Object.entries(value).flatMap(([key, each]) => entry(key, each, indent));
  return [indent + scalarText(value)];
}

function entry(key: string, value: unknown, indent: string): string[] {
  const name = `${indent}${scalarText(key)}:`;
  if (typeof value === "string" && value.includes("\n") && /^\S/.test(value) && !/[\t\r]/.test(value)) {
    const sign = value.endsWith("\n") ? "|" : "|-";
    const text = value.replace(/\n$/, "").split("\n");
    if (!value.endsWith("\n\n")) return [`${name} ${sign}`, ...text.map((line) => (line ? `${indent}  ${line}` : ""))];
  }
  if (isFilled(value)) return [name, ...lines(value, `${indent}  `)];
  return [`${name} ${scalarText(value)}`];
}

function item(value: unknown, indent: string): string[] {
  if (!isFilled(value)) return [`${indent}- ${scalarText(value)}`];
  const [first, ...rest] = lines(value, `${indent}  `);
  return [`${indent}- ${first?.trimStart()}`, ...rest];
}

function isMapping(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isFilled(value: unknown): boolean {
  return Array.isArray(value) ? value.length > 0 : isMapping(value) && Object.keys(value).length > 0;
}
