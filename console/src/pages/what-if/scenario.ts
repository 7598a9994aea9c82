/** The scenario of the address, as fields of a form, as a request and as a command. Pure. */

import type { Schema } from "../../api/types";
import { commandText } from "../../text/commands";

export const FIELDS = ["add", "like", "drain", "quota", "cancel", "job", "assumed", "horizon"] as const;
export type Scenario = Record<(typeof FIELDS)[number], string>;

const UNITS: Record<string, number> = { s: 1, min: 60, m: 60, h: 3600, d: 86_400 };

/** Read a scenario from the query of an address. */
export function scenarioOf(query: URLSearchParams): Scenario {
  return Object.fromEntries(FIELDS.map((name) => [name, query.get(name) ?? ""])) as Scenario;
}

/** Return the request of a scenario, or what is wrong with it. */
export function requestOf(scenario: Scenario): Schema<"WhatIfRequest"> | string {
  const request: Record<string, unknown> = { drain: words(scenario.drain), cancel: words(scenario.cancel) };
  if (scenario.add !== "" && Number(scenario.add) > 0) {
    request.add_nodes = { count: Number(scenario.add), ...(scenario.like && { like: scenario.like }) };
  }
  const quotas: Record<string, Record<string, number | null>> = {};
  for (const word of words(scenario.quota)) {
    const match = /^(.+)\.(guaranteed|limit|weight)=([\d.]+|none)$/.exec(word);
    if (match === null) return `“${word}” is not a quota; write for example vision.limit=64`;
    const [, project, field, value] = match as unknown as [string, string, string, string];
    quotas[project] = { ...quotas[project], [field]: value === "none" ? null : Number(value) };
  }
  request.quotas = quotas;
  const jobs = words(scenario.job).map(jobOf);
  const wrong = jobs.find((job) => typeof job === "string");
  if (wrong !== undefined) return wrong as string;
  request.add_jobs = jobs;
  for (const name of ["assumed", "horizon"] as const) {
    if (scenario[name] === "") continue;
    const seconds = secondsOf(scenario[name]);
    if (seconds === undefined) return `“${scenario[name]}” is not a duration; write for example 2h`;
    request[`${name}_s`] = seconds;
  }
  return request as Schema<"WhatIfRequest">;
}

/** Return the `regroup` command of a scenario. */
export function commandOf(scenario: Scenario): string {
  const each = (option: string, text: string) => words(text).flatMap((word) => [option, word]);
  return commandText(
    "regroup",
    "what-if",
    ...(Number(scenario.add) > 0 ? ["--add-nodes", scenario.add] : []),
    ...(scenario.like ? ["--like", scenario.like] : []),
    ...each("--drain", scenario.drain),
    ...each("--quota", scenario.quota),
    ...each("--cancel", scenario.cancel),
    ...each("--add-job", scenario.job),
    ...(scenario.assumed ? ["--assumed", scenario.assumed] : []),
    ...(scenario.horizon ? ["--horizon", scenario.horizon] : []),
  );
}

/** Return a list of words with this one added, or without it if it is there. */
export function toggled(text: string, word: string): string {
  const found = words(text);
  return (found.includes(word) ? found.filter((each) => each !== word) : [...found, word]).join(" ");
}

/** Return the words of a text. */
export function words(text: string): string[] {
  return text.split(/\s+/).filter(Boolean);
}

function jobOf(text: string): Record<string, unknown> | string {
  const fields: Record<string, unknown> = {};
  for (const part of text.split(",")) {
    const [name, value] = part.split("=");
    if (!name || value === undefined)
      return `“${text}” is not a job; write for example name=big,ranks=64,duration_s=7200`;
    fields[name] = name === "ranks" || name === "duration_s" ? Number(value) : value;
  }
  return fields;
}

function secondsOf(text: string): number | undefined {
  const match = /^(\d+(?:\.\d+)?)\s*(s|min|m|h|d)?$/.exec(text.trim());
  return match ? Number(match[1]) * (UNITS[match[2] ?? "s"] ?? 1) : undefined;
}
