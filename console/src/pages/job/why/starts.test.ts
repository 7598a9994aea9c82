import { expect, test } from "vitest";
import { timeText } from "../../../text/time";
import { answerOf, type Start } from "./starts";

function start(ranks: number, startS: number | null, fields: Partial<Start> = {}): Start {
  const layout = { dp_replicate: 1, dp_shard: ranks, cp: 1, tp: 1, pp: 1, micro_batch: null };
  const known = { ranks, layout, start_s: startS, is_legal: true, is_requested: false, is_now: false };
  return { ...known, confidence: "low", basis: "", ...fields };
}

const REQUESTED = { is_requested: true };

test("the largest size that starts now is the answer", () => {
  expect(answerOf([start(8, 900, REQUESTED), start(4, 10, { is_now: true })])).toBe(
    "With 4 ranks, the job would start now.",
  );
  expect(answerOf([start(8, 10, { ...REQUESTED, is_now: true })])).toContain("the requested size");
});

test("without one, it is the size that starts first", () => {
  expect(answerOf([start(8, 7200, REQUESTED), start(4, 3600), start(2, 3600)])).toBe(
    `No size would start now. With 4 ranks, the job would start at ${timeText(3600)}, 1 h sooner.`,
  );
  expect(answerOf([start(8, null, REQUESTED), start(4, 3600)])).toContain(`at ${timeText(3600)}.`);
});

test("no size helps", () => {
  expect(answerOf([start(8, 7200, REQUESTED), start(4, 7190)])).toBe("No smaller size would start sooner.");
  expect(answerOf([start(8, null, REQUESTED), start(4, null)])).toBe("No smaller size would start sooner.");
});
