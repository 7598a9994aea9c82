/** Fields of the quota form, and the settings and command words that they mean. Pure. */

import type { Schema } from "../../api/types";
import { dayText } from "../../text/time";

type Project = Schema<"Project">;
type Settings = Schema<"ProjectSettings">;

export interface Fields {
  guaranteed: string;
  limit: string;
  weight: string;
  budget: string;
  budgetUnit: string;
  budgetSince: string;
}

/** Return the fields of a project; those of a project without settings if there is none. */
export function fieldsOf(project: Project | undefined): Fields {
  const budget = project?.budget;
  const amount = budget?.device_hours ?? budget?.cost;
  return {
    guaranteed: String(project?.guaranteed ?? 0),
    limit: project?.limit === null || project?.limit === undefined ? "" : String(project.limit),
    weight: String(project?.weight ?? 1),
    budget: amount === null || amount === undefined ? "" : String(amount),
    budgetUnit: budget?.cost ? "cost" : "device_hours",
    budgetSince: budget?.since ? dayText(Number(budget.since)) : "",
  };
}

/** Return the settings of a request: the fields, and the other settings of the project as they are. */
export function settingsOf(fields: Fields, project: Project | undefined): Settings {
  const budget = fields.budget === "" ? null : budgetOf(fields);
  return {
    guaranteed: Number(fields.guaranteed),
    borrowable: project?.borrowable ?? null,
    limit: fields.limit === "" ? null : Number(fields.limit),
    weight: Number(fields.weight),
    spares: project?.spares ?? 0,
    admits: project?.admits ?? {},
    defaults: project?.defaults ?? {},
    budget,
  } as Settings;
}

/** Return the words of `regroup projects set` for the fields that differ from those before. */
export function changesOf(fields: Fields, before: Fields): string[] {
  const words: string[] = [];
  if (fields.guaranteed !== before.guaranteed) words.push(`guaranteed=${fields.guaranteed}`);
  if (fields.limit !== before.limit) words.push(`limit=${fields.limit || "null"}`);
  if (fields.weight !== before.weight) words.push(`weight=${fields.weight}`);
  const hasChanged = (["budget", "budgetUnit", "budgetSince"] as const).some((name) => fields[name] !== before[name]);
  if (hasChanged && fields.budget === "" && before.budget !== "") words.push("budget=null");
  if (hasChanged && fields.budget !== "") words.push(`budget=${JSON.stringify(budgetOf(fields))}`);
  return words;
}

function budgetOf(fields: Fields): Record<string, number> {
  const since = fields.budgetSince === "" ? {} : { since: new Date(`${fields.budgetSince}T00:00`).getTime() / 1000 };
  return { [fields.budgetUnit]: Number(fields.budget), ...since };
}
