import { render } from "preact";
import { expect, test } from "vitest";
import { TransferBar } from "./transfer-bar";

function shown(doneBytes: number, totalBytes: number, bytesPerS: number): HTMLElement {
  const box = document.createElement("div");
  render(<TransferBar label="Writing" doneBytes={doneBytes} totalBytes={totalBytes} bytesPerS={bytesPerS} />, box);
  return box;
}

test("the bar and the text have the same figures", () => {
  const box = shown(1.2e9, 4e9, 3.1e8);
  const bar = box.querySelector("progress");
  expect([bar?.value, bar?.max]).toEqual([1.2e9, 4e9]);
  expect(bar?.getAttribute("aria-valuetext")).toBe("1.2 GB of 4 GB, 310 MB/s");
  expect(box.textContent).toBe("Writing1.2 GB of 4 GB, 310 MB/s");
});

test("a storage that is silent has the rate zero, and the end has none", () => {
  expect(shown(1e6, 4e6, 0).textContent).toBe("Writing1 MB of 4 MB, 0 B/s");
  expect(shown(4e6, 4e6, 1e6).textContent).toBe("Writing4 MB of 4 MB");
});

test("nothing to move is a full text, and no division", () => {
  expect(shown(0, 0, 0).querySelector("progress")?.max).toBe(1);
});
