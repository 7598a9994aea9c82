import { expect, test } from "vitest";
import { parseRanks, type RankView, ranksByNode, ranksText, sortRanks } from "./rank-state";
import { differentLines, groupStacks } from "./stack-groups";
import { splitWords } from "./words";

const view = (rank: number, node: string, work_s: number | null, state: RankView["state"] = "works"): RankView =>
  ({ rank, node, work_s, state, wait_s: null, factor: null }) as RankView;

test("ranks in several orders", () => {
  const ranks = [view(0, "n10", 0.1), view(1, "n2", 0.9, "slow"), view(2, "n2", null)];
  expect(sortRanks(ranks, "work").map((each) => each.rank)).toEqual([1, 0, 2]);
  expect(sortRanks(ranks, "node").map((each) => each.rank)).toEqual([1, 2, 0]);
  expect(sortRanks(ranks, "state")[0]?.rank).toBe(1);
  expect(ranksByNode(ranks).map(([node, group]) => [node, group.length])).toEqual([
    ["n10", 1],
    ["n2", 2],
  ]);
});

test("a list of ranks as text", () => {
  expect(ranksText([9, 3, 7, 8])).toBe("3,7-9");
  expect(parseRanks("3,7-9,x,9")).toEqual([3, 7, 8, 9]);
  expect(parseRanks("0-999999")).toHaveLength(4096);
});

test("the rank with another stack is an outlier", () => {
  const stack = (rank: number, text: string) => ({ rank, text, node: "a", pid: rank, step: 1, phase: "forward" });
  const common = "Thread 0x7f01\n  all_reduce\n  step";
  const groups = groupStacks([
    stack(0, common),
    stack(1, common.replace("7f01", "7f02")),
    stack(2, "Thread 0x7f03\n  sleep\n  step"),
  ]);
  expect(groups.map((each) => [each.ranks.map((found) => found.rank), each.isOutlier])).toEqual([
    [[2], true],
    [[0, 1], false],
  ]);
  const [outlier, usual] = groups;
  if (outlier === undefined) throw new Error("there are two groups");
  expect(differentLines(outlier, usual)).toEqual([false, true, false]);
});

test.each([
  ["ls -l", ["ls", "-l"]],
  ["  sh -c 'a \"b\"'  ", ["sh", "-c", 'a "b"']],
  ['echo "a b" c\\ d ""', ["echo", "a b", "c d", ""]],
])("words of %s", (line, words) => expect(splitWords(line)).toEqual({ words }));

test.each(["", "   ", "echo 'a", 'echo "'])("no words in %j", (line) => expect(splitWords(line).problem).toBeTruthy());
