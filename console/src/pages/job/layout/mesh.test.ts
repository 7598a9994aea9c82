import { describe, expect, it } from "vitest";
import { domainNames, groupsOf, layoutText, lettersOf, placeRanks, usedAxes } from "./mesh";

const LAYOUT = { tp: 2, cp: 1, dp_shard: 2, dp_replicate: 1, pp: 2 };

describe("the mesh", () => {
  it("has tp as the nearest and pp as the farthest axis", () => {
    expect(usedAxes(LAYOUT)).toEqual(["tp", "dp_shard", "pp"]);
    expect(groupsOf("tp", LAYOUT)).toEqual([
      [0, 1],
      [2, 3],
      [4, 5],
      [6, 7],
    ]);
    expect(groupsOf("dp_shard", LAYOUT)).toEqual([
      [0, 2],
      [1, 3],
      [4, 6],
      [5, 7],
    ]);
    expect(groupsOf("pp", LAYOUT)).toEqual([
      [0, 4],
      [1, 5],
      [2, 6],
      [3, 7],
    ]);
  });

  it("names groups by letters", () => {
    expect([0, 25, 26, 27, 701, 702].map(lettersOf)).toEqual(["A", "Z", "AA", "AB", "ZZ", "AAA"]);
  });

  it("shows the degrees above 1", () => {
    expect(layoutText(LAYOUT)).toBe("tp 2 × dp_shard 2 × pp 2");
    expect(layoutText({ tp: 1, cp: 1, dp_shard: 1, dp_replicate: 1, pp: 1 })).toBe("1 rank");
  });

  it("places ranks on their nodes by domain", () => {
    const place = (rank: number, node_name: string) => ({
      rank,
      node_name,
      node_id: "",
      address: "",
      local_rank: 0,
      device: 0,
    });
    const domains = new Map([["a", "rack r1"]]);
    expect(placeRanks([place(2, "b"), place(1, "a"), place(0, "a")], domains)).toEqual([
      { name: "rack r1", nodes: [{ name: "a", ranks: [0, 1] }] },
      { name: "", nodes: [{ name: "b", ranks: [2] }] },
    ]);
  });

  it("names the domains of a node from the largest to the smallest", () => {
    const domain = (level: string, name: string, children: object[] = []) => ({ level, name, children });
    const topology = { domains: [domain("block", "b1", [domain("rack", "r1", [domain("node", "n1")])])] };
    expect([...domainNames(topology as never)]).toEqual([["n1", "block b1 / rack r1"]]);
  });
});
