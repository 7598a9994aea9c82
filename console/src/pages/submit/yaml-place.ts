/** Where a caret is in a YAML text: the path of its field. It reads indentation, and is right for block style. Pure. */

export interface YamlPlace {
  /** Names of the fields that contain the caret, without the one that is being written. */
  path: string[];
  /** Field whose value is being written; undefined while a key is. */
  field: string | undefined;
  /** Text of the key or value before the caret. */
  typed: string;
}

const KEY = /^(\s*(?:- +)*)([\w.-]+|"[^"]*"):(\s+|$)/;

/** Return the place of a caret. */
export function placeAt(text: string, caret: number): YamlPlace {
  const before = text.slice(0, caret).split("\n");
  const line = before.at(-1) ?? "";
  const key = KEY.exec(line);
  const indent = key === null ? indentOf(line) : (key[1] ?? "").length;
  const path = parentsOf(before.slice(0, -1), indent);
  if (key === null) return { path, field: undefined, typed: line.replace(/^\s*(- +)*/, "") };
  return { path, field: unquoted(key[2] ?? ""), typed: line.slice(key[0].length) };
}

/** Return the path of the field on a line; empty for a line without one. */
export function fieldOfLine(text: string, line: number): string[] {
  const lines = text.split("\n");
  const key = KEY.exec(lines[line - 1] ?? "");
  if (key === null) return [];
  return [...parentsOf(lines.slice(0, line - 1), (key[1] ?? "").length), unquoted(key[2] ?? "")];
}

function parentsOf(lines: readonly string[], indent: number): string[] {
  const path: string[] = [];
  let limit = indent;
  for (let index = lines.length - 1; index >= 0 && limit > 0; index--) {
    const key = KEY.exec(lines[index] ?? "");
    if (key === null) continue;
    const width = (key[1] ?? "").length;
    if (width >= limit) continue;
    path.unshift(unquoted(key[2] ?? ""));
    limit = width;
    // A field that follows `- ` belongs to the list above, whose indentation is that of the hyphen, or less.
    if ((key[1] ?? "").includes("-")) limit = (key[1] ?? "").indexOf("-") + 1;
  }
  return path;
}

function indentOf(line: string): number {
  return /^\s*(- +)*/.exec(line)?.[0].length ?? 0;
}

function unquoted(name: string): string {
  return name.replaceAll('"', "");
}
