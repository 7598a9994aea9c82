/** The groups of a report in the address and in requests. */

import type { Schema } from "../../api/types";
import { present } from "../../api/values";
import type { TimeWindow } from "../../text/window";

export const GROUPS = [
  ["project", "Project"],
  ["user", "User"],
  ["class", "Class"],
  ["job", "Job"],
] as const;

export type Group = (typeof GROUPS)[number][0];

export interface UsageQuery {
  group_by: string;
  from: number;
  to?: number;
  project?: string;
}

type Row = Schema<"UsageRow">;

/** Return the groups of an address; projects if it has none. */
export function groupsOf(text: string | null): [Group, ...Group[]] {
  const known = GROUPS.map(([group]) => group);
  const [first, ...others] = [...new Set((text ?? "").split(","))].filter((each): each is Group =>
    known.includes(each as Group),
  );
  return first === undefined ? ["project"] : [first, ...others];
}

/** Return the parameters of the request, which are also those of the CSV file. */
export function usageQuery(groups: readonly Group[], shown: TimeWindow, project: string): UsageQuery {
  return { group_by: groups.join(","), from: shown.from_s, ...present({ to: shown.to_s, project }) };
}

/** Return the value of a row in a group, as text. */
export function groupText(row: Row, group: Group): string {
  if (group === "job") return row.job_name ?? row.job ?? "";
  return (group === "class" ? row.accelerator : row[group]) || "–";
}

/** Return an amount of money with its currency. */
export function moneyText(value: number | null | undefined, currency: string | null | undefined): string {
  if (value === null || value === undefined) return "–";
  const amount = value.toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 });
  return `${amount.replaceAll(",", " ")} ${currency ?? ""}`.trim();
}

/** Return device-hours with two decimals. */
export function hoursText(value: number): string {
  const text = value.toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 });
  return text.replaceAll(",", " ");
}
