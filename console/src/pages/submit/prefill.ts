/** The text with which the page begins: the draft of this browser, a template, or the spec of a job. */

import { get } from "../../api/client";
import { storedDraft } from "./draft";
import type { SchemaNode } from "./schema";
import { TEMPLATES } from "./templates";
import { withoutDefaults, yamlText } from "./yaml-text";

export interface Beginning {
  schema: SchemaNode;
  text: string;
}

/**
 * Load the schema, and the text to begin with.
 *
 * @param from - job whose spec is copied; with `step`, the new job continues from its checkpoint of that step.
 */
export async function loadBeginning(from: string, step: string, signal: AbortSignal): Promise<Beginning> {
  const schema = (await get("/v1/spec/schema", { signal })) as SchemaNode;
  if (from === "") return { schema, text: storedDraft() ?? TEMPLATES[0].text };
  const job = await get("/v1/jobs/{job}", { path: { job: from }, signal });
  if (job.spec === null) return { schema, text: `# The stored spec of ${job.name} is damaged.\n` };
  const spec = withoutDefaults(schema, job.spec) as Record<string, unknown>;
  const resumed = step === "" ? spec : { ...spec, resume_from: `${job.id}@${step}` };
  const origin = step === "" ? "" : `, continued from step ${step}`;
  return { schema, text: `# As job ${job.name} (${job.id})${origin}.\n${yamlText(resumed)}` };
}
