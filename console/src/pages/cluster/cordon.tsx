/** Close a node for new ranks, or open it again. */

import { useState } from "preact/hooks";
import { change } from "../../api/client";
import { ActionPanel } from "../../components/action-panel";
import { commandText } from "../../text/commands";
import { countText } from "../../text/numbers";
import type { Node } from "./model";

export function CordonPanel({ node, onDone }: { node: Node; onDone: () => void }) {
  const [reason, setReason] = useState("");
  const isClosed = node.health.status === "cordoned" || node.health.status === "quarantined";
  const verb = isClosed ? "uncordon" : "cordon";
  const path = isClosed ? "/v1/nodes/{name}/uncordon" : "/v1/nodes/{name}/cordon";
  const values = { name: node.name };
  const jobs = countText(node.jobs.length, "job");
  return (
    <ActionPanel
      action={{
        title: `${isClosed ? "Uncordon" : "Cordon"} ${node.name}`,
        requests: [{ method: "post", path, values, body: { reason } }],
        commands: [commandText("regroup", verb, node.name, ...(reason ? ["--reason", reason] : []))],
        run: (isDryRun) => change("post", path, { path: values, query: { dry_run: isDryRun }, body: { reason } }),
        done: isClosed ? `${node.name} accepts ranks again` : `${node.name} is cordoned`,
      }}
      onDone={onDone}
      effect={(after) => (
        <p>
          {after.health.status === "open"
            ? "The node accepts new ranks again, and its faults no longer count."
            : `The node gets no new ranks. ${node.jobs.length === 0 ? "No job runs on it." : `${jobs} on it continue${node.jobs.length === 1 ? "s" : ""}.`}`}
        </p>
      )}
    >
      <label>
        {isClosed ? "Reason to open" : "Reason to close"}
        <input value={reason} placeholder="optional" onInput={(event) => setReason(event.currentTarget.value)} />
      </label>
    </ActionPanel>
  );
}
