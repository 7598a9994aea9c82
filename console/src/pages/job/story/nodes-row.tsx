/** Nodes and their ranks over time: one row for each rank of a small job, one for each node of a large one. */

import type { Story } from "./entries";
import type { View } from "./tracks";
import { overlaps, position } from "./window";

/** Jobs with more ranks show one row for each node. */
const MOST_RANK_ROWS = 64;
const MOST_NODES = 400;

export interface NodeLayout {
  rows: { name: string; y: number; height: number; places: readonly Place[] }[];
  height: number;
  /** Nodes that are not drawn. */
  hidden: number;
}

interface Place {
  from: number;
  to: number;
  ranks: readonly (readonly number[])[];
}

/** Return where each node is drawn. Spans without generations that are known are left out. */
export function nodeLayout(story: Story, end: number): NodeLayout {
  const times = new Map(
    story.generations.map((each) => [
      each.number,
      { from: each.from_s - story.from_s, to: each.until_s === null ? end : each.until_s - story.from_s },
    ]),
  );
  const widest = Math.max(0, ...story.generations.map((each) => each.world_size));
  const perRank = widest <= MOST_RANK_ROWS ? 9 : 0;
  const rows: NodeLayout["rows"] = [];
  let y = 0;
  for (const node of story.nodes.slice(0, MOST_NODES)) {
    const places: Place[] = [];
    let most = 1;
    for (const each of node.places) {
      most = Math.max(most, countOf(each.ranks));
      for (let number = each.first_generation; number <= each.last_generation; number += 1) {
        const time = times.get(number);
        if (time !== undefined) places.push({ ...time, ranks: each.ranks });
      }
    }
    const height = perRank > 0 ? Math.max(14, perRank * most + 3) : story.nodes.length > 40 ? 7 : 14;
    rows.push({ name: node.name, y, height, places });
    y += height + (height > 8 ? 3 : 1);
  }
  return { rows, height: y, hidden: Math.max(0, story.nodes.length - MOST_NODES) };
}

/** Return ranks as text, `0-3, 8`. */
export function ranksText(ranks: readonly (readonly number[])[]): string {
  return ranks.map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`)).join(", ");
}

export function NodesRow({ view, layout }: { view: View; layout: NodeLayout }) {
  const atFault = new Map(view.story.incidents.map((each) => [each.generation, each]));
  return (
    <>
      {layout.rows.map((row) => (
        <g key={`${row.name}-${row.y}`} transform={`translate(0 ${row.y})`}>
          {row.places.map((place) => {
            if (!overlaps(place, view.span)) return null;
            const x = Math.max(-2, position(place.from, view.span, view.width));
            const width = Math.max(1, Math.min(view.width + 2, position(place.to, view.span, view.width)) - x - 1);
            const show = () => view.onDetails(`Node ${row.name}: rank ${ranksText(place.ranks)}`);
            const count = countOf(place.ranks);
            const each = (row.height - 3) / Math.max(1, count);
            return (
              <g key={place.from} class="story-ranks" onPointerEnter={show}>
                {each >= 7 && row.height > 8
                  ? numbersOf(place.ranks).map((rank, index) => (
                      <g key={rank} class={isAtFault(atFault, place, view, rank) ? "fault" : ""}>
                        <rect x={x} y={1 + index * each} width={width} height={each - 1} />
                        {width > 44 && each >= 8.5 && (
                          <text x={Math.max(3, x + 3)} y={index * each + each - 1.2}>
                            {rank}
                          </text>
                        )}
                      </g>
                    ))
                  : [<rect key="all" x={x} y={1} width={width} height={row.height - 2} />]}
              </g>
            );
          })}
        </g>
      ))}
    </>
  );
}

function isAtFault(
  incidents: Map<number | null, { rank: number | null; from_s: number }>,
  place: Place,
  view: View,
  rank: number,
): boolean {
  for (const each of incidents.values()) {
    if (each.rank === rank && Math.abs(each.from_s - view.story.from_s - place.to) < 0.5) return true;
  }
  return false;
}

function countOf(ranks: readonly (readonly number[])[]): number {
  return ranks.reduce((sum, [first = 0, last = 0]) => sum + last - first + 1, 0);
}

function numbersOf(ranks: readonly (readonly number[])[]): number[] {
  return ranks.flatMap(([first = 0, last = 0]) =>
    Array.from({ length: last - first + 1 }, (_, index) => first + index),
  );
}
