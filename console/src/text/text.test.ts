import { expect, test } from "vitest";
import { commandText, quoted } from "./commands";
import { bytesText, compactText, countText, numberText, percentText } from "./numbers";
import { agoText, durationText } from "./time";

test.each([
  [0.0123, "12.3 ms"],
  [4.253, "4.25 s"],
  [59.99, "1 min"],
  [125, "2 min 5 s"],
  [3600, "1 h"],
  [3661, "1 h 1 min"],
  [90_000, "1 d 1 h"],
  [undefined, "–"],
])("the duration %s is %s", (seconds, text) => expect(durationText(seconds)).toBe(text));

test("a time ago is rough", () => {
  expect(agoText(100, 161)).toBe("1 min 1 s ago");
  expect(agoText(100, 103.7)).toBe("3 s ago");
  expect(agoText(200, 100)).toBe("in 1 min 40 s");
});

test("numbers have few digits and thousands apart", () => {
  expect(numberText(12345.678)).toBe("12 346");
  expect(numberText(0.00001234)).toBe("1.234e-5");
  expect(compactText(12_345)).toBe("12.3k");
  expect(bytesText(1_536_000_000)).toBe("1.54 GB");
  expect(percentText(0.98512)).toBe("98.5 %");
  expect(countText(1, "node")).toBe("1 node");
  expect(countText(2000, "node")).toBe("2 000 nodes");
});

test("a command quotes what a shell would split", () => {
  expect(commandText("regroup", "cancel", "it's mine")).toBe("regroup cancel 'it'\\''s mine'");
  expect(quoted("")).toBe("''");
});
