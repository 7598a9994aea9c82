/** The ranks on their nodes. The groups of an axis have letters, colours and lines. */

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Schema } from "../../../api/types";
import { EmptyState } from "../../../components/states";
import { query, setQuery } from "../../../state/router";
import { countText } from "../../../text/numbers";
import {
  AXIS_NAMES,
  type Axis,
  domainNames,
  groupOf,
  groupsOf,
  layoutText,
  lettersOf,
  placeRanks,
  usedAxes,
} from "./mesh";
import { type DrawnRank, drawMesh } from "./mesh-picture";

const MAX_RANKS = 2048;
const MAX_LINES = 64;
const MAX_LISTED = 64;

export function Mesh({ job, topology }: { job: Schema<"Job">; topology: Schema<"Topology"> | undefined }) {
  const box = useRef<HTMLElement>(null);
  const [width, setWidth] = useState(900);
  useLayoutEffect(() => {
    const element = box.current;
    if (element === null) return;
    const observer = new ResizeObserver(() => setWidth(Math.max(280, element.clientWidth)));
    observer.observe(element);
    return () => observer.disconnect();
  }, [job.layout === null]);
  const layout = job.layout;
  if (layout === null || job.placement.length === 0) {
    return (
      <EmptyState title="No ranks yet">
        <p>
          The job has had no ranks. When it starts, this page shows each rank on its node. The tab Why shows what it
          waits for.
        </p>
      </EmptyState>
    );
  }
  const axes = usedAxes(layout);
  const asked = query.value.get("axis") as Axis | null;
  const axis = asked !== null && axes.includes(asked) ? asked : axes[0];
  const shownGroup = axis === undefined ? undefined : Number(query.value.get("group") ?? Number.NaN);
  const shown = job.placement.slice(0, MAX_RANKS);
  const drawing = drawMesh(placeRanks(shown, topology ? domainNames(topology) : new Map()), width);
  const nodes = new Set(job.placement.map((each) => each.node_name)).size;
  return (
    <section class="card layout-mesh" ref={box} aria-labelledby="layout-mesh-title">
      <header class="row">
        <h2 id="layout-mesh-title">{layoutText(layout)}</h2>
        <span class="quiet">
          {countText(job.placement.length, "rank")} on {countText(nodes, "node")}, generation {job.generation}
        </span>
      </header>
      {axes.length > 0 && (
        <fieldset class="layout-axes">
          <legend>Show the groups of an axis</legend>
          {axes.map((each) => (
            <label key={each} class="check">
              <input
                type="radio"
                name="axis"
                checked={each === axis}
                onChange={() => setQuery({ axis: each, group: undefined })}
              />
              {each}{" "}
              <span class="quiet">
                {AXIS_NAMES[each]}, {layout[each]} ranks in a group
              </span>
            </label>
          ))}
        </fieldset>
      )}
      <svg
        class="layout-drawing"
        width={drawing.width}
        height={drawing.height}
        role="img"
        aria-label={`${countText(shown.length, "rank")} on ${countText(nodes, "node")}`}
      >
        {drawing.domains.map((each) => (
          <text key={each.name} class="domain" x={each.x} y={each.y}>
            {each.name || "nodes of no known rack"}
          </text>
        ))}
        {drawing.nodes.map((each) => (
          <g key={each.name}>
            <rect class="node" x={each.x} y={each.y} width={each.width} height={each.height} rx="5" />
            <text class="name" x={each.x + 6} y={each.y + 14}>
              {each.name}
            </text>
          </g>
        ))}
        {axis !== undefined && <Lines axis={axis} layout={layout} group={shownGroup} ranks={drawing.ranks} />}
        {[...drawing.ranks].map(([rank, at]) => (
          <RankCell key={rank} rank={rank} at={at} group={axis && groupOf(rank, axis, layout)} shown={shownGroup} />
        ))}
      </svg>
      {job.placement.length > MAX_RANKS && (
        <p class="notice">
          The drawing has the first {MAX_RANKS} of {job.placement.length} ranks.
        </p>
      )}
      {axis !== undefined && <Groups axis={axis} layout={layout} group={shownGroup} placement={job.placement} />}
    </section>
  );
}

function RankCell(props: { rank: number; at: DrawnRank; group: number | undefined; shown: number | undefined }) {
  const { rank, at, group, shown } = props;
  const isFaint = shown !== undefined && !Number.isNaN(shown) && shown !== group;
  const colour = group === undefined ? 8 : (group % 8) + 1;
  return (
    <g class={isFaint ? "rank faint" : "rank"}>
      <rect class={`cell fill-${colour}`} x={at.x} y={at.y} width={at.size} height={at.size} rx="4" />
      {at.size > 18 && (
        <>
          <text class="letters" x={at.x + at.size / 2} y={at.y + 14}>
            {group === undefined ? "" : lettersOf(group)}
          </text>
          <text class="number" x={at.x + at.size / 2} y={at.y + at.size - 5}>
            {rank}
          </text>
        </>
      )}
      <title>{group === undefined ? `Rank ${rank}` : `Rank ${rank}, group ${lettersOf(group)}`}</title>
    </g>
  );
}

function Lines(props: {
  axis: Axis;
  layout: Schema<"Layout">;
  group: number | undefined;
  ranks: ReadonlyMap<number, DrawnRank>;
}) {
  const groups = groupsOf(props.axis, props.layout);
  const isOne = props.group !== undefined && !Number.isNaN(props.group);
  const shown = isOne ? [props.group as number] : groups.length <= MAX_LINES ? groups.map((_, index) => index) : [];
  return (
    <g>
      {shown.map((group) => (
        <polyline
          key={group}
          class={`line stroke-${(group % 8) + 1}${isOne ? " strong" : ""}`}
          points={(groups[group] ?? [])
            .map((rank) => props.ranks.get(rank))
            .filter((at) => at !== undefined)
            .map((at) => `${at.x + at.size / 2},${at.y + at.size / 2}`)
            .join(" ")}
        />
      ))}
    </g>
  );
}

function Groups(props: {
  axis: Axis;
  layout: Schema<"Layout">;
  group: number | undefined;
  placement: readonly Schema<"RankPlacement">[];
}) {
  const { axis, layout, group, placement } = props;
  const groups = groupsOf(axis, layout);
  const nodeOf = new Map(placement.map((each) => [each.rank, each.node_name]));
  return (
    <ul class="layout-groups" aria-label={`Groups of ${axis}`}>
      {groups.slice(0, MAX_LISTED).map((ranks, index) => {
        const nodes = new Set(ranks.map((rank) => nodeOf.get(rank)));
        const isShown = group === index;
        return (
          <li key={ranks[0]}>
            <button
              type="button"
              class="plain"
              aria-pressed={isShown}
              onClick={() => setQuery({ axis, group: isShown ? undefined : String(index) })}
            >
              <i class={`dot fill-${(index % 8) + 1}`} aria-hidden="true" />
              <b>{lettersOf(index)}</b> ranks {ranksText(ranks)}
              <span class="quiet"> {nodes.size === 1 ? "one node" : `${nodes.size} nodes`}</span>
            </button>
          </li>
        );
      })}
      {groups.length > MAX_LISTED && <li class="quiet">and {groups.length - MAX_LISTED} more groups</li>}
    </ul>
  );
}

function ranksText(ranks: readonly number[]): string {
  if (ranks.length <= 6) return ranks.join(", ");
  return `${ranks.slice(0, 3).join(", ")}, … ${ranks.at(-1)}`;
}
