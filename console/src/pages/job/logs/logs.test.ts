import { expect, test } from "vitest";
import { ansiSpans, markedSpans, plainText } from "./ansi";
import { addPart, type LogLine } from "./line-buffer";

const ESC = "\x1b";

test("colours become classes, and end with a reset", () => {
  expect(ansiSpans(`a${ESC}[31mred${ESC}[1m bold${ESC}[0m b`)).toEqual([
    { text: "a", style: "" },
    { text: "red", style: "logs-red" },
    { text: " bold", style: "logs-red logs-bold" },
    { text: " b", style: "" },
  ]);
});

test.each([
  [`${ESC}[2J${ESC}[1;1Hx`, "x"],
  [`${ESC}]0;title\x07x`, "x"],
  [`${ESC}]8;;https://e.org${ESC}\\x`, "x"],
  [`${ESC}[38;5;196mx${ESC}[48;2;1;2;3my`, "xy"],
  ["a\rb\x00c\td", "abc\td"],
  ["<b>&amp;", "<b>&amp;"],
])("%j has the text %j", (line, text) => {
  expect(plainText(line)).toBe(text);
  expect(
    ansiSpans(line)
      .map((span) => span.text)
      .join(""),
  ).toBe(text);
});

test("marks go over the borders of spans", () => {
  const spans = markedSpans(ansiSpans(`x ER${ESC}[31mROR error`), "error");
  expect(spans.filter((span) => span.isMarked).map((span) => span.text)).toEqual(["ER", "ROR", "error"]);
  expect(spans.map((span) => span.text).join("")).toBe("x ERROR error");
});

const SOURCE = { generation: 1, rank: 0, stream: "stdout" };
const offsets = (lines: readonly LogLine[]) => lines.map((line) => [line.offset, line.text]);

test("lines have the offsets of their bytes, in parts of any size", () => {
  const text = "eins\nzwölf €\n\nlast";
  const whole = new TextEncoder().encode(text);
  const expected = [
    [0, "eins"],
    [5, "zwölf €"],
    [16, ""],
    [17, "last"],
  ];
  expect(offsets(addPart([], text, 0, SOURCE, 100))).toEqual(expected);
  for (const cut of [1, 4, 5, 6, 16, 17, 19]) {
    const [first, second] = [new TextDecoder().decode(whole.slice(0, cut)), new TextDecoder().decode(whole.slice(cut))];
    const lines = addPart(addPart([], first, 0, SOURCE, 100), second, cut, SOURCE, 100);
    expect(offsets(lines).filter(([, line]) => line !== "" || cut !== 16)).toEqual(
      expected.filter(([, line]) => line !== "" || cut !== 16),
    );
  }
});

test("a part of another rank begins a line", () => {
  const lines = addPart(addPart([], "a", 0, SOURCE, 9), "b", 1, { ...SOURCE, rank: 1 }, 9);
  expect(lines.map((line) => [line.rank, line.text])).toEqual([
    [0, "a"],
    [1, "b"],
  ]);
});

test("the oldest lines are dropped", () => {
  expect(addPart([], "1\n2\n3\n4\n", 0, SOURCE, 2).map((line) => line.text)).toEqual(["3", "4"]);
});
