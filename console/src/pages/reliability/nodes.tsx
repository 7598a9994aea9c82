/** Nodes that fail often, with their present health. */

import { get } from "../../api/client";
import type { Schema } from "../../api/types";
import { Badge, type Tone } from "../../components/badge";
import { ShortTable } from "../../components/short-table";
import { useChanges } from "../../state/changes";
import { useResource } from "../../state/resource";
import { href } from "../../state/router";
import { countText, numberText } from "../../text/numbers";
import { agoText } from "../../text/time";
import { wordsOf } from "./causes";

type Faults = Schema<"NodeFaults">;
type Health = Schema<"NodeHealth">;

const TONES: Record<Health["status"], Tone> = {
  open: "good",
  cordoned: "warning",
  quarantined: "bad",
  fenced: "bad",
  unreachable: "bad",
};

export function Nodes({ faults }: { faults: readonly Faults[] }) {
  const nodes = useResource((signal) => get("/v1/nodes", { signal }), []);
  useChanges((change) => !change.job, nodes.refresh);
  const health = new Map((nodes.data.value?.nodes ?? []).map((each) => [each.name, each.health]));
  return (
    <section class="card" aria-labelledby="nodes">
      <h2 id="nodes">Nodes that fail often</h2>
      {faults.length === 0 ? (
        <p class="quiet">
          No node had a fault in this window. The server keeps faults for seven days.{" "}
          <a href={href("cluster")}>Cluster</a> shows all nodes.
        </p>
      ) : (
        <ShortTable
          label="Nodes with faults"
          rows={faults}
          rowKey={(row) => row.node}
          columns={[
            {
              id: "node",
              label: "Node",
              cell: (row) => <a href={href("cluster", { select: `node:${row.node}` })}>{row.node}</a>,
            },
            { id: "health", label: "Health", cell: (row) => <HealthText health={health.get(row.node)} /> },
            { id: "count", label: "Faults", isNumber: true, cell: (row) => numberText(totalOf(row), 12) },
            { id: "kinds", label: "Kinds", cell: kindsText },
            { id: "last", label: "Newest", cell: (row) => agoText(row.last_s) },
            { id: "why", label: "Why it is closed", cell: (row) => health.get(row.node)?.why ?? "" },
          ]}
        />
      )}
    </section>
  );
}

function HealthText({ health }: { health: Health | undefined }) {
  if (health === undefined) return <span class="quiet">not in the cluster</span>;
  return <Badge tone={TONES[health.status]}>{health.status}</Badge>;
}

function totalOf(row: Faults): number {
  return Object.values(row.faults).reduce((sum, value) => sum + value, 0);
}

function kindsText(row: Faults): string {
  return Object.entries(row.faults)
    .map(([kind, count]) => countText(count, wordsOf(kind), wordsOf(kind)))
    .join(", ");
}
