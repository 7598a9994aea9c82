/** The cluster: its domains and nodes, who uses them, and the actions that take nodes out of use. */

import { useMemo } from "preact/hooks";
import { get } from "../../api/client";
import type { Schema } from "../../api/types";
import { PageHeader } from "../../components/page-header";
import { ResourceView } from "../../components/resource-view";
import { EmptyState } from "../../components/states";
import { concernsNodes, useChanges } from "../../state/changes";
import { useResource } from "../../state/resource";
import { query, setQuery } from "../../state/router";
import { countText, numberText } from "../../text/numbers";
import { JobLegend } from "./legend";
import { LinkTable } from "./links";
import { ClusterMap } from "./map";
import { devicesOf, findPlace, marksOf, matching, parseFilter, placesOf, STATUSES, statusOf } from "./model";
import { PlacePanel } from "./panel";
import "./cluster.css";

interface Cluster {
  topology: Schema<"Topology">;
  nodes: Schema<"Node">[];
  probes: Schema<"Probe">[];
}

export default function ClusterPage() {
  const cluster = useResource(load, []);
  useChanges(concernsNodes, cluster.refresh);
  return (
    <>
      <PageHeader title="Cluster">
        <label class="cluster-filter">
          Filter
          <input
            type="search"
            value={query.value.get("filter") ?? ""}
            placeholder="status:draining rack:r1 job:gpt"
            onInput={(event) => setQuery({ filter: event.currentTarget.value })}
          />
        </label>
      </PageHeader>
      <ResourceView resource={cluster} label="Loading the cluster">
        {(data) =>
          data.nodes.length === 0 ? (
            <EmptyState title="The cluster has no nodes">
              <p>Start Ray on a node with the address of this cluster, and it appears here.</p>
            </EmptyState>
          ) : (
            <ClusterView data={data} onChanged={cluster.refresh} />
          )
        }
      </ResourceView>
    </>
  );
}

async function load(signal: AbortSignal): Promise<Cluster> {
  const [topology, { nodes }, { probes }] = await Promise.all([
    get("/v1/topology", { signal }),
    get("/v1/nodes", { signal }),
    get("/v1/probes", { signal }),
  ]);
  return { topology, nodes, probes };
}

function ClusterView({ data, onChanged }: { data: Cluster; onChanged: () => void }) {
  const text = query.value.get("filter") ?? "";
  const key = query.value.get("select") ?? "";
  const places = useMemo(() => placesOf(data.topology, data.nodes), [data]);
  const marks = useMemo(() => marksOf(data.nodes), [data]);
  const shown = useMemo(() => matching(places, parseFilter(text)), [places, text]);
  const selected = key === "" ? undefined : findPlace(places, key);
  return (
    <>
      <Summary nodes={data.nodes} shown={shown.size} />
      {data.topology.problems.length > 0 && (
        <ul class="notice warning cluster-problems">
          {data.topology.problems.map((problem) => (
            <li key={problem}>{problem}</li>
          ))}
        </ul>
      )}
      <div class={selected ? "cluster-body with-panel" : "cluster-body"}>
        <div class="cluster-main">
          {shown.size === 0 ? (
            <EmptyState title="No node matches the filter">
              <button type="button" onClick={() => setQuery({ filter: undefined })}>
                Show all nodes
              </button>
            </EmptyState>
          ) : (
            <ClusterMap places={places} shown={shown} marks={marks} selected={selected?.key} />
          )}
          <JobLegend nodes={data.nodes} marks={marks} />
          <LinkTable levels={data.topology.levels} />
        </div>
        {selected ? (
          <PlacePanel place={selected} marks={marks} probes={data.probes} onChanged={onChanged} />
        ) : (
          key !== "" && <p class="notice warning">The cluster has no {key.replace(":", " ")} now.</p>
        )}
      </div>
    </>
  );
}

function Summary({ nodes, shown }: { nodes: readonly Schema<"Node">[]; shown: number }) {
  const units = new Map<string, { used: number; total: number }>();
  for (const node of nodes) {
    if (node.node_id === null) continue;
    const { unit, used, total } = devicesOf(node);
    const sum = units.get(unit) ?? { used: 0, total: 0 };
    units.set(unit, { used: sum.used + used, total: sum.total + total });
  }
  const counts = STATUSES.map((status) => [status, nodes.filter((node) => statusOf(node) === status).length] as const);
  return (
    <p class="cluster-summary">
      <b>{countText(nodes.length, "node")}</b>
      {shown < nodes.length && <span>{countText(shown, "match", "match")}</span>}
      {[...units].map(([unit, { used, total }]) => (
        <span key={unit}>
          {numberText(used)} of {numberText(total)} {unit} in use
        </span>
      ))}
      {counts
        .filter(([, count]) => count > 0)
        .map(([status, count]) => (
          <button
            key={status}
            type="button"
            class="link"
            title={`Show only nodes that are ${status}`}
            onClick={() => setQuery({ filter: `status:${status}` })}
          >
            {count} {status}
          </button>
        ))}
    </p>
  );
}
