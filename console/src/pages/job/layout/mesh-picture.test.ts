import { expect, it } from "vitest";
import { drawMesh } from "./mesh-picture";

const nodes = (count: number, each: number) =>
  Array.from({ length: count }, (_, node) => ({
    name: `n${node}`,
    ranks: Array.from({ length: each }, (_, rank) => node * each + rank),
  }));

it("draws each rank once, inside its node and inside the width", () => {
  for (const width of [320, 900]) {
    const drawing = drawMesh([{ name: "rack r1", nodes: nodes(9, 8) }], width);
    expect(drawing.ranks.size).toBe(72);
    for (const node of drawing.nodes) expect(node.x + node.width).toBeLessThanOrEqual(width);
    for (const [rank, at] of drawing.ranks) {
      const node = drawing.nodes[Math.floor(rank / 8)];
      expect(at.x).toBeGreaterThanOrEqual(node?.x ?? Number.NaN);
      expect(at.y + at.size).toBeLessThanOrEqual((node?.y ?? 0) + (node?.height ?? 0));
    }
  }
});

it("draws many ranks smaller", () => {
  const size = (count: number) => drawMesh([{ name: "", nodes: nodes(count, 8) }], 900).ranks.get(0)?.size ?? 0;
  expect(size(100)).toBeLessThan(size(2));
});
