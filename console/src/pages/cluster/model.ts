/** The cluster as the page shows it: domains with their nodes, their state, and the filter. Pure. */

import type { Schema } from "../../api/types";

export type Node = Schema<"Node">;
export type Status = Node["health"]["status"] | "draining" | "lost";

export interface Place {
  level: string;
  name: string;
  /** `rack:r1`; also the value of `select` in the address. */
  key: string;
  /** Nodes below, in the order of the tree. */
  nodes: Node[];
  children: Place[];
}

export interface Filter {
  status: string[];
  rack: string[];
  job: string[];
  words: string[];
}

export const STATUSES: readonly Status[] = [
  "open",
  "cordoned",
  "quarantined",
  "fenced",
  "unreachable",
  "draining",
  "lost",
];

const BY_NUMBER = new Intl.Collator("en", { numeric: true });

/** Return the status that a person sees first. A node that left the cluster is lost. */
export function statusOf(node: Node): Status {
  if (node.node_id === null) return "lost";
  return node.is_draining && node.health.status === "open" ? "draining" : node.health.status;
}

/** Return the devices of a node: GPUs, or cores if it has none. */
export function devicesOf(node: Node): { total: number; used: number; unit: string } {
  return node.gpus > 0
    ? { total: node.gpus, used: node.gpus - node.free_gpus, unit: "GPUs" }
    : { total: node.cpus, used: node.cpus - node.free_cpus, unit: "cores" };
}

/** Return the tree of the topology with its nodes; nodes without a place come last. */
export function placesOf(topology: Schema<"Topology">, nodes: readonly Node[]): Place[] {
  const byName = new Map(nodes.map((node) => [node.node_name ?? node.name, node]));
  const placed = new Set<Node>();
  const found = topology.domains.flatMap((domain) => toPlaces(domain, byName, placed));
  found.sort((a, b) => BY_NUMBER.compare(a.name, b.name));
  const others = nodes.filter((node) => !placed.has(node));
  if (others.length > 0) {
    found.push({ level: "other", name: "not in the topology", key: "other:", nodes: others, children: [] });
  }
  return found;
}

function toPlaces(domain: Schema<"Domain">, byName: Map<string, Node>, placed: Set<Node>): Place[] {
  if (domain.level === "node") {
    const node = byName.get(domain.name);
    if (node === undefined) return [];
    placed.add(node);
    return [{ level: "node", name: node.name, key: `node:${node.name}`, nodes: [node], children: [] }];
  }
  const children = domain.children.flatMap((child) => toPlaces(child, byName, placed));
  children.sort((a, b) => BY_NUMBER.compare(a.name, b.name));
  const nodes = children.flatMap((child) => child.nodes);
  return [{ level: domain.level, name: domain.name, key: `${domain.level}:${domain.name}`, nodes, children }];
}

/** Return the place with this key. */
export function findPlace(places: readonly Place[], key: string): Place | undefined {
  for (const place of places) {
    if (place.key === key) return place;
    const inside = findPlace(place.children, key);
    if (inside) return inside;
  }
  const name = key.startsWith("node:") ? key.slice(5) : undefined;
  const node = name === undefined ? undefined : places.flatMap((place) => place.nodes).find((n) => n.name === name);
  return node && { level: "node", name: node.name, key, nodes: [node], children: [] };
}

/** Read a filter such as `status:draining rack:a job:j_1 gpu-17`. Several values of one name are alternatives. */
export function parseFilter(text: string): Filter {
  const filter: Filter = { status: [], rack: [], job: [], words: [] };
  for (const word of text.split(/\s+/).filter(Boolean)) {
    const match = /^(status|rack|job):(.+)$/.exec(word);
    if (match) filter[match[1] as "status" | "rack" | "job"].push(match[2] as string);
    else filter.words.push(word);
  }
  return filter;
}

/** Return the names of the nodes that match a filter; `rackOf` has the domains of each node. */
export function matching(places: readonly Place[], filter: Filter): Set<string> {
  const found = new Set<string>();
  const visit = (place: Place, domains: readonly string[]) => {
    if (place.children.length === 0) {
      for (const node of place.nodes) if (matches(node, domains, filter)) found.add(node.name);
      return;
    }
    for (const child of place.children) visit(child, [...domains, place.name]);
  };
  for (const place of places) visit(place, []);
  return found;
}

function matches(node: Node, domains: readonly string[], filter: Filter): boolean {
  if (filter.status.length > 0 && !filter.status.includes(statusOf(node))) return false;
  if (filter.rack.length > 0 && !filter.rack.some((rack) => domains.includes(rack))) return false;
  const jobs = node.jobs.flatMap((job) => [job.id, job.name]);
  if (filter.job.length > 0 && !filter.job.some((job) => jobs.includes(job))) return false;
  return filter.words.every((word) => node.name.includes(word));
}

/** Return a letter and a colour for each job with devices, the largest first: `A` to `Z`, then `A2`… */
export function marksOf(nodes: readonly Node[]): Map<string, { letter: string; series: number; ranks: number }> {
  const ranks = new Map<string, number>();
  for (const job of nodes.flatMap((node) => node.jobs)) ranks.set(job.id, (ranks.get(job.id) ?? 0) + job.ranks);
  const ordered = [...ranks].sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0]));
  return new Map(
    ordered.map(([id, count], index) => {
      const round = Math.floor(index / 26);
      const letter = String.fromCharCode(65 + (index % 26)) + (round > 0 ? String(round + 1) : "");
      return [id, { letter, series: (index % 7) + 1, ranks: count }];
    }),
  );
}

/** Return a domain as text: `rack r1`. */
export function placeText(place: Place): string {
  if (place.level === "other") return place.name;
  return `${place.level.replace("gpu_", "GPU ")} ${place.name || "(unknown)"}`;
}
