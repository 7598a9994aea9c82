import { expect, test } from "vitest";
import { entriesOf, layoutText, type Story } from "./entries";
import { progressLines } from "./lines";

const LAYOUT = { dp_replicate: 1, dp_shard: 4, cp: 1, tp: 1, pp: 1, micro_batch: null };

function generation(number: number, startStep: number, lastStep: number, keptUntil: number | null) {
  return {
    number,
    from_s: 1000 + 100 * number,
    until_s: 1090 + 100 * number,
    first_step_s: 1010 + 100 * number,
    last_step: lastStep,
    last_step_s: 1080 + 100 * number,
    kept_until_step: keptUntil,
    repeated: keptUntil === null ? 0 : lastStep - keptUntil,
    world_size: 4,
    layout: LAYOUT,
    start_step: startStep,
    restored_from: "mirror" as const,
    cause: "hang",
  };
}

const STORY = {
  from_s: 1000,
  until_s: 1400,
  is_over: true,
  states: [{ state: "RUNNING", reason: "first_step", message: "", from_s: 1100, until_s: null }],
  generations: [generation(1, 0, 20, 18), generation(2, 18, 40, null)],
  nodes: [],
  nodes_since_generation: 0,
  incidents: [],
  checkpoints: [],
  mirrored_step: null,
  mirrors: [{ generation: 1, step: 18, time_s: 1170 }],
  marks: [{ event: 9, time_s: 1050, kind: "request", generation: 0, actor: "ada", text: "cancel requested" }],
  progress: [
    { generation: 1, step: 10, time_s: 1140 },
    { generation: 1, step: 19, time_s: 1175 },
    { generation: 2, step: 30, time_s: 1250 },
  ],
  counts: {},
} satisfies Story;

test("repeated steps are a line of their own, which begins where the counted one ends", () => {
  const lines = progressLines(STORY);
  expect(lines.map((line) => [line.generation, line.isRepeated, line.points.map((point) => point.step)])).toEqual([
    [1, false, [1, 10]],
    [1, true, [10, 19, 20]],
    [2, false, [19, 30, 40]],
  ]);
});

test("the table has all entries in order", () => {
  const entries = entriesOf(STORY, 400);
  expect(entries.map((entry) => [entry.kind, entry.from, entry.to])).toEqual([
    ["Request", 50, undefined],
    ["State", 100, 400],
    ["Generation", 100, 190],
    ["Mirror", 170, undefined],
    ["Generation", 200, 290],
  ]);
  expect(entries[2]?.text).toBe(
    "Generation 1: 4 ranks, dp_shard 4, from mirrors at step 0, steps 1 to 20, 2 steps repeated later",
  );
  expect(layoutText({ ...LAYOUT, dp_shard: 1 })).toBe("");
});
