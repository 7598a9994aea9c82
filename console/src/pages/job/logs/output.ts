/** Parts of the output of a rank, by offset. */

import { fetchApi, queryText, target } from "../../../api/client";
import { Problem, toProblem } from "../../../api/problem";
import type { Source } from "./line-buffer";

export interface Part {
  text: string;
  offset: number;
  next: number;
  size: number;
  isComplete: boolean;
}

const END = 2 ** 53 - 1;
const PATIENCE_MS = 30_000;
export const PART_BYTES = 256 * 1024;

/** Return the path of an output. */
export function logPath(job: string, source: Source, values: Record<string, unknown> = {}): string {
  return `${target("/v1/jobs/{job}/logs", { job })}?${queryText({ ...source, ...values })}`;
}

/** Read a part. An output that does not exist is empty. */
export async function readPart(
  job: string,
  source: Source,
  offset: number,
  limit: number,
  signal: AbortSignal,
): Promise<Part> {
  try {
    const response = await patiently(() => fetchApi(logPath(job, source, { offset, limit }), { signal }), signal);
    const number = (name: string) => Number(response.headers.get(name) ?? 0);
    return {
      text: await response.text(),
      offset,
      next: number("Log-Next-Offset"),
      size: number("Log-Size"),
      isComplete: response.headers.get("Log-Complete") === "true",
    };
  } catch (error) {
    const problem = toProblem(error);
    if (problem.status === 404) return { text: "", offset: 0, next: 0, size: 0, isComplete: false };
    throw problem;
  }
}

/** Return the number of bytes of an output. */
export async function readSize(job: string, source: Source, signal: AbortSignal): Promise<number> {
  return (await readPart(job, source, END, 1, signal)).size;
}

/** Save the whole output as a file. */
export async function download(job: string, source: Source, name: string): Promise<void> {
  const response = await fetchApi(logPath(job, source));
  const url = URL.createObjectURL(await response.blob());
  const link = Object.assign(document.createElement("a"), { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

async function patiently<T>(attempt: () => Promise<T>, signal: AbortSignal): Promise<T> {
  const end = Date.now() + PATIENCE_MS;
  for (let pause = 200; ; pause = Math.min(2 * pause, 2_000)) {
    try {
      return await attempt();
    } catch (error) {
      const problem = error instanceof Problem ? error : toProblem(error);
      if (signal.aborted || !problem.isTransient || Date.now() + pause > end) throw problem;
    }
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}
