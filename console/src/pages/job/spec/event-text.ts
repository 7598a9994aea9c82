/** One line for each event of a job's history. Pure. */

import { layoutParts } from "../../../text/layouts";
import { bytesText, countText, numberText } from "../../../text/numbers";
import { durationText } from "../../../text/time";

type Data = Record<string, unknown>;

/** Return the content of an event on one line. */
export function eventText(kind: string, data: Data): string {
  switch (kind) {
    case "state":
      return joined([data.to, data.reason && `(${text(data.reason)})`, data.message], " ");
    case "generation":
      return joined([
        `generation ${text(data.number)}`,
        countText(Number(data.world_size), "rank"),
        `from step ${text(data.start_step)}`,
        text(data.cause),
      ]);
    case "incident": {
      const times = data.durations as Data | undefined;
      return joined([
        `${text(data.cause)}${data.rank === null || data.rank === undefined ? "" : ` of rank ${text(data.rank)}`}`,
        `at step ${text(data.at_step)}`,
        data.recovery_action && `recovery: ${text(data.recovery_action)}`,
        typeof times?.total === "number" && `${durationText(times.total)} in all`,
      ]);
    }
    case "checkpoint":
      return joined([
        `step ${text(data.step)}`,
        typeof data.size_bytes === "number" && bytesText(data.size_bytes),
        typeof data.duration_s === "number" && durationText(data.duration_s),
      ]);
    case "checkpoint_removed":
      return `step ${text(data.step)}`;
    case "pin":
      return `${data.pinned ? "pinned" : "unpinned"} step ${text(data.step)}`;
    case "trial":
      if ("kept" in data) return `${data.kept ? `chosen: ${layoutParts(data.kept)}` : "stopped"}, ${text(data.why)}`;
      return `${layoutParts(data.layout)}: ${data.measured_s ? durationText(Number(data.measured_s)) : "not tried"}`;
    case "stragglers":
      return stragglersText(data);
    default:
      return Object.entries(data)
        .filter(([, value]) => value !== null && value !== undefined)
        .map(([name, value]) => `${name.replaceAll("_", " ")}: ${text(value)}`)
        .join(", ");
  }
}

function stragglersText(data: Data): string {
  const ranks = (data.ranks ?? []) as { rank: number; work_s: number; usual_s: number }[];
  if (ranks.length === 0) return "none any more";
  const named = ranks.map((each) => `rank ${each.rank} works ${durationText(each.work_s)} per step`);
  return `${named.join(", ")}; others ${durationText(ranks[0]?.usual_s)}`;
}

function joined(parts: readonly unknown[], separator = ", "): string {
  return parts.filter((part) => part).join(separator);
}

function text(value: unknown): string {
  if (typeof value === "string") return /^[0-9a-f]{56}$/.test(value) ? `${value.slice(0, 8)}…` : value;
  if (typeof value === "number") return numberText(value, 6);
  return JSON.stringify(value);
}
