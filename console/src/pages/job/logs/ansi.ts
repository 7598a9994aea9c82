/** Colours of a terminal in text (ECMA-48, "select graphic rendition"). All other sequences are removed. Pure. */

export interface Span {
  text: string;
  /** Names of classes, separated by spaces. */
  style: string;
}

interface Style {
  color: string;
  isBold: boolean;
}

const NAMES = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];
// A control sequence, an operating system command, or another escape of two characters.
// biome-ignore lint/suspicious/noControlCharactersInRegex: these characters are what it finds
const SEQUENCE = /\x1b(?:\[([0-9;:?]*)[ -/]*([@-~])|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])/g;
// biome-ignore lint/suspicious/noControlCharactersInRegex: these characters are what it removes
const CONTROL = /[\x00-\x08\x0b-\x1f\x7f]/g;

/** Return a line as spans of text with a style. The text has no control characters except tabs. */
export function ansiSpans(line: string): Span[] {
  const style: Style = { color: "", isBold: false };
  const found: Span[] = [];
  let end = 0;
  const add = (text: string) => {
    const clean = text.replace(CONTROL, "");
    if (clean !== "") found.push({ text: clean, style: classes(style) });
  };
  for (const match of line.matchAll(SEQUENCE)) {
    add(line.slice(end, match.index));
    end = match.index + match[0].length;
    if (match[2] === "m") apply(style, match[1] ?? "");
  }
  add(line.slice(end));
  return found;
}

/** Return the text of a line without sequences. */
export function plainText(line: string): string {
  return line.replace(SEQUENCE, "").replace(CONTROL, "");
}

/** Split spans at the places of a text, so that these can be marked. */
export function markedSpans(spans: readonly Span[], text: string): (Span & { isMarked: boolean })[] {
  if (text === "") return spans.map((span) => ({ ...span, isMarked: false }));
  const whole = spans
    .map((span) => span.text)
    .join("")
    .toLowerCase();
  const wanted = text.toLowerCase();
  const marks: [number, number][] = [];
  for (let at = whole.indexOf(wanted); at >= 0; at = whole.indexOf(wanted, at + wanted.length)) {
    marks.push([at, at + wanted.length]);
  }
  const found: (Span & { isMarked: boolean })[] = [];
  let begin = 0;
  for (const span of spans) {
    const cuts = marks.flat().filter((cut) => cut > begin && cut < begin + span.text.length);
    let last = begin;
    for (const cut of [...cuts, begin + span.text.length]) {
      const isMarked = marks.some(([from, to]) => last >= from && last < to);
      found.push({ text: span.text.slice(last - begin, cut - begin), style: span.style, isMarked });
      last = cut;
    }
    begin += span.text.length;
  }
  return found;
}

function apply(style: Style, parameters: string): void {
  const codes = parameters === "" ? [0] : parameters.split(/[;:]/).map(Number);
  for (let index = 0; index < codes.length; index += 1) {
    const code = codes[index] ?? 0;
    if (code === 0) Object.assign(style, { color: "", isBold: false });
    else if (code === 1) style.isBold = true;
    else if (code === 22) style.isBold = false;
    else if (code === 39) style.color = "";
    else if (code >= 30 && code <= 37) style.color = NAMES[code - 30] ?? "";
    else if (code >= 90 && code <= 97) style.color = NAMES[code - 90] ?? "";
    else if (code === 38 || code === 48) index += codes[index + 1] === 5 ? 2 : 4; // 256 and true colours
  }
}

function classes(style: Style): string {
  return [style.color && `logs-${style.color}`, style.isBold && "logs-bold"].filter(Boolean).join(" ");
}
