/** Drain a node or a whole domain before a deadline, with the moves of its jobs. */

import { useState } from "preact/hooks";
import { change } from "../../api/client";
import { type Problem, toProblem } from "../../api/problem";
import type { Schema } from "../../api/types";
import { ActionPanel } from "../../components/action-panel";
import { href } from "../../state/router";
import { commandText } from "../../text/commands";
import { countText } from "../../text/numbers";
import { timeText } from "../../text/time";
import { secondsUntil } from "./deadline";
import type { Node, Place } from "./model";

const DEFAULT_S = 600;
const MOST_NODES = 256;
const PATH = "/v1/nodes/{node}/drain";

interface Result {
  moves: readonly Schema<"JobMove">[];
  deadline_s: number | null;
  refused: readonly string[];
}

export function DrainPanel({ place, nodes, onDone }: { place: Place; nodes: readonly Node[]; onDone: () => void }) {
  const [deadline, setDeadline] = useState("");
  const [reason, setReason] = useState("");
  const seconds = secondsUntil(deadline);
  const names = nodes.map((node) => node.name);
  const references = nodes.map((node) => node.node_id ?? node.name);
  const [first, ...others] = references;
  if (first === undefined) return null;
  if (nodes.length > MOST_NODES) {
    return <p class="notice">Drain at most {MOST_NODES} nodes at once: select a smaller domain.</p>;
  }
  const title = nodes.length === 1 ? `Drain ${names[0]}` : `Drain ${countText(nodes.length, "node")}`;
  const body = { deadline_s: seconds ?? DEFAULT_S, reason: reason || "on request", also: [] };
  const run = (isDryRun: boolean) => drain(first, others, body, isDryRun);
  const bodyOf = (index: number) => (index === 0 ? { ...body, also: others } : body);
  return (
    <ActionPanel
      action={{
        title,
        isDangerous: true,
        requests: names.map((node, index) => ({ method: "post", path: PATH, values: { node }, body: bodyOf(index) })),
        commands: names.map((node) =>
          commandText(
            "regroup",
            "drain",
            node,
            "--deadline",
            deadline || "TIME",
            ...(reason ? ["--reason", reason] : []),
          ),
        ),
        run,
        done: (result) =>
          result.refused.length === 0
            ? `${countText(nodes.length, "node")} will be empty by ${timeText(result.deadline_s)}`
            : `${countText(result.refused.length, "drain")} refused: ${result.refused[0]}`,
      }}
      onDone={onDone}
      missing={seconds === undefined ? "Set a deadline: a time such as 17:00, or a duration such as 2h." : undefined}
      effect={(preview) => (
        <Effect place={place} preview={preview} deadline={seconds === undefined ? null : preview.deadline_s} />
      )}
    >
      <div class="row">
        <label>
          Deadline
          <input
            value={deadline}
            size={10}
            placeholder="17:00 or 2h"
            onInput={(event) => setDeadline(event.currentTarget.value)}
          />
        </label>
        <label>
          Reason
          <input value={reason} placeholder="optional" onInput={(event) => setReason(event.currentTarget.value)} />
        </label>
      </div>
    </ActionPanel>
  );
}

function Effect({ place, preview, deadline }: { place: Place; preview: Result; deadline: number | null }) {
  const what = place.level === "node" ? "The node gets" : "The nodes get";
  return (
    <>
      <p>
        {what} no new ranks
        {deadline === null ? "." : `, and may go away from ${timeText(deadline)}.`}{" "}
        {preview.moves.length === 0 && "No job is affected."}
      </p>
      {preview.moves.length > 0 && (
        <table class="cluster-moves">
          <caption class="visually-hidden">What happens to each job</caption>
          <thead>
            <tr>
              <th scope="col">Job</th>
              <th scope="col">What happens</th>
            </tr>
          </thead>
          <tbody>
            {preview.moves.map((move) => (
              <tr key={move.job_id}>
                <th scope="row">
                  <a href={href(`jobs/${move.job_id}`)}>{move.name}</a>
                </th>
                <td>
                  <MoveText move={move} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </>
  );
}

function MoveText({ move }: { move: Schema<"JobMove"> }) {
  if (move.effect === "moves") {
    return (
      <>
        {move.nodes.map((node) => (
          <div key={node.source}>
            moves {countText(node.ranks, "rank")}: {node.source} → {node.target}
          </div>
        ))}
      </>
    );
  }
  const effect = move.effect === "waits" ? "saves its last step and queues" : "continues with fewer ranks, or queues";
  return (
    <>
      {effect}: {move.why.split("\n")[0]}
    </>
  );
}

async function drain(
  first: string,
  others: readonly string[],
  body: Schema<"DrainRequest">,
  isDryRun: boolean,
): Promise<Result> {
  const query = { dry_run: isDryRun };
  const also = [...others];
  const answer = await change("post", PATH, { path: { node: first }, query, body: { ...body, also } });
  const refused: string[] = [];
  // The preview of the first node covers the jobs of all.
  for (const node of isDryRun ? [] : others) {
    try {
      await change("post", PATH, { path: { node }, query, body });
    } catch (error) {
      const problem: Problem = toProblem(error);
      refused.push(problem.message);
    }
  }
  return { moves: answer.moves ?? [], deadline_s: answer.deadline_at, refused };
}
