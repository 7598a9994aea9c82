/** Messages of the server as parts: commands, ids of jobs, and lists. Pure. */

export type Part = { kind: "text" | "code" | "job"; text: string };

/** Split a text at its commands (in backticks) and at ids of jobs. */
export function textParts(text: string): Part[] {
  const found: Part[] = [];
  let end = 0;
  for (const match of text.matchAll(/`([^`]+)`|\bjob_[0-9a-z]{6,40}\b/g)) {
    if (match.index > end) found.push({ kind: "text", text: text.slice(end, match.index) });
    found.push(match[1] === undefined ? { kind: "job", text: match[0] } : { kind: "code", text: match[1] });
    end = match.index + match[0].length;
  }
  if (end < text.length) found.push({ kind: "text", text: text.slice(end) });
  return found;
}

/** Split a message into its sentence and the list that follows it: nodes that do not fit, and why. */
export function messageItems(message: string): { head: string; items: string[] } {
  const parts = message.split("; ");
  if (parts.length < 3) return { head: message, items: [] };
  // `needs …; 2 of 8 are free now: a holds 1 (…); b holds 1 (…)`
  const start = parts.findIndex((part) => /: \S+ (holds|is) /.test(part));
  if (start < 0) return { head: message, items: [] };
  const [, before = "", first = ""] = /^(.*?): (\S+ (?:holds|is) .*)$/.exec(parts[start] ?? "") ?? [];
  return { head: [...parts.slice(0, start), before].join("; "), items: [first, ...parts.slice(start + 1)] };
}

/** Group items that differ only in their first word: `a holds 0 (CPU: 0 of 4 free)` of several nodes. */
export function groupedItems(items: readonly string[]): { names: string[]; text: string }[] {
  const groups = new Map<string, string[]>();
  for (const item of items) {
    const space = item.indexOf(" ");
    const [name, rest] = space < 0 ? [item, ""] : [item.slice(0, space), item.slice(space + 1)];
    groups.set(rest, [...(groups.get(rest) ?? []), name]);
  }
  return [...groups].map(([text, names]) => ({ names, text }));
}
