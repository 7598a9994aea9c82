/** The progress of drains, and their end before the deadline. */

import { change, get } from "../../api/client";
import { ActionPanel } from "../../components/action-panel";
import { useResource } from "../../state/resource";
import { commandText } from "../../text/commands";
import { countText } from "../../text/numbers";
import { agoText, timeText } from "../../text/time";
import type { Node } from "./model";

const PATH = "/v1/nodes/{node}/drain";

export function UndrainPanel({ nodes, onDone }: { nodes: readonly Node[]; onDone: () => void }) {
  const names = nodes.map((node) => node.name);
  const references = nodes.map((node) => node.node_id ?? node.name);
  const first = references[0] ?? "";
  const drain = useResource((signal) => get(PATH, { path: { node: first }, signal }), [first]);
  const busy = nodes.filter((node) => node.jobs.length > 0).length;
  const state = drain.data.value;
  const title = nodes.length === 1 ? `Cancel the drain of ${names[0]}` : `Cancel ${countText(nodes.length, "drain")}`;
  return (
    <ActionPanel
      action={{
        title,
        requests: names.map((node) => ({ method: "delete", path: PATH, values: { node } })),
        commands: names.map((node) => commandText("regroup", "undrain", node)),
        run: async (isDryRun) => {
          for (const node of references) await change("delete", PATH, { path: { node }, query: { dry_run: isDryRun } });
          return references.length;
        },
        done: `${countText(nodes.length, "node")} accept${nodes.length === 1 ? "s" : ""} ranks again`,
      }}
      onDone={onDone}
      effect={() => <p>The nodes accept ranks again. Jobs that have moved away do not move back.</p>}
    >
      {state && (
        <p>
          Drained by {state.by === "ray" ? "Ray" : "a request"}
          {state.reason && `: ${state.reason}`}. Deadline {timeText(state.deadline_at)} ({agoText(state.deadline_at)}).{" "}
          {busy === 0 ? "No job is left." : `${countText(busy, "node")} still in use.`}
        </p>
      )}
    </ActionPanel>
  );
}
