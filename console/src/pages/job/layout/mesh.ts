/** Places and groups of ranks: which ranks communicate along an axis, and on which nodes they are. Pure. */

import type { Schema } from "../../../api/types";

/** Axes in the order of ranks: the first one changes fastest. */
export const AXES = ["tp", "cp", "dp_shard", "dp_replicate", "pp"] as const;
export type Axis = (typeof AXES)[number];
type Degrees = Pick<Schema<"Layout">, Axis>;

export const AXIS_NAMES: Record<Axis, string> = {
  tp: "tensor parallel",
  cp: "context parallel",
  dp_shard: "sharded data parallel",
  dp_replicate: "replicated data parallel",
  pp: "pipeline parallel",
};

/** A node with the ranks of the job on it. */
export interface NodeRanks {
  name: string;
  ranks: number[];
}

/** Nodes of one domain, for example of a rack. */
export interface DomainNodes {
  name: string;
  nodes: NodeRanks[];
}

/** Return the axes with more than one rank. */
export function usedAxes(layout: Degrees): Axis[] {
  return AXES.filter((axis) => layout[axis] > 1);
}

/** Return the number of ranks of a layout. */
export function worldSize(layout: Degrees): number {
  return AXES.reduce((product, axis) => product * layout[axis], 1);
}

/** Return the degrees above 1 as text, for example `tp 2 × dp 4`. */
export function layoutText(layout: Degrees): string {
  const parts = usedAxes(layout).map((axis) => `${axis} ${layout[axis]}`);
  return parts.length === 0 ? "1 rank" : parts.join(" × ");
}

/** Return the number of a rank's group along an axis, from 0. Its members have equal positions on all other axes. */
export function groupOf(rank: number, axis: Axis, layout: Degrees): number {
  const stride = AXES.slice(0, AXES.indexOf(axis)).reduce((product, each) => product * layout[each], 1);
  const block = stride * layout[axis];
  return Math.floor(rank / block) * stride + (rank % stride);
}

/** Return the groups of an axis, each with its ranks in the order in which they send. */
export function groupsOf(axis: Axis, layout: Degrees): number[][] {
  const groups: number[][] = [];
  for (let rank = 0; rank < worldSize(layout); rank += 1) {
    const group = groupOf(rank, axis, layout);
    groups[group] ??= [];
    groups[group].push(rank);
  }
  return groups;
}

/** Return the letters of a group: A to Z, then AA, AB and so on. */
export function lettersOf(group: number): string {
  const last = String.fromCharCode(65 + (group % 26));
  return group < 26 ? last : lettersOf(Math.floor(group / 26) - 1) + last;
}

/** Return the nodes of the ranks by domain. Nodes of an unknown domain are in one without a name. */
export function placeRanks(
  placement: readonly Schema<"RankPlacement">[],
  domains: ReadonlyMap<string, string>,
): DomainNodes[] {
  const found = new Map<string, Map<string, number[]>>();
  for (const { rank, node_name } of [...placement].sort((one, other) => one.rank - other.rank)) {
    const domain = domains.get(node_name) ?? "";
    const nodes = found.get(domain) ?? new Map<string, number[]>();
    found.set(domain, nodes);
    nodes.set(node_name, [...(nodes.get(node_name) ?? []), rank]);
  }
  return [...found].map(([name, nodes]) => ({
    name,
    nodes: [...nodes].map(([node, ranks]) => ({ name: node, ranks })),
  }));
}

/** Return the name of the domain of each node, for example `block b1 / rack r2`. */
export function domainNames(topology: Schema<"Topology">): Map<string, string> {
  const found = new Map<string, string>();
  const visit = (domain: Schema<"Domain">, above: readonly string[]) => {
    if (domain.level === "node") {
      found.set(domain.name, above.join(" / "));
      return;
    }
    const path = domain.name === "" ? above : [...above, `${domain.level.replaceAll("_", " ")} ${domain.name}`];
    for (const child of domain.children) visit(child, path);
  };
  for (const domain of topology.domains) visit(domain, []);
  return found;
}
