/** Domains as boxes inside each other, with their nodes. Arrow keys move between nodes. */

import { setQuery } from "../../state/router";
import { countText, numberText } from "../../text/numbers";
import { devicesOf, type Node, type Place, placeText, statusOf } from "./model";

export type Marks = ReadonlyMap<string, { letter: string; series: number; ranks: number }>;

const SIGNS: Record<string, string> = {
  open: "",
  draining: "↓",
  cordoned: "⊘",
  quarantined: "!",
  fenced: "!",
  unreachable: "?",
  lost: "×",
};

export function ClusterMap(props: {
  places: readonly Place[];
  shown: ReadonlySet<string>;
  marks: Marks;
  selected?: string | undefined;
}) {
  const first = props.places.flatMap((place) => place.nodes).find((node) => props.shown.has(node.name));
  const current = props.selected?.startsWith("node:") ? props.selected.slice(5) : first?.name;
  return (
    // biome-ignore lint/a11y/useSemanticElements: a fieldset has no place outside a form
    <div class="cluster-map" role="group" aria-label="Map of the cluster" onKeyDown={moveFocus}>
      {props.places.map((place) => (
        <Box key={place.key} place={place} {...props} current={current} />
      ))}
    </div>
  );
}

function Box(props: {
  place: Place;
  shown: ReadonlySet<string>;
  marks: Marks;
  selected?: string | undefined;
  current?: string | undefined;
}) {
  const { place, shown, marks, selected, current } = props;
  if (place.level === "node" && place.nodes[0]) {
    const node = place.nodes[0];
    if (!shown.has(node.name)) return null;
    return <NodeCell node={node} marks={marks} isSelected={selected === place.key} isCurrent={current === node.name} />;
  }
  const visible = place.nodes.filter((node) => shown.has(node.name));
  if (visible.length === 0) return null;
  const children = place.children.length > 0 ? place.children : place.nodes.map(nodePlace);
  const used = place.nodes.reduce((sum, node) => sum + devicesOf(node).used, 0);
  const total = place.nodes.reduce((sum, node) => sum + devicesOf(node).total, 0);
  const hasNodes = children.some((child) => child.level === "node");
  return (
    <div class={hasNodes ? "cluster-box leaf" : "cluster-box"}>
      <button
        type="button"
        class="cluster-head"
        aria-pressed={selected === place.key}
        onClick={() => setQuery({ select: selected === place.key ? undefined : place.key })}
      >
        <b>{placeText(place)}</b>
        <span class="quiet">
          {countText(place.nodes.length, "node")} · {numberText(used)}/{numberText(total)}
        </span>
      </button>
      <div class={hasNodes ? "cluster-cells" : "cluster-boxes"}>
        {children.map((child) => (
          <Box key={child.key} {...props} place={child} />
        ))}
      </div>
    </div>
  );
}

function NodeCell(props: { node: Node; marks: Marks; isSelected: boolean; isCurrent: boolean }) {
  const { node, marks } = props;
  const status = statusOf(node);
  const { total, used, unit } = devicesOf(node);
  const key = `node:${node.name}`;
  const jobs = node.jobs.map((job) => `${job.name} ${job.ranks}`).join(", ");
  const label = `${node.name}, ${status}, ${numberText(used)} of ${numberText(total)} ${unit} in use${jobs && `: ${jobs}`}`;
  return (
    <button
      type="button"
      class={`cluster-node ${status}`}
      aria-label={label}
      aria-pressed={props.isSelected}
      tabIndex={props.isCurrent ? 0 : -1}
      title={node.health.why ? `${label}. ${node.health.why}` : label}
      onClick={() => setQuery({ select: props.isSelected ? undefined : key })}
    >
      {node.jobs.map((job) => {
        const mark = marks.get(job.id);
        const share = total > 0 ? (100 * job.ranks) / total : 0;
        return (
          <i key={job.id} class={`fill-${mark?.series ?? 8}`} style={{ width: `${share}%` }}>
            {mark?.letter}
          </i>
        );
      })}
      {SIGNS[status] && <em>{SIGNS[status]}</em>}
    </button>
  );
}

function nodePlace(node: Node): Place {
  return { level: "node", name: node.name, key: `node:${node.name}`, nodes: [node], children: [] };
}

function moveFocus(event: KeyboardEvent): void {
  const cells = [...(event.currentTarget as HTMLElement).querySelectorAll<HTMLElement>(".cluster-node")];
  const at = cells.indexOf(event.target as HTMLElement);
  if (at < 0) return;
  const steps: Record<string, number> = { ArrowRight: 1, ArrowLeft: -1, Home: -at, End: cells.length - 1 - at };
  let next = event.key in steps ? cells[at + (steps[event.key] ?? 0)] : undefined;
  if (event.key === "ArrowDown" || event.key === "ArrowUp") next = inNextRow(cells, at, event.key === "ArrowDown");
  if (next === undefined) return;
  event.preventDefault();
  next.focus();
}

/** Return the nearest cell of the next row of the page. */
function inNextRow(cells: readonly HTMLElement[], at: number, isDown: boolean): HTMLElement | undefined {
  const from = cells[at]?.getBoundingClientRect();
  if (from === undefined) return undefined;
  let best: HTMLElement | undefined;
  let least = Number.POSITIVE_INFINITY;
  for (const cell of cells) {
    const box = cell.getBoundingClientRect();
    const rows = isDown ? box.top - from.top : from.top - box.top;
    if (rows < from.height / 2) continue;
    const distance = rows * 10 + Math.abs(box.left - from.left);
    if (distance < least) [best, least] = [cell, distance];
  }
  return best;
}
