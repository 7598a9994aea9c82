/** One cell for each rank, grouped by node. The arrow keys move, Space selects, Shift selects a range. */

import { useRef, useState } from "preact/hooks";
import { numberText } from "../../../text/numbers";
import { durationText } from "../../../text/time";
import { type RankView, ranksByNode, STATES } from "./rank-state";

const COLUMN_KEYS: Record<string, number> = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 8, ArrowUp: -8 };

export function RankGrid(props: {
  ranks: readonly RankView[];
  selected: ReadonlySet<number>;
  onSelect: (ranks: readonly number[]) => void;
}) {
  const { ranks, selected, onSelect } = props;
  const box = useRef<HTMLElement>(null);
  const [current, setCurrent] = useState(0);
  const anchor = useRef(0);
  const shown = ranksByNode(ranks).flatMap(([, group]) => group);
  const focused = shown.some((each) => each.rank === current) ? current : shown[0]?.rank;
  const choose = (rank: number, isRange: boolean) => {
    setCurrent(rank);
    if (isRange) {
      const [first, last] = [
        shown.findIndex((each) => each.rank === anchor.current),
        shown.findIndex((each) => each.rank === rank),
      ];
      onSelect(shown.slice(Math.max(0, Math.min(first, last)), Math.max(first, last) + 1).map((each) => each.rank));
      return;
    }
    anchor.current = rank;
    const next = new Set(selected);
    if (!next.delete(rank)) next.add(rank);
    onSelect([...next]);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const move = COLUMN_KEYS[event.key];
    const at = shown.findIndex((each) => each.rank === focused);
    const target =
      event.key === "Home" ? 0 : event.key === "End" ? shown.length - 1 : move === undefined ? -1 : at + move;
    const next = shown[target];
    if (next === undefined) return;
    event.preventDefault();
    setCurrent(next.rank);
    box.current?.querySelector<HTMLElement>(`[data-rank="${next.rank}"]`)?.focus();
  };
  return (
    <section class="ranks-grid" ref={box} aria-label="Ranks by node" onKeyDown={onKeyDown}>
      {ranksByNode(ranks).map(([node, group]) => (
        <section key={node} class="ranks-node" aria-label={node || "no node"}>
          <h3 title={node}>{node || "no node"}</h3>
          <div>
            {group.map((each) => (
              <button
                key={each.rank}
                type="button"
                class={`ranks-cell ${STATES[each.state].tone}`}
                data-rank={each.rank}
                tabIndex={each.rank === focused ? 0 : -1}
                aria-pressed={selected.has(each.rank)}
                title={`Rank ${each.rank}: ${cellLabel(each)}`}
                onClick={(event) => choose(each.rank, event.shiftKey)}
              >
                <b>{STATES[each.state].letter}</b>
                <span>{each.rank}</span>
                <span class="visually-hidden">{cellLabel(each)}</span>
              </button>
            ))}
          </div>
        </section>
      ))}
    </section>
  );
}

function cellLabel(each: RankView): string {
  const parts = [`${STATES[each.state].label}`];
  if (each.phase !== null) parts.push(`${each.phase} of step ${each.step}`);
  if (each.work_s !== null) parts.push(`works ${durationText(each.work_s)} in a step`);
  if (each.factor !== null) parts.push(`${numberText(each.factor, 3)} × the median`);
  return parts.join(", ");
}
