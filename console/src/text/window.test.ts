import { expect, test } from "vitest";
import { partsOf, windowOf, windowText } from "./window";

const at = (...parts: [number, number, number, number?]) => new Date(...parts).getTime() / 1000;
const NOW_S = at(2026, 0, 15, 13);
const query = (text: string) => new URLSearchParams(text);

test("months begin at midnight, and the last month ends where this one begins", () => {
  expect(windowOf(query(""), "month", NOW_S)).toEqual({ name: "month", from_s: at(2026, 0, 1), to_s: undefined });
  const last = windowOf(query("window=last-month"), "month", NOW_S);
  expect(last).toEqual({ name: "last-month", from_s: at(2025, 11, 1), to_s: at(2026, 0, 1) });
});

test("the last day of a custom window is part of it", () => {
  const found = windowOf(query("window=custom&from=2025-12-30&to=2026-01-02"), "month", NOW_S);
  expect([found.from_s, found.to_s]).toEqual([at(2025, 11, 30), at(2026, 0, 3)]);
  expect(windowText(found.from_s, found.to_s as number)).toBe("2025-12-30 to 2026-01-02");
  expect(windowOf(query("window=custom&from=soon"), "month", NOW_S).from_s).toBe(at(2026, 0, 1));
});

test("the last days begin with an hour, and an unknown window is the usual one", () => {
  expect(windowOf(query("window=7d"), "month", NOW_S + 59).from_s).toBe(NOW_S - 7 * 86_400);
  expect(windowOf(query("window=never"), "30d", NOW_S).name).toBe("30d");
});

test("a window has a part for each day, and longer parts if there are too many", () => {
  expect(partsOf(at(2026, 0, 1), at(2026, 0, 3, 12))).toEqual([
    at(2026, 0, 1),
    at(2026, 0, 2),
    at(2026, 0, 3),
    at(2026, 0, 3, 12),
  ]);
  const year = partsOf(at(2025, 0, 1), at(2026, 0, 1));
  expect(year.length).toBeLessThanOrEqual(32);
  expect([year[0], year.at(-1)]).toEqual([at(2025, 0, 1), at(2026, 0, 1)]);
});
