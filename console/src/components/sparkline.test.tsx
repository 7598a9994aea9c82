import { render } from "preact";
import { expect, test } from "vitest";
import { Sparkline } from "./sparkline";

test("the text names the first, the last and the smallest value", () => {
  const box = document.createElement("div");
  render(<Sparkline label="loss of gpt" values={[3, null, 1, 2]} format={(value) => `${value} s`} />, box);
  expect(box.querySelector("title")?.textContent).toBe("loss of gpt: first 3 s, last 2 s, smallest 1 s");
  expect(box.querySelector("svg")?.getAttribute("role")).toBe("img");
});

test("a metric without values is a dash", () => {
  const box = document.createElement("div");
  render(<Sparkline label="loss of gpt" values={[null]} />, box);
  expect(box.textContent).toBe("–");
});
