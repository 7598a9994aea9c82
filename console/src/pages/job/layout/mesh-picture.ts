/** Places of nodes and ranks in the drawing of a mesh, in pixels. Pure. */

import type { DomainNodes } from "./mesh";

export interface DrawnRank {
  x: number;
  y: number;
  size: number;
}

export interface DrawnNode {
  name: string;
  x: number;
  y: number;
  width: number;
  height: number;
}

export interface Drawing {
  width: number;
  height: number;
  domains: { name: string; x: number; y: number }[];
  nodes: DrawnNode[];
  ranks: Map<number, DrawnRank>;
}

const LARGE_PX = 34;
const SMALL_PX = 12;
const MANY_RANKS = 256;
const GAP_PX = 4;
const PAD_PX = 8;
const NAME_PX = 20;
const MIN_NODE_PX = 96;
const MOST_COLUMNS = 8;

/** Return the drawing of nodes with their ranks, wrapped at a width. */
export function drawMesh(domains: readonly DomainNodes[], width: number): Drawing {
  const inner = width - 2 * PAD_PX;
  const count = domains.reduce(
    (sum, domain) => sum + domain.nodes.reduce((all, node) => all + node.ranks.length, 0),
    0,
  );
  const size = count > MANY_RANKS ? SMALL_PX : LARGE_PX;
  const columnsFit = Math.max(1, Math.floor((inner - 2 * PAD_PX + GAP_PX) / (size + GAP_PX)));
  const drawing: Drawing = { width: inner, height: 0, domains: [], nodes: [], ranks: new Map() };
  let top = 0;
  for (const domain of domains) {
    drawing.domains.push({ name: domain.name, x: 0, y: top + 13 });
    top += NAME_PX;
    let left = 0;
    let rowHeight = 0;
    for (const node of domain.nodes) {
      const columns = Math.min(MOST_COLUMNS, columnsFit, node.ranks.length);
      const rows = Math.ceil(node.ranks.length / columns);
      const nodeWidth = Math.max(MIN_NODE_PX, columns * (size + GAP_PX) - GAP_PX + 2 * PAD_PX);
      const nodeHeight = NAME_PX + rows * (size + GAP_PX) - GAP_PX + PAD_PX;
      if (left > 0 && left + nodeWidth > inner) {
        top += rowHeight + PAD_PX;
        left = 0;
        rowHeight = 0;
      }
      drawing.nodes.push({ name: node.name, x: left, y: top, width: nodeWidth, height: nodeHeight });
      for (const [index, rank] of node.ranks.entries()) {
        const x = left + PAD_PX + (index % columns) * (size + GAP_PX);
        const y = top + NAME_PX + Math.floor(index / columns) * (size + GAP_PX);
        drawing.ranks.set(rank, { x, y, size });
      }
      left += nodeWidth + PAD_PX;
      rowHeight = Math.max(rowHeight, nodeHeight);
    }
    top += rowHeight + PAD_PX;
  }
  drawing.height = Math.max(0, top);
  return drawing;
}
