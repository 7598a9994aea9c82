import { expect, it } from "vitest";
import { rangesOf, verdictText } from "./samples";

const ledger = { exact: true, steps: 300, samples: 1200, samples_hash: "00", superseded: 0, problems: [] };

it("gives a verdict in one sentence", () => {
  expect(verdictText(ledger)).toBe("No sample was lost and none was used twice in 300 committed steps.");
  expect(verdictText({ ...ledger, superseded: 4 })).toContain("although 4 steps ran again");
  expect(verdictText({ ...ledger, exact: false })).toContain("cannot prove");
  expect(verdictText({ ...ledger, steps: 0 })).toContain("No step is committed yet");
});

it("counts a step for the generation whose result counts", () => {
  const formed = (number: number, start_step: number) => ({ number, start_step }) as never;
  expect(rangesOf([formed(1, 0), formed(2, 150), formed(3, 120)], 300)).toEqual([
    { generation: 3, first: 121, last: 300 },
    { generation: 2, first: 151, last: 120 },
    { generation: 1, first: 1, last: 120 },
  ]);
});
