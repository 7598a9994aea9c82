/** Lines of output with the offsets of their bytes, fed in parts. Pure. */

export interface LogLine {
  /** Offset of the first byte. */
  offset: number;
  text: string;
  generation: number;
  rank: number;
  stream: string;
}

export interface Source {
  generation: number;
  rank: number;
  stream: string;
}

const MAX_LINE = 10_000;
const bytes = new TextEncoder();

/** Return the lines of a part, and what follows its last line break. The last line of a part may continue. */
export function linesOf(text: string, offset: number, source: Source): { lines: LogLine[]; rest: LogLine | undefined } {
  const parts = text.split("\n");
  const lines: LogLine[] = [];
  let at = offset;
  for (const part of parts) {
    lines.push({ ...source, offset: at, text: part.length > MAX_LINE ? `${part.slice(0, MAX_LINE)}…` : part });
    at += (isAscii(part) ? part.length : bytes.encode(part).length) + 1;
  }
  const rest = lines.pop();
  return { lines, rest: rest?.text === "" ? undefined : rest };
}

/** Add a part to lines; a part that continues the last line extends it. The oldest lines are dropped above `most`. */
export function addPart(
  lines: readonly LogLine[],
  text: string,
  offset: number,
  source: Source,
  most: number,
): readonly LogLine[] {
  const last = lines.at(-1);
  const isContinued =
    last !== undefined &&
    last.rank === source.rank &&
    last.stream === source.stream &&
    last.generation === source.generation &&
    offset > last.offset &&
    offset === last.offset + bytes.encode(last.text).length;
  const begin = isContinued ? last.offset : offset;
  const found = linesOf(isContinued ? last.text + text : text, begin, source);
  const before = isContinued ? lines.slice(0, -1) : lines;
  const all = [...before, ...found.lines, ...(found.rest === undefined ? [] : [found.rest])];
  return all.length > most ? all.slice(all.length - most) : all;
}

function isAscii(text: string): boolean {
  for (let index = 0; index < text.length; index += 1) if (text.charCodeAt(index) > 127) return false;
  return true;
}
