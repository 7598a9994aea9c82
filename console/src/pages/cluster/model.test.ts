import { expect, test } from "vitest";
import type { Schema } from "../../api/types";
import { secondsUntil } from "./deadline";
import { findPlace, marksOf, matching, type Node, parseFilter, placesOf, statusOf } from "./model";

const node = (name: string, values: Partial<Node> = {}): Node => ({
  name,
  cluster: "default",
  node_id: `${name}-id`,
  node_name: name,
  address: "h",
  cpus: 4,
  free_cpus: 4,
  gpus: 0,
  free_gpus: 0,
  memory_bytes: 0,
  free_memory_bytes: 0,
  is_draining: false,
  jobs: [],
  spare_for: "",
  health: {
    status: "open",
    score: 0,
    why: "",
    until_s: null,
    cordoned_by: null,
    cordoned_at_s: null,
    quarantines: 0,
    faults: [],
  },
  etag: "x",
  ...values,
});
const domain = (level: string, name: string, children: unknown[]) => ({ level, name, children }) as unknown;
const topology = {
  domains: [
    domain("rack", "a", [domain("node", "a-0", []), domain("node", "a-1", [])]),
    domain("rack", "b", [domain("node", "b-0", [])]),
  ],
} as unknown as Schema<"Topology">;
const nodes = [
  node("a-0", { jobs: [{ id: "j_1", name: "gpt", ranks: 3 }] }),
  node("a-1", { is_draining: true, jobs: [{ id: "j_2", name: "bert", ranks: 4 }] }),
  node("b-0"),
  node("gone", { node_id: null, node_name: null }),
];

test("the tree has each node once, and nodes without a place come last", () => {
  const places = placesOf(topology, nodes);
  expect(places.map((place) => [place.key, place.nodes.length])).toEqual([
    ["rack:a", 2],
    ["rack:b", 1],
    ["other:", 1],
  ]);
  expect(findPlace(places, "node:a-1")?.nodes[0]?.name).toBe("a-1");
  expect(findPlace(places, "node:gone")?.level).toBe("node");
  expect(findPlace(places, "rack:z")).toBeUndefined();
});

test.each([
  ["", ["a-0", "a-1", "b-0", "gone"]],
  ["status:draining", ["a-1"]],
  ["status:draining status:lost", ["a-1", "gone"]],
  ["rack:a job:gpt", ["a-0"]],
  ["b-", ["b-0"]],
])("the filter %s keeps %s", (text, names) =>
  expect([...matching(placesOf(topology, nodes), parseFilter(text))]).toEqual(names),
);

test("the largest job has the first letter", () => {
  const marks = marksOf(nodes);
  expect([marks.get("j_2")?.letter, marks.get("j_1")?.letter]).toEqual(["A", "B"]);
  expect(statusOf(nodes[3] as Node)).toBe("lost");
});

const NOW = new Date(2026, 2, 1, 16, 30, 0);
test.each([
  ["17:00", 1800],
  ["16:30", 86_400],
  ["2h", 7200],
  ["1h 30min", 5400],
  ["90 s", 90],
  ["", undefined],
  ["25:00", undefined],
  ["soon", undefined],
  ["2h x", undefined],
  ["30d", undefined],
])("the deadline %s is in %s s", (text, seconds) => expect(secondsUntil(text, NOW)).toBe(seconds));
